"""Why a device or a stream did nothing: each gap between its work gets one cause (docs/concepts/taxonomy.md).

A gap is the time from the latest end of all earlier work of a device, or of one of its streams, to the next start. The
work that ends the gap and the call that launched it decide. The first of these conditions that is true names the cause:

1. the launch is not known: `kernel_wait` where the gap is at most KERNEL_WAIT_NS, else `unknown`.
2. on a stream, other work of the device ended inside the gap, at most KERNEL_WAIT_NS before its end, and the launch
   call had returned at least as long before that: the stream waited for that work. `copy_wait` where it was a copy,
   else `kernel_wait`.
3. the launch call ended after the gap began, so the device waited for the host. Had a copy call of the launching
   thread (the launch itself, or its last one before) been open when the gap began, or did the thread's latest wait
   (cudaStreamSynchronize, hsa_signal_wait, ...) return after that, then without it the host would have come earlier by
   as much as it took: that much of the gap is `copy_wait` or `sync_wait`. The way to a wait is part of what it took:
   from the launch before until the wait returns, the thread launches nothing but the copies it waits for, however
   early the device is done. A way of PAUSE_NS or more is not part of it. The wait drained the queue: what the host
   then needs to launch again would have passed while the device worked. So a rest shorter than PAUSE_NS is the
   wait's too; a longer one is not, because the host did something else that it would have done anyway. The gap
   before the copy that was waited for is the way to the wait: its host's part, if shorter than PAUSE_NS, is the
   wait's as well. Both are in relaunch_ns: taking the wait out does not save them. Of what is left, and of
   gaps without a wait, as much as recorded OS events kept the thread off its CPU is `noise`, and the remainder is
   `host_wait`: the host was busy with something else.
   If the work began START_NS or more after its launch call had returned, the host was not late by that time: it is
   `unknown`, and in unstarted_ns.
4. the launch had returned before the gap began, so the work was there and did not run:
   `kernel_wait` where the gap is at most KERNEL_WAIT_NS, the time from one kernel to the next;
   `launch` where the gap ends within the launch latency of that call's start: it was just too late;
   `throttled` where the latest telemetry sample says that the clock was throttled;
   else `unknown`: nothing recorded explains it. From START_NS on it is in unstarted_ns.

`unstarted_ns` is the idle time in which work had been launched and the device did not begin it, in stretches of
START_NS or more: seven times the longest launch latency seen on an idle device. A device that another process has in
its time slice does so: on an H100 with one co-tenant nearly every launch onto an empty queue waited for 2.4 ms
(tests/captures/torch_shared); captures without a co-tenant have at most one. Such launches teach no launch latency.

KERNEL_WAIT_NS is 5 us: on six H100, H200 and B200 captures no gap before work launched in time was longer than 3.9 us,
on MI200 and MI300X most are 1 ns. HolisticTraceAnalysis documents 30 ns and applies it to us. The launch latency is
that of the capture itself: the upper quartile of start minus call start over the gaps in which the device was idle when
the launch call began (6 to 8 us on H100 and H200, 20 to 34 us on MI300X); with fewer than FEWEST of those it is
LATENCY_NS.

`paused_ns` is the part of `host_wait` in gaps in which the host took PAUSE_NS or more: it did something else than
launch (a data loader, a busy loop, an allocation, another process on its CPU). In the labelled recordings of an H200 at
most 15 % of the time of launch-bound steps is in gaps above 200 us; with a busy or contended host it is at least 68 %
(python -m benchmarks.diagnosis --only classify).

A gap is counted once, under the cause of its largest part. Every part is in whole ns, and the causes sum exactly to the
idle time of the device or stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from aaco.analytics.quality.thermal import throttling
from aaco.analytics.streaming import overlap
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.distribution import Distribution, bins, upper_edge
from aaco.analytics.streaming.link_launches import PAUSE_NS, Linked
from aaco.analytics.streaming.stream_ids import (
    NONE,
    first_rows,
    grow,
    integers,
    largest,
    latest_end_before,
    or_none,
    rows_by_stream,
)
from aaco.analytics.streaming.work import COPY
from aaco.analytics.timeline.timeline import covered_until
from aaco.core import distinct, documents
from aaco.core.arrays import Flags, Ints, summed
from aaco.tracelake import layout

KERNEL_WAIT_NS = 5_000
LATENCY_NS = 20_000
START_NS = 250_000
FEWEST = 20
COARSE = 2  # 2**COARSE bins to the octave, for the choice between launch and unknown
LONGEST_GAPS = 10
_DELAY_BITS = 9  # a delay's bin is below 2**9
OFF_CPU = ("run_queue_wait", "switch_involuntary", "migration", "fault_major", "irq", "softirq", "timer", "block_io")


class IdleCause(IntEnum):
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
WHY_UNKNOWN = {IdleCause.UNLINKED: "the launch of the next work is not in the capture",
               IdleCause.UNEXPLAINED: "launched in time; nothing recorded explains the wait"}


CAUSES = {cause.name.lower() for cause in IdleCause if cause not in WHY_UNKNOWN and cause != IdleCause.LATE} | {UNKNOWN}


class IdlePart(Struct, frozen=True):
    """Gaps of one cause."""

    count: int
    ns: int


class Gap(Struct, frozen=True):
    """One of the longest gaps of a device, and the kernel that ended it (None: a copy or fill)."""

    capture: int | None
    device_id: int
    t_start_ns: int
    ns: int
    cause: str
    before_kernel: str | None


class IdleTime(Struct, frozen=True):
    """The idle time of a device, or of a stream (queue where there are no streams): parts by cause sum to idle_ns."""

    capture: int | None
    device_id: int
    queue_id: int | None
    stream_id: int | None
    idle_ns: int
    gaps: int
    causes: Mapping[str, IdlePart]
    unknown: Mapping[str, IdlePart]
    paused_ns: int
    unstarted_ns: int = 0  # part of `unknown`
    unstarted: int = 0  # gaps with such a part
    relaunch_ns: int = 0  # part of sync_wait and copy_wait: launching again after a drain, the way to a copy


@documents.document(layout.TRACE["idle"], version=1)
class Idle(Struct, frozen=True):
    """Idle time by cause of every device and stream, the longest gaps, and the launch latency used per capture."""

    devices: tuple[IdleTime, ...]
    streams: tuple[IdleTime, ...]
    longest: tuple[Gap, ...]
    kernel_wait_ns: int
    launch_latency_ns: tuple[Latency, ...]
    cpu_watched: bool  # whether events that make `noise` were recorded
    clock_watched: bool  # whether telemetry that makes `throttled` was


class Latency(Struct, frozen=True):
    """The launch latency of one capture, and over how many launches it was observed; 0: it is the default."""

    capture: int | None
    ns: int
    observed: int


class IdleConditions(Struct, frozen=True):
    """What else was recorded: times off CPU by thread, and when the clock of a device was throttled.

    off_cpu: thread id -> (starts, lengths) of disjoint intervals in order. held_down: device id -> (times, flags).
    """

    off_cpu: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)
    held_down: Mapping[int, tuple[Ints, Flags]] = field(default_factory=dict)
    cpu_watched: bool = False


def conditions(system_events: pa.Table | None, gpu_events: pa.Table | None) -> IdleConditions:
    """Return the conditions of the system_events and gpu_events tables; procfs samples (tier T1) are sums and are not
    used."""
    off_cpu: dict[int, tuple[Ints, Ints]] = {}
    held_down: dict[int, tuple[Ints, Flags]] = {}
    watched = False
    if system_events is not None:
        traced = pc.is_in(system_events["tier"].cast(pa.string()), pa.array(list(overlap.RECORDS)))
        watched = bool(pc.any(traced).as_py())
        is_off_cpu = pc.and_(traced, pc.is_in(system_events["kind"].cast(pa.string()), pa.array(OFF_CPU)))
        rows = system_events.filter(pc.and_(is_off_cpu, pc.is_valid(system_events["thread_id"]))).sort_by("t_ns")
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
    return IdleConditions(off_cpu, held_down, watched)


def _disjoint(rows: pa.Table) -> tuple[Ints, Ints]:
    start, end = integers(rows["t_ns"]), integers(rows["t_ns"]) + np.maximum(0, integers(rows["dur_ns"]))
    before = latest_end_before(np.zeros(len(start), np.int64), end, np.array([NONE]))
    begin = np.maximum(start, before)
    return begin, np.maximum(0, end - begin)


class Idling:
    """Takes in linked work in start order, and says at the end why each device and stream was idle.

    since_ns: from when on a device without work counts as idle; None: from the end of its first work.
    """

    def __init__(self, os_conditions: IdleConditions | None = None, kernel_wait_ns: int = KERNEL_WAIT_NS,
                 since_ns: int | None = None) -> None:
        self._known = os_conditions or IdleConditions()
        self._kernel_wait_ns = kernel_wait_ns
        self._devices, self._streams = _IdleCounts(NONE if since_ns is None else since_ns), _IdleCounts()
        self._delays: dict[int, Distribution] = defaultdict(Distribution)
        self._ends = _RecentEnds(kernel_wait_ns)
        self._longest: list[tuple[int, int, int, int, int, int, int]] = []

    def feed(self, linked: Linked, device_ids: Sequence[int], thread_ids: Sequence[int]) -> None:
        """Add rows that start no earlier than any row fed before. device_ids, thread_ids: of the numbers in the rows.
        """
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
        idle = gaps.known & (gaps.launch_start >= gaps.began) & (gaps.unstarted_ns == 0)
        for capture in distinct.values(gaps.capture[idle]).tolist():
            mask = idle & (gaps.capture == capture)
            self._delays[capture].add(gaps.delay[mask])

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
            rows = np.flatnonzero((gaps.cause == IdleCause.LATE) & (np.array(device_ids)[gaps.device] == device))
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
        """Return the answer. devices, streams: the keys of the numbers in the rows; names: of the kernels."""
        captures = sorted({key[0] for key in devices})
        latencies = {capture: self._latency(capture) for capture in captures}
        limit = {capture: latency.ns for capture, latency in latencies.items()}
        return Idle(
            devices=tuple(sorted(self._devices.lanes([(*key, NONE, NONE) for key in devices], limit), key=_sort_key)),
            streams=tuple(sorted(self._streams.lanes(streams, limit), key=_sort_key)),
            longest=tuple(_gap(row, devices, names, limit) for row in self._longest),
            kernel_wait_ns=self._kernel_wait_ns, launch_latency_ns=tuple(latencies.values()),
            cpu_watched=self._known.cpu_watched, clock_watched=bool(self._known.held_down))

    def _latency(self, capture: int) -> Latency:
        delays = self._delays.get(capture)
        if delays is None or delays.count < FEWEST:
            return Latency(or_none(capture), _bin_edge(LATENCY_NS), 0)
        return Latency(or_none(capture), _bin_edge(int(delays.quantile(0.75).value_ns)), delays.count)


# The columns of launches that gaps are told by.
_OF_CALLS = ("start", "end", "thread", "part", "copied_from", "copied_until", "synced_until", "synced_ns")


class _Gaps:
    """The gaps before some rows of linked work: columns as long as there are gaps.

    ns = cause_ns (of `cause`) + noise_ns + host_ns + stalled_ns. unstarted_ns: the time in which launched work did not
    begin; stalled_ns: the same of gaps whose launch came late, else it is in cause_ns.
    """

    def __init__(self, linked: Linked, rows: Ints, began: Ints, waited: Flags, by_copy: Flags,
                 kernel_wait_ns: int) -> None:
        work = linked.work
        (self.launch_start, self.launch_end, self.thread, part, self.copied_from, copied_until, synced_until,
         synced_ns) = (getattr(linked.call, name)[rows] for name in _OF_CALLS)
        self.began, self.ended = began, work.start[rows]
        self.ns = self.ended - began
        self.capture, self.device, self.name = work.capture[rows], work.device[rows], work.name[rows]
        self.known = linked.known[rows]
        self.before_copy = work.kind[rows] == COPY
        self.late = self.known & (self.launch_end > began) & ~waited
        self.delay = np.where(self.known, self.ended - self.launch_start, 0)
        is_copy = (part == CallKind.COPY) & (self.launch_start <= began) & (self.launch_end > began)
        copied = (self.copied_from <= began) & (copied_until > began)
        synced = synced_until > began
        blocked = np.select([is_copy, copied],
                            [self.launch_end - self.launch_start, copied_until - self.copied_from], 0)
        blocked = np.maximum(blocked, np.where(synced, synced_ns, 0))
        self.unstarted_ns = self._held(waited)
        self.stalled_ns = np.where(self.late, self.unstarted_ns, 0)
        short = self.ns <= kernel_wait_ns
        choices: list[tuple[Flags, IdleCause]] = [
            (~self.known & short, IdleCause.KERNEL_WAIT), (~self.known, IdleCause.UNLINKED),
            (waited & by_copy, IdleCause.COPY_WAIT), (waited, IdleCause.KERNEL_WAIT),
            (self.late & (is_copy | copied), IdleCause.COPY_WAIT), (self.late & synced, IdleCause.SYNC_WAIT),
            (self.late, IdleCause.HOST_WAIT), (short, IdleCause.KERNEL_WAIT)]
        self.cause = np.select([held for held, _ in choices], [int(cause) for _, cause in choices], int(IdleCause.LATE))
        late_ns = self.ns - self.stalled_ns
        self.drained = self.late & (is_copy | copied | synced)
        whole = self.drained & (late_ns - blocked < PAUSE_NS)
        self.cause_ns = np.where(self.late & ~whole, np.minimum(late_ns, blocked), late_ns)
        self.relaunch_ns = np.where(whole, np.maximum(0, late_ns - blocked), 0)
        self.host_ns = late_ns - self.cause_ns
        self.noise_ns = np.zeros(len(rows), np.int64)

    def _held(self, waited: Flags) -> Ints:
        """Return the end of each gap in which its work had been launched and did not begin; 0 below START_NS."""
        since = np.maximum(self.began, np.minimum(self.launch_end, self.ended))
        return np.where(self.known & ~waited & (self.ended - since >= START_NS), self.ended - since, 0)

    @cached_property
    def main(self) -> Ints:
        """The cause of each gap's largest part, once its noise is known; of equal parts the first."""
        main, most = self.cause, self.cause_ns
        for cause, ns in ((IdleCause.NOISE, self.noise_ns), (IdleCause.HOST_WAIT, self.host_ns),
                          (IdleCause.UNEXPLAINED, self.stalled_ns)):
            main, most = np.where(ns > most, int(cause), main), np.maximum(ns, most)
        return main


