"""Why a device or a stream did nothing: each gap between its work gets one cause (METHODS section 1, idle taxonomy).

A gap is the time from the latest end of all earlier work of the lane (a device, or one of its streams) to the next
start. The work that ends the gap is looked at, and the call that launched it. The first of these that holds names it:

1. the launch is not known: `kernel_wait` where the gap is at most KERNEL_WAIT_NS, else `unknown`.
2. on a stream, other work of the device ended inside the gap, at most KERNEL_WAIT_NS before its end, and the launch
   call had returned at least as long before that: the stream waited for that work. `copy_wait` where it was a copy,
   else `kernel_wait`.
3. the launch call ended after the gap began, so the device waited for the host. Had a copy call of the launching
   thread (the launch itself, or its last one before) been open when the gap began, or did the thread's latest wait
   (cudaStreamSynchronize, hsa_signal_wait, ...) return after that, then without it the host would have come earlier by
   as much as it took: that much of the gap is `copy_wait` or `sync_wait`. The way to a wait is part of what it took:
   from the launch before until the wait returns, the thread launches nothing but the copies it waits for, however
   early the device is done. A way of PAUSE_NS or more is not part of it. Of the rest, as much as recorded OS events
   kept the thread off its CPU is `noise`, and what is left is `host_wait`: the host was busy with something else.
4. the launch had returned before the gap began, so the work was there and did not run:
   `kernel_wait` where the gap is at most KERNEL_WAIT_NS, the time from one kernel to the next;
   `launch` where the gap ends within the launch latency of that call's start: it was just too late;
   `throttled` where the latest telemetry sample says that the clock was held down;
   else `unknown`: nothing that was recorded explains it.

KERNEL_WAIT_NS is 5 us: on six H100, H200 and B200 captures no gap before work launched in time was longer than 3.9 us,
on MI200 and MI300X most are 1 ns. HolisticTraceAnalysis documents 30 ns and applies it to us. The launch latency is
that of the capture itself: the upper quartile of start minus call start over the gaps in which the device lay idle
when the launch call began (6 to 8 us on H100 and H200, 20 to 34 us on MI300X); with fewer than FEWEST of those it is
LATENCY_NS.

`paused_ns` is the part of `host_wait` in gaps in which the host took PAUSE_NS or more: it did something else than
launch (a data loader, a busy loop, an allocation, another process on its CPU). In the labelled recordings of an H200 at
most 15 % of the time of launch-bound steps lies in gaps above 200 us, of steps with a busy or contended host at least
68 % (python -m benchmarks.diagnosis --only classify).

A gap is counted once, under the cause of its largest part. `launching_ns` is the idle time that launching takes: from
the later of the gap's start and the launch call's start to the gap's end, in gaps of case 3, and the gaps called
`launch`. Every part is in whole ns, and the causes sum to the lane's idle time exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics import overlap
from aaco.analytics.calls import Does
from aaco.analytics.distribution import Distribution, bins, upper_edge
from aaco.analytics.heat import throttling
from aaco.analytics.lanes import NONE, Flags, Ints, by_lane, grow, integers, largest, reach_before
from aaco.analytics.linking import PAUSE_NS, Linked
from aaco.analytics.timeline import covered_until
from aaco.analytics.work import COPY
from aaco.core import distinct

KERNEL_WAIT_NS = 5_000
LATENCY_NS = 20_000
FEWEST = 20
COARSE = 2  # 2**COARSE bins to the octave, for the choice between launch and unknown
LONGEST_GAPS = 10
_DELAY_BITS = 9  # a delay's bin is below 2**9
OFF_CPU = ("run_queue_wait", "switch_involuntary", "migration", "fault_major", "irq", "softirq", "timer", "block_io")


class Cause(IntEnum):
    """Causes of a gap, as the module's docstring defines them. LATE is settled when the launch latency is known."""

    HOST_WAIT = 0
    SYNC_WAIT = 1
    COPY_WAIT = 2
    NOISE = 3
    KERNEL_WAIT = 4
    LAUNCH = 5
    THROTTLED = 6
    UNLINKED = 7
    UNEXPLAINED = 8
    LATE = 9


