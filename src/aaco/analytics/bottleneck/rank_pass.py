"""The time of one device of a capture inside its window, from slices of the session's tables.

Work that reaches over an edge of the window is cut there. Collective kernels are seen twice: whole, for the busy and
idle time, and from the moment at which the last participant has arrived, for what limits the device. What only the
first has is time in which the device only waited for the last one. What kernels took longer because another process
had the device (timeline/preempted.py) limits it as `shared_device`, not as the kernels' own time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.bottleneck.ranks import KernelTime, RankTime
from aaco.analytics.bottleneck.work import Working
from aaco.analytics.streaming.link_launches import Callers, LaunchCalls, Linker
from aaco.analytics.streaming.stream_ids import NONE, integers, number_of
from aaco.analytics.streaming.work import COMMUNICATION, COPY, WorkReader, WorkRows
from aaco.analytics.timeline.idle import IdleConditions, Idling
from aaco.analytics.timeline.preempted import NONE_PREEMPTED, PreemptedKernels
from aaco.analytics.timeline.timeline import Timeline
from aaco.analytics.timeline.windows import CaptureWindow
from aaco.core import distinct
from aaco.core.arrays import Flags, Ints, find_sorted, summed
from aaco.core.config import Analysis

MOST_KERNELS = 50  # names that are kept, those with most time


class RankPass:
    """One pass over the rows of a device.

    arrived: kernel ids of collectives, sorted, and when the last participant of each had arrived, on the clock of this
    device. limits: as Working takes them. preempted: kernels that another process stopped. callers: makes the launches
    of the calls, for all passes over the same slices.
    """

    def __init__(self, window: CaptureWindow, device_id: int, settings: Analysis, conditions: IdleConditions | None,
                 collective_kernels: Ints, arrived: tuple[Ints, Ints], callers: Callers,
                 limits: Mapping[str, tuple[str, str]] | None = None,
                 preempted: PreemptedKernels = NONE_PREEMPTED) -> None:
        self._window, self._device_id = window, device_id
        self._reader = WorkReader(collective_kernels, callers.with_launches)
        self._callers, self._linker = callers, Linker()
        since = window.t_start_ns if window.lead_ns else None
        self._timeline, self._working = Timeline(since), Working(limits)
        self._preempted, self._own = preempted, Working(limits) if len(preempted.kernel_id) else None
        self._idling = Idling(conditions, round(1000 * settings.kernel_wait_us), since)
        self._arrivals = arrived
        self._none: tuple[pa.Table, pa.Table, pa.Table] | None = None
        self._held: list[pa.Table] = []
        self._kernels: dict[int, list[int]] = defaultdict(lambda: [0, 0])

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table, launches: LaunchCalls, until: int) -> None:
        """Take a slice's rows of all devices, each table in start order. launches: what the callers make of the calls.
        until: later rows start at or after it.
        """
        self._none = kernels.slice(0, 0), copies.slice(0, 0), api_calls.slice(0, 0)
        ran, moved = (self._cut(rows.filter(pa.array(self._inside(rows)))) for rows in (kernels, copies))
        calls = self._cut(api_calls.filter(pa.array(self._of_capture(api_calls) & self._open(api_calls))))
        work = self._reader.work(ran, moved)
        self._timeline.feed(work)
        self._count(work)
        self._link(work, launches.take(launches.capture == number_of(self._window.capture)), until)
        self._limit(ran, moved, calls, until)

    def result(self, rank: int | None) -> RankTime | None:
        """Return the device's time; None if it did nothing in the window. Call it once, after the last slice."""
        if self._none is None:
            return None
        kernels, copies, calls = self._none
        self._link(self._reader.work(kernels, copies), self._callers.calls(calls), None)
        self._limit(kernels, copies, calls, None)
        devices, work = self._timeline.devices(self._reader.devices.known), self._working.result()
        if not devices or work is None:
            return None
        (time,) = devices
        own = (self._own.result() if self._own else None) or work
        idle = self._idling.result(self._reader.devices.known, self._reader.streams.known, self._reader.names.known)
        return RankTime(time.capture, time.device_id, rank, time, idle.devices[0], own.parts_ns,
                        time.busy_ns - work.busy_ns, work.copies, work.call_ns, work.host_ns, own.told_by_ns,
                        self._most(), len(self._preempted.kernel_id), work.busy_ns - own.busy_ns)

    def _of_capture(self, rows: pa.Table) -> Flags:
        return integers(rows["capture"]) == number_of(self._window.capture)

    def _open(self, rows: pa.Table) -> Flags:
        """Return which rows reach into the window."""
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        after = (end > self._window.t_start_ns) | ((end == start) & (start == self._window.t_start_ns))
        return after & (start <= self._window.t_end_ns) & (start != NONE)

    def _inside(self, rows: pa.Table) -> Flags:
        return self._of_capture(rows) & (integers(rows["device_id"]) == self._device_id) & self._open(rows)

    def _cut(self, rows: pa.Table) -> pa.Table:
        """Return rows with the parts outside the window cut off."""
        for name, bound, function in (("t_start_ns", self._window.t_start_ns, pc.max_element_wise),
                                      ("t_end_ns", self._window.t_end_ns, pc.min_element_wise)):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), function(rows[name], pa.scalar(bound, pa.int64())))
        return rows

    def _link(self, work: WorkRows, launches: LaunchCalls, until: int | None) -> None:
        if linked := self._linker.feed(work, launches, until):
            self._idling.feed(linked, [key[1] for key in self._reader.devices.known],
                              [key[2] for key in self._callers.threads.known])

    def _count(self, work: WorkRows) -> None:
        rows = np.flatnonzero((work.kind < COPY) & (work.kind != COMMUNICATION))
        names, place = distinct.combinations(work.name[rows])
        took, count = summed(place, (work.end - work.start)[rows], len(names)), np.bincount(place, minlength=len(names))
        for (name,), executions, ns in zip(names, count.tolist(), took.tolist(), strict=True):
            total = self._kernels[name]
            total[0], total[1] = total[0] + executions, total[1] + ns

    def _most(self) -> tuple[KernelTime, ...]:
        named = [KernelTime(self._reader.names.known[name], *total) for name, total in self._kernels.items()
                 if name != NONE]
        return tuple(sorted(named, key=lambda kernel: (-kernel.ns, kernel.name))[:MOST_KERNELS])

    def _limit(self, ran: pa.Table, moved: pa.Table, calls: pa.Table, until: int | None) -> None:
        """Give the work to Working, collectives from the arrival of the last participant on; those that then start in a
        later slice wait for it."""
        whole = pa.concat_tables([*self._held, self._arrived(ran)])
        start = integers(whole["t_start_ns"])
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            whole, start = whole.take(order), start[order]
        ready = len(start) if until is None else int(np.searchsorted(start, max(until, self._window.t_start_ns + 1)))
        now, self._held = whole.slice(0, ready), [whole.slice(ready)] if ready < len(start) else []
        self._working.feed(now, moved, calls)
        if self._own:
            self._own.feed(self._usual(now), moved, calls)

    def _usual(self, ran: pa.Table) -> pa.Table:
        """Return the kernels, those that were preempted only as long as they usually take."""
        ids, kernel_id = self._preempted.kernel_id, integers(ran["kernel_id"])
        at = find_sorted(ids, kernel_id)
        start, end = integers(ran["t_start_ns"]), integers(ran["t_end_ns"])
        end = np.where(at >= 0, np.minimum(end, start + self._preempted.usual_ns[at]), end)
        place = ran.column_names.index("t_end_ns")
        return ran.set_column(place, ran.schema.field(place), pa.array(end, pa.int64()))

    def _arrived(self, ran: pa.Table) -> pa.Table:
        ids, times = self._arrivals
        if not len(ids) or not ran.num_rows:
            return ran
        at = find_sorted(ids, integers(ran["kernel_id"]))
        arrived = np.where(at >= 0, times[at], integers(ran["t_start_ns"]))
        start = np.minimum(np.maximum(integers(ran["t_start_ns"]), arrived), integers(ran["t_end_ns"]))
        place = ran.column_names.index("t_start_ns")
        return ran.set_column(place, ran.schema.field(place), pa.array(start, pa.int64()))