class _IdleCounts:
    """Idle time by cause of all devices, or of all streams. since: when each began to be idle; NONE of none."""

    def __init__(self, since: int = NONE) -> None:
        self._since = since
        self._reach = np.zeros(0, np.int64)
        self._count = np.zeros((0, len(IdleCause)), np.int64)
        self._ns = np.zeros((0, len(IdleCause)), np.int64)
        self._paused, self._held, self._holds = (np.zeros(0, np.int64) for _ in range(3))
        self._relaunch = np.zeros(0, np.int64)
        self._way = np.zeros((0, 4), np.int64)  # the last gap's copy call (start, thread), host's part, count
        self._late: dict[int, dict[tuple[int, bool], list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))

    def gaps(self, lane: Ints, linked: Linked) -> tuple[Ints, Ints]:
        """Return the rows before which the device or stream was idle, and since when."""
        lanes = int(lane.max()) + 1
        self._reach = grow(self._reach, lanes, self._since)
        self._count, self._ns = grow(self._count, lanes, 0), grow(self._ns, lanes, 0)
        self._paused, self._held = grow(self._paused, lanes, 0), grow(self._held, lanes, 0)
        self._holds = grow(self._holds, lanes, 0)
        self._way, self._relaunch = grow(self._way, lanes, NONE), grow(self._relaunch, lanes, 0)
        order = rows_by_stream(lane)
        before = np.empty(len(lane), np.int64)
        before[order] = latest_end_before(lane[order], linked.work.end[order], self._reach)
        rows = np.flatnonzero((before != NONE) & (linked.work.start > before))
        return rows, before[rows]

    def count(self, lane: Ints, gaps: _Gaps, held: Flags) -> None:
        """Add gaps of these devices or streams."""
        first = lane * len(IdleCause)  # one number for stream and cause: numpy adds at pairs three times as slowly
        np.add.at(self._count.reshape(-1), first + gaps.main, 1)
        np.add.at(self._ns.reshape(-1), first + gaps.cause, gaps.cause_ns)
        np.add.at(self._ns[:, IdleCause.NOISE], lane, gaps.noise_ns)
        np.add.at(self._ns[:, IdleCause.HOST_WAIT], lane, gaps.host_ns)
        self._give_ways(lane, gaps)
        np.add.at(self._ns[:, IdleCause.UNEXPLAINED], lane, gaps.stalled_ns)
        np.add.at(self._held, lane, gaps.unstarted_ns)
        np.add.at(self._relaunch, lane, gaps.relaunch_ns)
        np.add.at(self._holds, lane, (gaps.unstarted_ns > 0).astype(np.int64))
        np.add.at(self._paused, lane, np.where(gaps.host_ns >= PAUSE_NS, gaps.host_ns, 0))
        late = np.flatnonzero(gaps.cause == IdleCause.LATE)
        key = ((lane[late] << _DELAY_BITS) + bins(gaps.delay[late], COARSE)) * 2 + held[late]
        for packed, ns, count in zip(*_sum_by_key(key, gaps.ns[late]), strict=True):
            number, delay = divmod(packed >> 1, 1 << _DELAY_BITS)
            part = self._late[number][delay, bool(packed & 1)]
            part[0] += count
            part[1] += ns

    def _give_ways(self, lane: Ints, gaps: _Gaps) -> None:
        """Give the host's part of the gap before a copy to the wait for that copy, when the next gap shows the wait."""
        if not len(lane):
            return
        order = rows_by_stream(lane)
        lanes, first = lane[order], first_rows(lane[order])
        is_way = gaps.before_copy & gaps.late & (gaps.host_ns > 0) & (gaps.host_ns < PAUSE_NS)
        columns = (np.where(is_way, gaps.launch_start, NONE), gaps.thread, gaps.host_ns,
                   gaps.main == IdleCause.HOST_WAIT)
        after = np.flatnonzero(gaps.drained[order])
        before = np.stack([column[order[after - 1]] for column in columns], axis=1)
        carried = np.isin(after, first, assume_unique=True)
        before[carried] = self._way[lanes[after[carried]]]
        last = np.r_[first[1:], len(lanes)] - 1
        self._way[lanes[last]] = np.stack([column[order[last]] for column in columns], axis=1)
        rows = order[after]
        is_given = ((before[:, 0] != NONE) & (before[:, 0] == gaps.copied_from[rows])
                    & (before[:, 1] == gaps.thread[rows]))
        before, lanes, cause = before[is_given], lanes[after[is_given]], gaps.cause[rows[is_given]]
        np.add.at(self._relaunch, lanes, before[:, 2])
        for total, part in ((self._ns, before[:, 2]), (self._count, before[:, 3])):
            np.add.at(total, (lanes, cause), part)
            np.subtract.at(total, (lanes, np.full(len(lanes), int(IdleCause.HOST_WAIT))), part)

    def lanes(self, keys: Sequence[tuple[int, ...]], latency_ns: Mapping[int, int]) -> Iterator[IdleTime]:
        """Yield the idle time of each device or stream that had work. keys: (capture, device, queue, stream) by number.
        """
        for number, (capture, device, queue, stream) in enumerate(keys[:len(self._reach)]):
            parts = self._parts(number, latency_ns[capture])
            named: dict[str, IdlePart] = {}
            for cause, (count, ns) in parts.items():
                part = named.get(_name(cause), IdlePart(0, 0))
                named[_name(cause)] = IdlePart(part.count + count, part.ns + ns)
            yield IdleTime(
                or_none(capture), device, or_none(queue), or_none(stream), sum(ns for _, ns in parts.values()),
                sum(count for count, _ in parts.values()), named,
                {why: IdlePart(*parts[cause]) for cause, why in WHY_UNKNOWN.items()},
                int(self._paused[number]), int(self._held[number]), int(self._holds[number]),
                int(self._relaunch[number]))

    def _parts(self, number: int, latency_ns: int) -> dict[IdleCause, list[int]]:
        """Return (count, ns) by cause, the late gaps settled by the launch latency."""
        parts = {cause: [int(self._count[number, cause]), int(self._ns[number, cause])] for cause in IdleCause}
        del parts[IdleCause.LATE]
        for (delay, held), (count, ns) in self._late.get(number, {}).items():
            settled = _late_cause(delay, held, latency_ns)
            parts[settled][0] += count
            parts[settled][1] += ns
        return parts