UNKNOWN = "unknown"
WHY_UNKNOWN = {Cause.UNLINKED: "the launch of the next work is not in the capture",
               Cause.UNEXPLAINED: "launched in time; nothing recorded explains the wait"}


CAUSES = {cause.name.lower() for cause in Cause if cause not in WHY_UNKNOWN and cause != Cause.LATE} | {UNKNOWN}


@dataclass(frozen=True)
class Part:
    """Gaps of one cause."""

    count: int
    ns: int


@dataclass(frozen=True)
class Gap:
    """One of the longest gaps of a device, and the kernel that ended it (None: a copy or fill)."""

    capture: int | None
    device_id: int
    t_start_ns: int
    ns: int
    cause: str
    before_kernel: str | None


@dataclass(frozen=True)
class IdleLane:
    """The idle time of a device, or of a stream (queue where there are no streams): parts by cause sum to idle_ns."""

    capture: int | None
    device_id: int
    queue_id: int | None
    stream_id: int | None
    idle_ns: int
    gaps: int
    causes: Mapping[str, Part]
    unknown: Mapping[str, Part]
    launching_ns: int
    paused_ns: int


@dataclass(frozen=True)
class Idle:
    """Idle time by cause of every device and stream, the longest gaps, and the launch latency used per capture."""

    devices: tuple[IdleLane, ...]
    streams: tuple[IdleLane, ...]
    longest: tuple[Gap, ...]
    kernel_wait_ns: int
    launch_latency_ns: tuple[Latency, ...]
    cpu_watched: bool  # whether events that make `noise` were recorded
    clock_watched: bool  # whether telemetry that makes `throttled` was


@dataclass(frozen=True)
class Latency:
    """The launch latency of one capture, and over how many launches it was observed; 0: it is the default."""

    capture: int | None
    ns: int
    observed: int


@dataclass(frozen=True)
class Conditions:
    """What else was recorded: times off CPU by thread, and when the clock of a device was held down.

    off_cpu: thread id -> (starts, lengths) of disjoint intervals in order. held_down: device id -> (times, flags).
    """

    off_cpu: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)
    held_down: Mapping[int, tuple[Ints, Flags]] = field(default_factory=dict)
    cpu_watched: bool = False


def conditions(system_events: pa.Table | None, gpu_events: pa.Table | None) -> Conditions:
    """From the system_events and gpu_events tables; procfs samples (tier T1) are sums, not intervals: not used."""
    off_cpu: dict[int, tuple[Ints, Ints]] = {}
    held_down: dict[int, tuple[Ints, Flags]] = {}
    watched = False
    if system_events is not None:
        traced = pc.is_in(system_events["tier"].cast(pa.string()), pa.array(list(overlap.RECORDS)))
        watched = bool(pc.any(traced).as_py())
        chosen = pc.and_(traced, pc.is_in(system_events["kind"].cast(pa.string()), pa.array(OFF_CPU)))
        rows = system_events.filter(pc.and_(chosen, pc.is_valid(system_events["thread_id"]))).sort_by("t_ns")
        threads = integers(rows["thread_id"])
        off_cpu = {thread: _disjoint(rows.filter(pa.array(threads == thread)))
                   for thread in np.unique(threads).tolist()}
    if gpu_events is not None:
        rows = gpu_events.filter(pc.and_(pc.is_valid(gpu_events["t_ns"]), pc.is_valid(gpu_events["device_id"])))
        rows = rows.filter(pc.is_valid(rows["throttle_reasons"])).sort_by("t_ns")
        devices = integers(rows["device_id"])
        held = np.array([bool(throttling(reasons)) for reasons in rows["throttle_reasons"].to_pylist()], bool)
        held_down = {device: (integers(rows["t_ns"])[devices == device], held[devices == device])
                     for device in np.unique(devices).tolist()}
    return Conditions(off_cpu, held_down, watched)


