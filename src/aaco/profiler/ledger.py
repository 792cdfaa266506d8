"""The account of a capture's records: every one became a row or is named among those left out, in count and ns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.profiler.capture import Facts, Part

# Times of every clock a tracer uses lie far inside this; beyond it differences would leave 64 bits.
LATEST_NS = 1 << 62
NOT_TIMED = "its start or end is missing or no integer"
OUT_OF_RANGE = "its start or end is no time of this age"
NEVER_RAN = "it was never timed: start and end are 0"
BACKWARDS = "it ends before it starts"
ABSENT = -(1 << 63)  # stands for null in plain integer columns


class Ledger:
    """Counts records as they are read. `kernel` is the kind whose records are kernel executions."""

    def __init__(self, kernel: str | None) -> None:
        self.kernel = kernel
        self.records: Counter[str] = Counter()
        self.left: dict[str, Part] = {}
        self.troubles: Counter[str] = Counter()
        self.kernel_ns = 0

    def saw(self, kind: str, count: int) -> None:
        """Records of the file, before any of them is interpreted."""
        self.records[kind] += count

    def leave_out(self, kind: str, reason: str, count: int, ns: int = 0) -> None:
        """Records that become no row."""
        if count:
            before = self.left.get(f"{kind}: {reason}", Part(0, 0))
            self.left[f"{kind}: {reason}"] = Part(before.count + count, before.ns + ns)

    def trouble(self, what: str, count: int) -> None:
        """Something wrong with records that are rows all the same; `what` reads on from a count."""
        if count:
            self.troubles[what] += count

    def timed(self, kind: str, start: pa.Array, end: pa.Array) -> np.ndarray:
        """Enter a batch of records with start and end, and say which of them can be rows (a mask)."""
        begin, finish = integers(start), integers(end)
        self.saw(kind, len(begin))
        reasons = _unplaceable(begin, finish)
        self._enter(kind, begin, finish, ~(reasons[NOT_TIMED] | reasons[OUT_OF_RANGE]), reasons)
        return ~np.logical_or.reduce(list(reasons.values()))

    def facts(self, form: str, problems: tuple[str, ...] = (), **known: Any) -> Facts:
        """What the capture says of itself, with this account in it."""
        kernels = None if self.kernel is None else Part(self.records[self.kernel], self.kernel_ns)
        told = tuple(f"{count:,} {what}" for what, count in sorted(self.troubles.items()))
        return Facts(format=form, records=dict(self.records), kernels=kernels, left_out=self.left,
                     problems=(*problems, *told), **known)

    def _enter(self, kind: str, begin: np.ndarray, finish: np.ndarray, known: np.ndarray,
               left: Mapping[str, np.ndarray]) -> None:
        if kind == self.kernel:
            self.kernel_ns += total((finish - begin)[known])
        for reason, mask in left.items():
            rows = np.flatnonzero(mask)
            if len(rows):
                ns = 0 if reason == NOT_TIMED else sum(int(finish[row]) - int(begin[row]) for row in rows)
                self.leave_out(kind, reason, len(rows), ns)
                if reason == OUT_OF_RANGE and kind == self.kernel:
                    self.kernel_ns += ns


def placeable(start: pa.Array, end: pa.Array) -> np.ndarray:
    """Which records can be rows, as `Ledger.timed` decides it, without entering them (a mask)."""
    mask: np.ndarray = ~np.logical_or.reduce(list(_unplaceable(integers(start), integers(end)).values()))
    return mask


def _unplaceable(begin: np.ndarray, finish: np.ndarray) -> dict[str, np.ndarray]:
    """Masks of the records that cannot be placed in time, by reason; no two overlap."""
    missing = (begin == ABSENT) | (finish == ABSENT)
    apart = ~missing & ((begin < 0) | (finish < 0) | (begin > LATEST_NS) | (finish > LATEST_NS))
    known = ~missing & ~apart
    return {NOT_TIMED: missing, OUT_OF_RANGE: apart, NEVER_RAN: known & (begin == 0) & (finish == 0),
            BACKWARDS: known & (finish < begin)}


def integers(column: pa.Array) -> np.ndarray:
    """An integer column as int64, null as ABSENT."""
    whole = column.fill_null(ABSENT) if column.null_count else column
    found: np.ndarray = whole.to_numpy(zero_copy_only=False)
    return found


def total(values: np.ndarray) -> int:
    """The exact sum of int64 values, of whatever size."""
    return (int((values >> 32).sum(dtype=np.int64)) << 32) + int((values & 0xFFFFFFFF).sum(dtype=np.int64))
