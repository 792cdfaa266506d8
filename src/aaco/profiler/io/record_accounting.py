"""The account of a capture's records: every record became a row or is named among those left out, in count and ns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.untimed import BACKWARDS, NEVER_RAN, NOT_READ, NOT_TIMED, OUT_OF_RANGE, TOO_LONG
from aaco.core.words import counted
from aaco.profiler.capture import CaptureFacts, Subtotal

# Times of every tracer's clock are below this; above it, differences would overflow 64 bits.
LATEST_NS = 1 << 62
LONGEST_NS = 1 << 53  # 104 days, and what a double holds exactly
DAY_NS = 86_400 * 10**9
FAR_NS = 10**17  # 3 years: clocks of different machines are nearer to each other
# Names of kinds of records, tables and rows of a picture that hold what ran on a device.
DEVICE_WORK = re.compile(r"kernel|dispatch|memset|copy|memcpy|fill", re.IGNORECASE)
ABSENT = -(1 << 63)  # means null in plain integer columns


class RecordAccount:
    """Counts records as they are read, and decides for every format which of them have a time.

    kernel: the kind of the records of kernel executions. from_zero: whether the clock may begin with the recording, so
    that a record can start at 0; zero_ns is where it begins. What was never timed has no duration: it counts 0 ns.
    """

    def __init__(self, kernel: str | None, from_zero: bool = False, zero_ns: int = 0) -> None:
        self.kernel, self.from_zero, self.zero_ns = kernel, from_zero, zero_ns
        self.records: Counter[str] = Counter()
        self.left: dict[str, Subtotal] = {}
        self.troubles: Counter[str] = Counter()
        self.kernel_ns = 0
        self._amid: dict[str, int] = {}  # a time amid the records of each kind

    def saw(self, kind: str, count: int) -> None:
        """Count records of the file, before any of them is interpreted."""
        self.records[kind] += count

    def leave_out(self, kind: str, reason: str, count: int, ns: int = 0) -> None:
        """Count records that become no row."""
        if count:
            before = self.left.get(f"{kind}: {reason}", Subtotal(0, 0))
            self.left[f"{kind}: {reason}"] = Subtotal(before.count + count, before.ns + ns)

    def skip(self, kind: str, reason: str, count: int, ns: int = 0) -> None:
        """Count records of the file none of which becomes a row."""
        self.saw(kind, count)
        self.leave_out(kind, reason, count, ns)

    def trouble(self, what: str, count: int) -> None:
        """Count records that are rows but have a defect; `what` continues a sentence that begins with the count."""
        if count:
            self.troubles[what] += count

    def unread(self, where: str, count: int, what: str = "work of a device") -> None:
        """Name records that no reader knows though they look like work of a device, or like `what`."""
        self.trouble(f"records of {where!r} look like {what} and are {NOT_READ}", count)

    def timed(self, kind: str, start: pa.Array, end: pa.Array) -> np.ndarray:
        """Count a batch of records with start and end, and return the mask of those that can be rows."""
        begin, finish = integers(start), integers(end)
        self.saw(kind, len(begin))
        fit = self.placed(kind, begin, finish)
        if kind == self.kernel:
            self.kernel_ns += total((finish - begin)[fit])
        return fit

    def placed(self, kind: str, begin: np.ndarray, finish: np.ndarray, instants: bool = False) -> np.ndarray:
        """Leave out the records that cannot be placed in time, and return the mask of the others."""
        reasons = self._unplaceable(kind, begin, finish, instants)
        for reason, mask in reasons.items():
            self.leave_out(kind, reason, int(mask.sum()))
        return ~np.logical_or.reduce(list(reasons.values()))

    def placeable(self, kind: str, start: pa.Array, end: pa.Array) -> np.ndarray:
        """Return the mask of the records that can be rows, as `timed` decides it, without counting them."""
        mask: np.ndarray = ~np.logical_or.reduce(list(
            self._unplaceable(kind, integers(start), integers(end), False).values()))
        return mask

    def facts(self, form: str, problems: tuple[str, ...] = (), **others: Any) -> CaptureFacts:
        """Return the facts of the capture, with this account in them."""
        kernels = None if self.kernel is None else Subtotal(self.records[self.kernel], self.kernel_ns)
        troubles = tuple(counted(count, what) for what, count in sorted(self.troubles.items()))
        return CaptureFacts(format=form, records=dict(self.records), kernels=kernels, left_out=self.left,
                            problems=(*problems, *troubles), **others)

    def times(self, kind: str, start: pa.Array, end: pa.Array) -> dict[str, pa.Array]:
        """Return the columns of time of records that are rows for more than their times: null where they have none."""
        begin, finish = integers(start), integers(end)
        fit = self.placeable(kind, start, end)
        self.trouble(f"{kind} records have no time", int((~fit).sum()))
        if kind == self.kernel:
            self.kernel_ns += total((finish - begin)[fit])
        columns = {"t_start_ns": begin, "t_end_ns": finish, "dur_ns": finish - begin}
        return {name: pa.array(values, mask=~fit) for name, values in columns.items()}

    def _unplaceable(self, kind: str, begin: np.ndarray, finish: np.ndarray, instants: bool) -> dict[str, np.ndarray]:
        """Return masks of the records that cannot be placed in time, by reason; no two overlap."""
        missing = (begin == ABSENT) | (finish == ABSENT)
        never = ~missing & self._at_zero(begin, finish, instants)
        open_ = ~missing & ~never
        outside = open_ & ((begin < 0) | (finish < 0) | (begin >= LATEST_NS) | (finish >= LATEST_NS))
        open_ &= ~outside
        backwards = open_ & (finish < begin)
        open_ &= ~backwards
        too_long = open_ & (finish - begin > LONGEST_NS)
        open_ &= ~too_long
        if kind not in self._amid and open_.any():
            self._amid[kind] = int(np.sort(begin[open_])[int(open_.sum()) // 2])
        far = open_ & (np.abs(begin - self._amid.get(kind, 0)) > FAR_NS)
        if DEVICE_WORK.search(kind):
            far[open_] |= _isolated(begin[open_])
        return {NOT_TIMED: missing, NEVER_RAN: never, OUT_OF_RANGE: outside | far, BACKWARDS: backwards,
                TOO_LONG: too_long}

    def _at_zero(self, begin: np.ndarray, finish: np.ndarray, instants: bool) -> np.ndarray:
        """Return the mask of the records with a 0 in place of a time."""
        at_zero, ends_at_zero = begin == self.zero_ns, finish == self.zero_ns
        if not self.from_zero:
            return at_zero | ends_at_zero
        return ~np.bool_(instants) & ends_at_zero | at_zero & (finish > self.zero_ns + DAY_NS)


def _isolated(begin: np.ndarray) -> np.ndarray:
    """Return the mask of the starts over a day from all others. Nodes merged into one file each have many starts."""
    gaps = np.full(len(begin) + 1, DAY_NS + 1)
    order = np.argsort(begin, kind="stable")
    gaps[1:-1] = np.diff(begin[order])
    isolated = np.zeros(len(begin), bool)
    isolated[order] = (gaps[:-1] > DAY_NS) & (gaps[1:] > DAY_NS)
    return isolated if len(begin) > 2 else np.zeros(len(begin), bool)


def time_columns(rows: Mapping[str, pa.Array]) -> dict[str, np.ndarray]:
    """Return the times of records by the names that tables give them, of the columns start and end."""
    start, end = integers(rows["start"]), integers(rows["end"])
    return {"t_start_ns": start, "t_end_ns": end, "dur_ns": end - start}


def integers(column: pa.Array) -> np.ndarray:
    """Return an integer column as int64, null as ABSENT."""
    filled = column.fill_null(ABSENT) if column.null_count else column
    numbers: np.ndarray = filled.to_numpy(zero_copy_only=False)
    return numbers


def total(values: np.ndarray) -> int:
    """Return the exact sum of int64 values, of any size."""
    return (int((values >> 32).sum(dtype=np.int64)) << 32) + int((values & 0xFFFFFFFF).sum(dtype=np.int64))
