"""A queue does one thing at a time, and everything takes some time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from aaco.analytics.truth.finding import Finding, Slice, weigh
from aaco.core import distinct

# Consecutive kernels of one stream may overlap a little: time stamps are rounded (0.13 us on H200), and a kernel may
# begin while the one before it drains (programmatic dependent launch: up to 3.7 us on B200).
DRAIN_NS = 5_000


class StreamCheck:
    """Streams that the capture names but that have no work in it."""

    def __init__(self, named: Iterable[Sequence[int]]) -> None:
        self.named = {(device, stream) for device, stream in named}
        self._used: set[tuple[int, int]] = set()

    def add(self, piece: Slice) -> None:
        """Note the streams that have work."""
        if self.named:
            for work in (piece.kernels, piece.copies):
                places = np.unique(np.stack([work["device_id"], work["stream_id"]]), axis=1)
                self._used.update(zip(*places.tolist(), strict=True))

    def findings(self) -> Iterator[Finding]:
        """Streams without work: they were used outside the window, or their work was not recorded."""
        empty = sorted(self.named - self._used)
        if empty:
            shown = ", ".join(f"{stream} of device {device}" for device, stream in empty[:5])
            yield Finding("streams_without_work", "note", len(empty), len(self.named),
                          f"{len(empty)} of {len(self.named)} streams have no work in the capture: {shown}; they were "
                          "used outside the window, or their work was not recorded")


class QueueCheck:
    """Work of one queue that overlaps, ends before it starts, or takes no time."""

    def __init__(self) -> None:
        self.count, self.ns = 0, 0
        self.overlaps, self.overlap_ns = 0, 0
        self.negative, self.zero, self.timeless = 0, 0, 0
        self._busy_until: dict[tuple[int, int, int], int] = {}

    def add(self, piece: Slice) -> None:
        """Look at the kernels of the slice, queue by queue."""
        kernels = piece.kernels
        timed = kernels.known("t_start_ns") & kernels.known("t_end_ns")
        self.timeless += int((~timed).sum())
        start, end = kernels["t_start_ns"][timed], kernels["t_end_ns"][timed]
        self.count += len(kernels)
        self.negative += int((end < start).sum())
        self.zero += int((end == start).sum())
        queues, place = distinct.combinations(
            *(kernels[name][timed] for name in ("device_id", "queue_id", "stream_id")))
        for index, (device, queue, stream) in enumerate(queues):
            rows = place == index
            self._queue((device, queue, stream), start[rows], np.maximum(end[rows], start[rows]))

    def _queue(self, key: tuple[int, int, int], start: np.ndarray, end: np.ndarray) -> None:
        reach = np.maximum.accumulate(end)
        before = np.concatenate(([self._busy_until.get(key, int(start[0]))], reach[:-1]))
        before[1:] = np.maximum(before[1:], before[0])
        shared = np.minimum(before, end) - start
        over = shared > np.minimum(DRAIN_NS, np.maximum(1, (end - start) // 2) + DRAIN_NS // 2)
        self.overlaps += int(over.sum())
        self.overlap_ns += int(shared[over].sum())
        self._busy_until[key] = int(max(reach[-1], before[0]))

    def findings(self) -> Iterator[Finding]:
        """Contradictions in the times of a queue."""
        if self.timeless:
            yield Finding("no_times", "note", self.timeless, self.count,
                          f"{self.timeless} kernels have no times in the capture: they are in no total of time")
        if self.negative:
            yield Finding("ends_before_it_starts", "wrong", self.negative, self.count,
                          f"{self.negative} kernels end before they start", "report it to the maker of the profiler")
        if self.zero:
            yield Finding("takes_no_time", weigh(self.zero, self.count), self.zero, self.count,
                          f"{self.zero} kernels take 0 ns: their end was not recorded, or the clock is too coarse")
        if self.overlaps:
            yield Finding("overlap_on_one_queue", weigh(self.overlaps, self.count), self.overlaps, self.count,
                          f"{self.overlaps} kernels start while the one before them on the same queue still runs: "
                          "times are wrong, or the capture merges several queues", ns=self.overlap_ns)