def _disjoint(rows: pa.Table) -> tuple[Ints, Ints]:
    start, end = integers(rows["t_ns"]), integers(rows["t_ns"]) + np.maximum(0, integers(rows["dur_ns"]))
    before = reach_before(np.zeros(len(start), np.int64), end, np.array([NONE]))
    begin = np.maximum(start, before)
    return begin, np.maximum(0, end - begin)


class Idling:
    """Takes in linked work in start order, and says at the end why each device and stream was idle."""

    def __init__(self, known: Conditions | None = None, kernel_wait_ns: int = KERNEL_WAIT_NS) -> None:
        self._known = known or Conditions()
        self._kernel_wait_ns = kernel_wait_ns
        self._devices, self._streams = _Lanes(), _Lanes()
        self._delays: dict[int, Distribution] = defaultdict(Distribution)
        self._ends = _Ends(kernel_wait_ns)
        self._longest: list[tuple[int, int, int, int, int, int, int]] = []

    def feed(self, linked: Linked, device_ids: Sequence[int], thread_ids: Sequence[int]) -> None:
        """Rows that start no earlier than any row fed before. device_ids, thread_ids: of the numbers in the rows."""
        if not len(linked):
            return
        for lanes, lane in ((self._devices, linked.work.device), (self._streams, linked.work.stream)):
            rows, began = lanes.gaps(lane, linked)
            if lanes is self._streams:
                waited, by_copy = self._ends.waited_for(linked, rows, began)
            else:
                waited, by_copy = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
            gaps = _Gaps(linked, rows, began, waited, by_copy, self._kernel_wait_ns)
            self._noise(gaps, thread_ids)
            held = self._held_down(gaps, device_ids)
            lanes.count(lane[rows], gaps, held)
            if lanes is self._devices:
                self._learn(gaps)
                self._note(gaps, held)
        self._ends.feed(linked)

    def _learn(self, gaps: _Gaps) -> None:
        """Note how long launches take that found the device idle."""
        idle = gaps.known & (gaps.launch_start >= gaps.began)
        for capture in distinct.values(gaps.capture[idle]).tolist():
            chosen = idle & (gaps.capture == capture)
            self._delays[capture].add(gaps.delay[chosen])

    def _noise(self, gaps: _Gaps, thread_ids: Sequence[int]) -> None:
        """Take out of the host's part what recorded events explain."""
        threads = np.array(thread_ids, np.int64)[np.maximum(gaps.thread, 0)] if len(thread_ids) else gaps.thread
        for thread, (start, length) in self._known.off_cpu.items():
            rows = np.flatnonzero((gaps.host_ns > 0) & (threads == thread))
            until = np.minimum(gaps.launch_end[rows], gaps.ended[rows])
            off = covered_until(until, start, length) - covered_until(gaps.began[rows], start, length)
            gaps.noise_ns[rows] = np.minimum(off, gaps.host_ns[rows])
        gaps.host_ns -= gaps.noise_ns

    def _held_down(self, gaps: _Gaps, device_ids: Sequence[int]) -> Flags:
        held = np.zeros(len(gaps.ns), bool)
        for device, (times, flags) in self._known.held_down.items():
            rows = np.flatnonzero((gaps.cause == Cause.LATE) & (np.array(device_ids)[gaps.device] == device))
            at = np.searchsorted(times, gaps.ended[rows], side="right") - 1
            held[rows] = (at >= 0) & flags[np.maximum(at, 0)]
        return held

    def _note(self, gaps: _Gaps, held: Flags) -> None:
        """Keep the longest gaps."""
        top = largest(gaps.ns, LONGEST_GAPS)
        columns = (gaps.ns, gaps.began, gaps.device, gaps.name, gaps.main, gaps.delay, held)
        rows = zip(*(column[top].tolist() for column in columns), strict=True)
        self._longest = sorted([*self._longest, *rows], key=lambda row: (-row[0], row[1]))[:LONGEST_GAPS]

    def result(self, devices: Sequence[tuple[int, ...]], streams: Sequence[tuple[int, ...]],
               names: Sequence[str]) -> Idle:
        """The answer. devices, streams: the keys of the numbers in the rows; names: of the kernels."""
        captures = sorted({key[0] for key in devices})
        latencies = {capture: self._latency(capture) for capture in captures}
        limit = {capture: found.ns for capture, found in latencies.items()}
        return Idle(
            devices=tuple(sorted(self._devices.lanes([(*key, NONE, NONE) for key in devices], limit), key=_place)),
            streams=tuple(sorted(self._streams.lanes(streams, limit), key=_place)),
            longest=tuple(_gap(row, devices, names, limit) for row in self._longest),
            kernel_wait_ns=self._kernel_wait_ns, launch_latency_ns=tuple(latencies.values()),
            cpu_watched=self._known.cpu_watched, clock_watched=bool(self._known.held_down))

    def _latency(self, capture: int) -> Latency:
        delays = self._delays.get(capture)
        if delays is None or delays.count < FEWEST:
            return Latency(_or_none(capture), _up(LATENCY_NS), 0)
        return Latency(_or_none(capture), _up(int(delays.quantile(0.75).value_ns)), delays.count)


