"""The account of a capture's records: every record became a row or is named among those left out, in count and ns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.profiler.capture import CaptureFacts, Subtotal

# Times of every tracer's clock are far below this; above it, differences would overflow 64 bits.
LATEST_NS = 1 << 62
NOT_TIMED = "its start or end is missing or no integer"
OUT_OF_RANGE = "its start or end is no time of this age"
NEVER_RAN = "it was never timed: start and end are 0"
BACKWARDS = "it ends before it starts"
ABSENT = -(1 << 63)  # means null in plain integer columns


class RecordAccount:
    """Counts records as they are read. `kernel` is the kind whose records are kernel executions."""

    def __init__(self, kernel: str | None) -> None:
        self.kernel = kernel
        self.records: Counter[str] = Counter()
        self.left: dict[str, Subtotal] = {}
        self.troubles: Counter[str] = Counter()
        self.kernel_ns = 0

    def saw(self, kind: str, count: int) -> None:
        """Count records of the file, before any of them is interpreted."""
        self.records[kind] += count

    def leave_out(self, kind: str, reason: str, count: int, ns: int = 0) -> None:
        """Count records that become no row."""
        if count:
            before = self.left.get(f"{kind}: {reason}", Subtotal(0, 0))
            self.left[f"{kind}: {reason}"] = Subtotal(before.count + count, before.ns + ns)

    def trouble(self, what: str, count: int) -> None:
        """Count records that are rows but have a defect; `what` continues a sentence that begins with the count."""
        if count:
            self.troubles[what] += count

    def timed(self, kind: str, start: pa.Array, end: pa.Array) -> np.ndarray:
        """Count a batch of records with start and end, and return the mask of those that can be rows."""
        begin, finish = integers(start), integers(end)
        self.saw(kind, len(begin))
        reasons = _unplaceable(begin, finish)
        self._enter(kind, begin, finish, ~(reasons[NOT_TIMED] | reasons[OUT_OF_RANGE]), reasons)
        return ~np.logical_or.reduce(list(reasons.values()))

    def facts(self, form: str, problems: tuple[str, ...] = (), **others: Any) -> CaptureFacts:
        """Return the facts of the capture, with this account in them."""
        kernels = None if self.kernel is None else Subtotal(self.records[self.kernel], self.kernel_ns)
        troubles = tuple(f"{count:,} {what}" for what, count in sorted(self.troubles.items()))
        return CaptureFacts(format=form, records=dict(self.records), kernels=kernels, left_out=self.left,
                            problems=(*problems, *troubles), **others)

    def _enter(self, kind: str, begin: np.ndarray, finish: np.ndarray, is_timed: np.ndarray,
               left_out: Mapping[str, np.ndarray]) -> None:
        if kind == self.kernel:
            self.kernel_ns += total((finish - begin)[is_timed])
        for reason, mask in left_out.items():
            rows = np.flatnonzero(mask)
            if len(rows):
                ns = 0 if reason == NOT_TIMED else sum(int(finish[row]) - int(begin[row]) for row in rows)
                self.leave_out(kind, reason, len(rows), ns)
                if reason == OUT_OF_RANGE and kind == self.kernel:
                    self.kernel_ns += ns


def placeable(start: pa.Array, end: pa.Array) -> np.ndarray:
    """Return the mask of the records that can be rows, as `RecordAccount.timed` decides it, without counting them."""
    mask: np.ndarray = ~np.logical_or.reduce(list(_unplaceable(integers(start), integers(end)).values()))
    return mask


def _unplaceable(begin: np.ndarray, finish: np.ndarray) -> dict[str, np.ndarray]:
    """Return masks of the records that cannot be placed in time, by reason; no two overlap."""
    missing = (begin == ABSENT) | (finish == ABSENT)
    out_of_range = ~missing & ((begin < 0) | (finish < 0) | (begin > LATEST_NS) | (finish > LATEST_NS))
    is_timed = ~missing & ~out_of_range
    return {NOT_TIMED: missing, OUT_OF_RANGE: out_of_range, NEVER_RAN: is_timed & (begin == 0) & (finish == 0),
            BACKWARDS: is_timed & (finish < begin)}


def integers(column: pa.Array) -> np.ndarray:
    """Return an integer column as int64, null as ABSENT."""
    filled = column.fill_null(ABSENT) if column.null_count else column
    numbers: np.ndarray = filled.to_numpy(zero_copy_only=False)
    return numbers


def total(values: np.ndarray) -> int:
    """Return the exact sum of int64 values, of any size."""
    return (int((values >> 32).sum(dtype=np.int64)) << 32) + int((values & 0xFFFFFFFF).sum(dtype=np.int64))