class _RecentEnds:
    """When work of each device ended lately: what a stream may have waited for."""

    def __init__(self, kernel_wait_ns: int) -> None:
        self._within = kernel_wait_ns
        self._end = np.zeros(0, np.int64)
        self._device = np.zeros(0, np.int64)
        self._copy = np.zeros(0, np.bool_)

    def waited_for(self, linked: Linked, rows: Ints, began: Ints) -> tuple[Flags, Flags]:
        """Return, per gap of a stream, whether it waited for work of another stream, and whether that was a copy."""
        work, call = linked.work, linked.call
        end = np.concatenate([self._end, work.end])
        device = np.concatenate([self._device, work.device])
        copy = np.concatenate([self._copy, work.kind == COPY])
        waited, by_copy = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        for device_number in distinct.values(work.device[rows]).tolist():
            positions = np.flatnonzero(device == device_number)
            order = positions[np.lexsort((copy[positions], end[positions]))]
            mine = np.flatnonzero(work.device[rows] == device_number)
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


def _late_cause(delay: int, held: bool, latency_ns: int) -> IdleCause:
    if upper_edge(delay, COARSE) <= latency_ns:
        return IdleCause.LAUNCH
    return IdleCause.THROTTLED if held else IdleCause.UNEXPLAINED


def _bin_edge(ns: int) -> int:
    """Return the latency at the upper edge of its bin, so that whole bins fall on one side of it."""
    return int(upper_edge(int(bins(np.array([ns]), COARSE)[0]), COARSE))


def _gap(row: tuple[int, ...], devices: Sequence[tuple[int, ...]], names: Sequence[str],
         limit: Mapping[int, int]) -> Gap:
    ns, began, device, name, cause, delay, held = row
    capture, device_id = devices[device]
    settled = IdleCause(cause)
    if settled == IdleCause.LATE:
        settled = _late_cause(int(bins(np.array([delay]), COARSE)[0]), bool(held), limit[capture])
    return Gap(or_none(capture), device_id, began, ns, _name(settled),
               names[name] if name != NONE else None)


def _sum_by_key(keys: Ints, values: Ints) -> tuple[list[int], list[int], list[int]]:
    """Return the distinct keys, the sum of the values of each, and how many there are."""
    distinct_keys, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    return distinct_keys.tolist(), summed(place, values, len(distinct_keys)).tolist(), count.tolist()


def _name(cause: IdleCause) -> str:
    return UNKNOWN if cause in WHY_UNKNOWN else cause.name.lower()


def _sort_key(lane: IdleTime) -> tuple[int, ...]:
    """Return the key that orders rows: capture, device, queue, stream; None comes first."""
    return tuple(-1 if part is None else part for part in (lane.capture, lane.device_id, lane.queue_id, lane.stream_id))