class _Gaps:
    """The gaps before some rows of linked work: columns as long as there are gaps.

    ns = cause_ns (of `cause`) + noise_ns + host_ns.
    """

    def __init__(self, linked: Linked, rows: Ints, began: Ints, waited: Flags, by_copy: Flags,
                 kernel_wait_ns: int) -> None:
        work, call = linked.work, linked.call.take(rows)
        self.began, self.ended = began, work.start[rows]
        self.ns = self.ended - began
        self.capture, self.device, self.name = work.capture[rows], work.device[rows], work.name[rows]
        self.known = linked.known[rows]
        self.launch_start, self.launch_end, self.thread = call.start, call.end, call.thread
        self.late = self.known & (call.end > began) & ~waited
        self.delay = np.where(self.known, self.ended - call.start, 0)
        own = (call.part == Does.COPY) & (call.start <= began) & (call.end > began)
        copied = (call.copied_from <= began) & (call.copied_until > began)
        synced = call.synced_until > began
        blocked = np.select([own, copied], [call.end - call.start, call.copied_until - call.copied_from], 0)
        blocked = np.maximum(blocked, np.where(synced, call.synced_ns, 0))
        short = self.ns <= kernel_wait_ns
        choices: list[tuple[Flags, Cause]] = [
            (~self.known & short, Cause.KERNEL_WAIT), (~self.known, Cause.UNLINKED),
            (waited & by_copy, Cause.COPY_WAIT), (waited, Cause.KERNEL_WAIT),
            (self.late & (own | copied), Cause.COPY_WAIT), (self.late & synced, Cause.SYNC_WAIT),
            (self.late, Cause.HOST_WAIT), (short, Cause.KERNEL_WAIT)]
        self.cause = np.select([held for held, _ in choices], [int(cause) for _, cause in choices], int(Cause.LATE))
        self.cause_ns = np.where(self.late, np.minimum(self.ns, blocked), self.ns)
        self.host_ns = self.ns - self.cause_ns
        self.noise_ns = np.zeros(len(rows), np.int64)

    @property
    def main(self) -> Ints:
        """The cause of each gap's largest part."""
        rest = np.where(self.noise_ns >= self.host_ns, int(Cause.NOISE), int(Cause.HOST_WAIT))
        return np.where(self.cause_ns >= np.maximum(self.noise_ns, self.host_ns), self.cause, rest)

    def launching(self) -> Ints:
        """The part of each gap in which the host was launching, for gaps in which the device waited for the host."""
        part = self.ended - np.maximum(self.began, np.minimum(self.launch_start, self.ended))
        return np.where(self.late, part, 0)


