"""A queue does one thing at a time, and everything takes some time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.streaming.stream_ids import NameIds
from aaco.analytics.truth.finding import RARE, Finding, Slice, weigh
from aaco.core import distinct
from aaco.core.arrays import Ints, summed
from aaco.core.words import in_time

# Consecutive kernels of one stream may overlap a little: time stamps are rounded (0.13 us on H200), and a kernel may
# begin while the one before it drains (programmatic dependent launch: up to 3.7 us on B200).
DRAIN_NS = 5_000
HABIT = 0.5  # of the times that a kernel follows another: from here on that it begins before that ended is no accident
BITS = 20  # of a name's number, so that two fit one integer
LONGEST_NAME = 60  # letters of a kernel's name in a sentence
SEPARATE = "update the profiler and record it again; import traces of several processes or queues as separate files"


class StreamCheck:
    """Streams that the capture names but that have no work in it; time that streams spend together counts twice."""

    def __init__(self, named: Iterable[Sequence[int]]) -> None:
        self.named: set[tuple[int, ...]] = {(device, stream) for device, stream in named}
        self._used: set[tuple[int, ...]] = set()
        self._times: dict[int, tuple[int, int, int]] = {}  # of each device: sum of kernels, first start, last end

    def add(self, piece: Slice) -> None:
        """Note the streams that have work, and the times of each device."""
        timed = piece.kernels.known("t_start_ns") & piece.kernels.known("t_end_ns")
        devices, start, end = (piece.kernels[name][timed] for name in ("device_id", "t_start_ns", "t_end_ns"))
        for device in distinct.values(devices[devices >= 0]).tolist():
            begins, ends = start[devices == device], end[devices == device]
            total, first, last = self._times.get(device, (0, int(begins[0]), int(ends[0])))
            self._times[device] = (total + int(np.maximum(ends - begins, 0).sum()), min(first, int(begins[0])),
                                   max(last, int(ends.max())))
        if self.named:
            for work in (piece.kernels, piece.copies):
                self._used.update(distinct.combinations(work["device_id"], work["stream_id"])[0])

    def findings(self) -> Iterator[Finding]:
        """Streams without work: they were used outside the window, or their work was not recorded. Sums over streams
        that pass the time there was."""
        for device, (total, first, last) in sorted(self._times.items()):
            if total > last - first:
                yield Finding("sums_over_streams", "note", 1, len(self._times),
                              f"the kernels of device {device} take {in_time(total)} together, "
                              f"{in_time(total - last + first)} more than passes from the first to the last: "
                              "streams run at once, so shares of this sum are no shares of the time",
                              ns=total - last + first)
        empty = sorted(self.named - self._used)
        if empty:
            have = "has" if len(empty) == 1 else "have"
            shown = ", ".join(f"stream {stream} of device {device}" for device, stream in empty[:5])
            yield Finding("streams_without_work", "note", len(empty), len(self.named),
                          f"{len(empty)} of {len(self.named)} streams {have} no work in the capture: {shown}; "
                          "used outside the window, or their work was not recorded")


class Latest(Struct, frozen=True):
    """The kernel of a queue that began last: its times, and the number of its name."""

    start: int
    end: int
    code: int


class QueueCheck:
    """Work of one queue that overlaps, ends before it starts, or takes no time.

    A kernel that may begin while the one before it drains (programmatic dependent launch) ends after it, and does so
    nearly each time that the two follow each other. Such pairs are a note; a record that spans another one whole,
    and an overlap that is no habit of its pair, cannot be.
    """

    def __init__(self) -> None:
        self.count, self.kernel_ns = 0, 0
        self.overlaps, self.overlap_ns = 0, 0
        self.beyond_ns = 0  # of kernels that outlast the whole next one: what lies after the start of that
        self.negative, self.zero, self.timeless = 0, 0, 0
        self._names = NameIds()
        self._longest = (0, 0, "")  # of those the one that lies furthest over the next: how far, its duration, its name
        self._busy_until: dict[tuple[int, ...], int] = {}
        self._latest: dict[tuple[int, ...], Latest] = {}
        self._pairs: Counter[int] = Counter()  # how often a name followed another, by both numbers
        self._drained: Counter[int] = Counter()  # how often it began before that ended, and ended after it
        self._drained_ns: Counter[int] = Counter()

    def add(self, piece: Slice) -> None:
        """Look at the kernels of the slice, queue by queue."""
        kernels = piece.kernels
        timed = kernels.known("t_start_ns") & kernels.known("t_end_ns")
        self.timeless += int((~timed).sum())
        start, end = kernels["t_start_ns"][timed], kernels["t_end_ns"][timed]
        codes = np.minimum(self._names.numbers(kernels.table["kernel_name"])[timed], (1 << BITS) - 1)
        self.count += len(kernels)
        self.kernel_ns += int(np.maximum(end - start, 0).sum())
        self.negative += int((end < start).sum())
        self.zero += int((end == start).sum())
        queues, place = distinct.combinations(
            *(kernels[name][timed] for name in ("device_id", "queue_id", "stream_id")))
        names = kernels.table["kernel_name"]
        for index, key in enumerate(queues):
            rows = np.flatnonzero(place == index)
            longest = self._queue(key, start[rows], np.maximum(end[rows], start[rows]), codes[rows])
            if longest is not None:
                name = names[int(np.flatnonzero(timed)[rows[longest]])].as_py()
                self._longest = *self._longest[:2], str(name or "")

    def _queue(self, key: tuple[int, ...], start: Ints, end: Ints, codes: Ints) -> int | None:
        """Take the kernels of one queue; return the place of the one that spans the next by most so far."""
        latest = self._latest.get(key, Latest(int(start[0]), int(start[0]), -1))
        ends_before = np.append(latest.end, end[:-1])  # of the kernel that began before
        reach = np.maximum.accumulate(np.append(self._busy_until.get(key, int(start[0])), end))
        shared = np.minimum(reach[:-1], end) - start
        over = shared > np.minimum(DRAIN_NS, np.maximum(1, (end - start) // 2) + DRAIN_NS // 2)
        drains = over & (end >= reach[:-1]) & (ends_before == reach[:-1])
        pairs = np.append(latest.code, codes[:-1]) << BITS | codes
        self._pairs.update(distinct.counts(pairs))
        self._drained.update(distinct.counts(pairs[drains]))
        found, place = np.unique(pairs[drains], return_inverse=True)
        took_ns = summed(place, shared[drains], len(found))
        self._drained_ns.update(dict(zip(found.tolist(), took_ns.tolist(), strict=True)))
        self.overlaps += int((over & ~drains).sum())
        self.overlap_ns += int(shared[over & ~drains].sum())
        self._busy_until[key], self._latest[key] = int(reach[-1]), Latest(int(start[-1]), int(end[-1]), int(codes[-1]))
        return self._beyond(np.where(ends_before > end, ends_before - start, 0), start, end, latest)

    def _beyond(self, beyond: Ints, start: Ints, end: Ints, latest: Latest) -> int | None:
        """Sum how far kernels span the next one; return the place of the one that does so by most so far, if it is of
        this slice."""
        self.beyond_ns += int(beyond[beyond > DRAIN_NS].sum())
        at = int(beyond.argmax())
        if beyond[at] <= max(self._longest[0], DRAIN_NS):
            return None
        took_ns = int(end[at - 1] - start[at - 1]) if at else latest.end - latest.start
        self._longest = int(beyond[at]), took_ns, ""
        return at - 1 if at else None

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
        yield from self._overlapping()

    def _overlapping(self) -> Iterator[Finding]:
        habits = {pair for pair, times in self._drained.items() if times >= HABIT * self._pairs[pair]}
        others = self._drained.keys() - habits
        overlaps = self.overlaps + sum(self._drained[pair] for pair in others)
        overlap_ns = self.overlap_ns + sum(self._drained_ns[pair] for pair in others)
        if overlaps:
            # One record that lasts for seconds over a few others is rare by count, and most of the time.
            by_time = self.beyond_ns > RARE * self.kernel_ns
            yield Finding("overlap_on_one_queue", "wrong" if by_time else weigh(overlaps, self.count), overlaps,
                          self.count, f"{overlaps} kernels start while the one before them on the same queue still runs"
                          f"{self._named()}: times are wrong, or the capture merges several queues", SEPARATE,
                          overlap_ns)
        if habits:
            drained = sum(self._drained[pair] for pair in habits)
            yield Finding("starts_while_the_one_before_drains", "note", drained, self.count,
                          f"{drained} kernels start while the one before them on the same queue drains, as they do "
                          "most times that the two follow each other: a programmatic dependent launch",
                          ns=sum(self._drained_ns[pair] for pair in habits))

    def _named(self) -> str:
        beyond_ns, took_ns, name = self._longest
        shown = "".join(letter if letter.isprintable() else "?" for letter in name[:LONGEST_NAME])
        return f" ({shown or 'one'}, of {in_time(took_ns)}, by {in_time(beyond_ns)})" if beyond_ns else ""
