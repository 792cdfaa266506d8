"""Host and device must tell one time: work starts after its launch, and ends before a wait for all of it returns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.growing_column import GrowingColumn
from aaco.analytics.truth.finding import Finding, Slice, weigh
from aaco.core.arrays import Ints
from aaco.core.words import in_time, plural

# Between the clocks. On 36 real traces of six GPU types no kernel started less than 4 us after its launch call began.
TOLERANCE_NS = 1_000
SHORTEST_NS, LONGEST_NS = 100, 10_000_000_000
ALIGN = "one side's clock is off: record it again, and check the profiler's version"
UNITS = "check which unit the exporting tool wrote"


class ClockCheck:
    """Starts before launches, work that outlives the wait for it, and durations in other units than they say."""

    def __init__(self) -> None:
        self.linked, self.early, self.early_ns = 0, 0, 0
        self.busy_ns = 0  # of the linked kernels together
        self.outlives, self.outlives_ns = 0, 0
        self.devices: set[int] = set()
        self.lengths = np.zeros(64, np.int64)  # how many kernels have a duration of this many bits
        self._sync_start, self._sync_end = GrowingColumn(), GrowingColumn()
        self._pending: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] = (0, 0)

    def add(self, piece: Slice) -> None:
        """Compare the linked kernels of the slice with their launches, and with the waits that follow those."""
        took = np.maximum(piece.kernels["dur_ns"][piece.kernels.known("dur_ns")], 0)
        self.lengths += np.bincount(np.frexp(took.astype(float))[1], minlength=64)[:64]
        self.devices.update(np.unique(piece.kernels["device_id"]).tolist())
        known = (piece.launch_start >= 0) & piece.kernels.known("t_end_ns")
        launched, end = piece.launch_start[known], piece.kernels["t_end_ns"][known]
        self._waits(piece, launched, end)
        if not len(launched):
            return
        start = piece.kernels["t_start_ns"][known]
        self.linked += len(start)
        self.busy_ns += int((end - start).sum())
        self.early += int((start - launched < -TOLERANCE_NS).sum())
        self.early_ns = max(self.early_ns, int((launched - start).max()))
        self._first = self._first or (int(start[0]), int(launched[0]))
        self._last = int(start[-1]), int(launched[-1])

    def _waits(self, piece: Slice, launched: Ints, end: Ints) -> None:
        """Count work that ends after the first wait for the device that began after its launch has returned."""
        waits = piece.call_part == CallKind.SYNC
        self._sync_start.append(piece.calls["t_start_ns"][waits])
        self._sync_end.append(piece.calls["t_end_ns"][waits])
        launched, end = np.concatenate((self._pending[0], launched)), np.concatenate((self._pending[1], end))
        starts = self._sync_start.all
        at = np.searchsorted(starts, launched)
        there = at < len(starts)
        late = end[there] - self._sync_end.all[at[there]]
        self.outlives += int((late > TOLERANCE_NS).sum())
        self.outlives_ns = max(self.outlives_ns, int(late.max(initial=0)))
        # A wait that is still to come begins after this slice: it matters only to work that outlasts the slice.
        seen = max(int(piece.kernels["t_start_ns"].max(initial=-1)), int(piece.calls["t_start_ns"].max(initial=-1)))
        keep = ~there & (end > seen)
        self._pending = launched[keep], end[keep]

    def findings(self) -> Iterator[Finding]:
        """Contradictions between the clocks."""
        if self.early:
            yield Finding("starts_before_its_launch", weigh(self.early, self.linked), self.early, self.linked,
                          f"{plural(self.early, 'kernel')} started before the launch call, by up to "
                          f"{in_time(self.early_ns)}: "
                          "the clocks of host and device disagree, or one of them jumped", ALIGN)
        # The wait is for one device; with several, which one is not recorded.
        if self.outlives and len(self.devices) == 1:
            yield Finding("outlives_the_wait_for_it", weigh(self.outlives, self.linked), self.outlives, self.linked,
                          f"{plural(self.outlives, 'kernel')} ended after a wait for the whole device had returned, by "
                          f"up to {in_time(self.outlives_ns)}: times are wrong, or a clock jumped", ALIGN)
        yield from self._units()

    def _units(self) -> Iterator[Finding]:
        count = int(self.lengths[1:].sum())
        if count < 20:
            return
        median = int(np.searchsorted(np.cumsum(self.lengths[1:]), count / 2)) + 1
        low, high = 2 ** (median - 1), 2 ** median
        if high <= SHORTEST_NS or low >= LONGEST_NS:
            yield Finding("unlikely_units", "wrong", count, count,
                          f"half of the kernels take between {in_time(low)} and {in_time(high)}: no GPU does; the "
                          "capture's times are in other units than its format says", UNITS)
        if self._first and self.linked >= 20:
            device, host = self._last[0] - self._first[0], self._last[1] - self._first[1]
            # Launches may come in a burst and their kernels run long after it, one after the other, but no longer.
            queued = device - host <= self.busy_ns
            if host > 0 and not (device / host > 0.01 and (device / host < 100 or queued)):
                yield Finding("unlike_units", "wrong", self.linked, self.linked,
                              f"the linked kernels start within {in_time(device)}, their launches within "
                              f"{in_time(host)}: the two are in different units", UNITS)