class _Lanes:
    """Idle time of the lanes of one level, by cause."""

    def __init__(self) -> None:
        self._reach = np.zeros(0, np.int64)
        self._count = np.zeros((0, len(Cause)), np.int64)
        self._ns = np.zeros((0, len(Cause)), np.int64)
        self._launching, self._paused = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._late: dict[int, dict[tuple[int, bool], list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))

    def gaps(self, lane: Ints, linked: Linked) -> tuple[Ints, Ints]:
        """The rows before which the lane was idle, and since when."""
        lanes = int(lane.max()) + 1
        self._reach = grow(self._reach, lanes, NONE)
        self._count, self._ns = grow(self._count, lanes, 0), grow(self._ns, lanes, 0)
        self._launching, self._paused = grow(self._launching, lanes, 0), grow(self._paused, lanes, 0)
        order = by_lane(lane)
        before = np.empty(len(lane), np.int64)
        before[order] = reach_before(lane[order], linked.work.end[order], self._reach)
        rows = np.flatnonzero((before != NONE) & (linked.work.start > before))
        return rows, before[rows]

    def count(self, lane: Ints, gaps: _Gaps, held: Flags) -> None:
        """Add gaps of these lanes."""
        first = lane * len(Cause)  # one number for lane and cause: numpy adds at pairs three times as slowly
        np.add.at(self._count.reshape(-1), first + gaps.main, 1)
        np.add.at(self._ns.reshape(-1), first + gaps.cause, gaps.cause_ns)
        np.add.at(self._ns[:, Cause.NOISE], lane, gaps.noise_ns)
        np.add.at(self._ns[:, Cause.HOST_WAIT], lane, gaps.host_ns)
        np.add.at(self._launching, lane, gaps.launching())
        np.add.at(self._paused, lane, np.where(gaps.host_ns >= PAUSE_NS, gaps.host_ns, 0))
        late = np.flatnonzero(gaps.cause == Cause.LATE)
        key = ((lane[late] << _DELAY_BITS) + bins(gaps.delay[late], COARSE)) * 2 + held[late]
        for each, ns, count in zip(*_summed(key, gaps.ns[late]), strict=True):
            number, delay = divmod(each >> 1, 1 << _DELAY_BITS)
            part = self._late[number][delay, bool(each & 1)]
            part[0] += count
            part[1] += ns

    def lanes(self, keys: Sequence[tuple[int, ...]], latency_ns: Mapping[int, int]) -> Iterator[IdleLane]:
        """The answer for each lane that had work. keys: (capture, device, queue, stream) by lane number."""
        for number, (capture, device, queue, stream) in enumerate(keys[:len(self._reach)]):
            parts, launching = self._parts(number, latency_ns[capture])
            named: dict[str, Part] = {}
            for cause, (count, ns) in parts.items():
                known = named.get(_name(cause), Part(0, 0))
                named[_name(cause)] = Part(known.count + count, known.ns + ns)
            yield IdleLane(
                _or_none(capture), device, _or_none(queue), _or_none(stream), sum(ns for _, ns in parts.values()),
                sum(count for count, _ in parts.values()), named,
                {why: Part(*parts[cause]) for cause, why in WHY_UNKNOWN.items()}, launching,
                int(self._paused[number]))

    def _parts(self, number: int, latency_ns: int) -> tuple[dict[Cause, list[int]], int]:
        """(count, ns) by cause, the late gaps settled by the launch latency; and the time spent launching."""
        parts = {cause: [int(self._count[number, cause]), int(self._ns[number, cause])] for cause in Cause}
        launching = int(self._launching[number])
        del parts[Cause.LATE]
        for (delay, held), (count, ns) in self._late.get(number, {}).items():
            settled = _settle(delay, held, latency_ns)
            parts[settled][0] += count
            parts[settled][1] += ns
            launching += ns if settled == Cause.LAUNCH else 0
        return parts, launching


class _Ends:
    """When work of each device ended lately: what a stream may have waited for."""

    def __init__(self, kernel_wait_ns: int) -> None:
        self._within = kernel_wait_ns
        self._end = np.zeros(0, np.int64)
        self._device = np.zeros(0, np.int64)
        self._copy = np.zeros(0, np.bool_)

    def waited_for(self, linked: Linked, rows: Ints, began: Ints) -> tuple[Flags, Flags]:
        """Per gap of a stream: whether work of another stream held it up, and whether that was a copy."""
        work, call = linked.work, linked.call
        end = np.concatenate([self._end, work.end])
        device = np.concatenate([self._device, work.device])
        copy = np.concatenate([self._copy, work.kind == COPY])
        waited, by_copy = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        for each in distinct.values(work.device[rows]).tolist():
            chosen = np.flatnonzero(device == each)
            order = chosen[np.lexsort((copy[chosen], end[chosen]))]
            mine = np.flatnonzero(work.device[rows] == each)
            started = work.start[rows[mine]]
            at = np.searchsorted(end[order], started, side="right") - 1
            last = order[np.maximum(at, 0)]
            near = (at >= 0) & (end[last] > began[mine]) & (started - end[last] <= self._within)
            waited[mine] = near & (call.end[rows[mine]] <= end[last] - self._within)
            by_copy[mine] = copy[last]
        return waited, by_copy

    def feed(self, linked: Linked) -> None:
        """Keep the ends that later gaps may end at."""
        work = linked.work
        recent = int(work.start[-1]) - self._within
        end, device = np.concatenate([self._end, work.end]), np.concatenate([self._device, work.device])
        copy = np.concatenate([self._copy, work.kind == COPY])
        kept = end >= recent
        self._end, self._device, self._copy = end[kept], device[kept], copy[kept]


def _settle(delay: int, held: bool, latency_ns: int) -> Cause:
    if upper_edge(delay, COARSE) <= latency_ns:
        return Cause.LAUNCH
    return Cause.THROTTLED if held else Cause.UNEXPLAINED


def _up(ns: int) -> int:
    """The latency at the upper edge of its bin, so that whole bins fall on one side of it."""
    return int(upper_edge(int(bins(np.array([ns]), COARSE)[0]), COARSE))


def _gap(row: tuple[int, ...], devices: Sequence[tuple[int, ...]], names: Sequence[str],
         limit: Mapping[int, int]) -> Gap:
    ns, began, device, name, cause, delay, held = row
    capture, device_id = devices[device]
    settled = Cause(cause)
    if settled == Cause.LATE:
        settled = _settle(int(bins(np.array([delay]), COARSE)[0]), bool(held), limit[capture])
    return Gap(_or_none(capture), device_id, began, ns, _name(settled),
               names[name] if name != NONE else None)


def _summed(keys: Ints, values: Ints) -> tuple[list[int], list[int], list[int]]:
    """The distinct keys, the sum of the values of each, and how many there are."""
    known, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    total = np.zeros(len(known), np.int64)
    np.add.at(total, place, values)
    return known.tolist(), total.tolist(), count.tolist()


def _name(cause: Cause) -> str:
    return UNKNOWN if cause in WHY_UNKNOWN else cause.name.lower()


def _place(lane: IdleLane) -> tuple[int, ...]:
    """By which lanes are ordered: capture, device, queue, stream; none comes first."""
    return tuple(-1 if part is None else part for part in (lane.capture, lane.device_id, lane.queue_id, lane.stream_id))


def _or_none(value: int) -> int | None:
    return None if value == NONE else value
