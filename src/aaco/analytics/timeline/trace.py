"""Everything that one pass over a trace of devices gives: timeline, idle time, launches, queues, collectives, steps.

`Examination` is fed with slices of a session's tables in time order and keeps little of them, so a trace of any length
can be examined; `of_tables` does the same for tables in memory. What comes out is a Trace: plain values that go into
the documents of the bundle and come back from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.streaming.link_launches import CALL_COLUMNS, Callers, Linked, Linker
from aaco.analytics.streaming.stream_ids import number_of
from aaco.analytics.streaming.work import COPY, COPY_COLUMNS, KERNEL_COLUMNS, WorkReader, WorkRows, has_launches
from aaco.analytics.timeline import idle as idling
from aaco.analytics.timeline import steady_state as steady
from aaco.analytics.timeline.collectives import COLUMNS as COLLECTIVE_COLUMNS
from aaco.analytics.timeline.collectives import CollectiveCollector, Collectives
from aaco.analytics.timeline.idle import Idle, IdleConditions, Idling
from aaco.analytics.timeline.launches import LaunchCounter, LaunchStatistics
from aaco.analytics.timeline.queues import Queue, Queues
from aaco.analytics.timeline.steady_state import MARKER_COLUMNS, Marked, Sequences, SteadyState
from aaco.analytics.timeline.timeline import DeviceTime, Timeline
from aaco.core import documents as declared
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.errors import BadBundle
from aaco.core.inputs import refuse_dispatches
from aaco.core.readings import Absent, known
from aaco.tracelake import layout

PARTS = ("timeline", "idle", "launches", "queues", "steady_state")  # documents that every examination writes
REDO = "aaco analyze SESSION  # examines it again"
# The columns that are read, by table; and tables that are taken whole, which are small.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": KERNEL_COLUMNS, "copies": COPY_COLUMNS, "api_calls": tuple(dict.fromkeys(CALL_COLUMNS + MARKER_COLUMNS))}
WHOLE: Mapping[str, tuple[str, ...]] = {
    "collectives": COLLECTIVE_COLUMNS, "gpu_events": ("t_ns", "device_id", "throttle_reasons", "source"),
    "system_events": ("t_ns", "dur_ns", "kind", "thread_id", "tier")}
NO_GPU = "no GPU kernels: every kernel of this session ran on the host CPU"
NO_WORK = "no device work: the session's kernels have no times that can be placed"


class ShortKernels(Struct, frozen=True):
    """Kernels shorter than a launch: how many, and their time; below_ns is the threshold."""

    below_ns: int
    count: int
    ns: int


@declared.document(layout.TRACE["timeline"], version=1)
class DeviceTimelines(Struct, frozen=True):
    """timeline.json: what each device did, and the kernels of no device or time."""

    devices: tuple[DeviceTime, ...]
    short_kernels: ShortKernels
    left_out: int
    host_kernels: int


@declared.document(layout.TRACE["queues"], version=1)
class StreamQueues(Struct, frozen=True):
    """queues.json: the launches that waited on each stream."""

    streams: tuple[Queue, ...]


class DeviceTrace(Struct, frozen=True):
    """What devices did. devices is never empty; left_out: rows without times that can be placed; host_kernels:
    kernels that ran on no device."""

    devices: tuple[DeviceTime, ...]
    short: ShortKernels
    left_out: int
    host_kernels: int
    idle: Idle
    launches: LaunchStatistics
    queues: tuple[Queue, ...]
    collectives: Collectives | None
    blocks: SteadyState

    def sum(self, name: str) -> int:
        """Return a duration or count of all devices together."""
        return sum(int(getattr(device, name)) for device in self.devices)

    def documents(self) -> dict[str, dict[str, Any]]:
        """Return the content of each part's document: timeline, idle, launches, queues, collectives, steady_state."""
        parts = {"timeline": DeviceTimelines(self.devices, self.short, self.left_out, self.host_kernels),
                 "idle": self.idle, "launches": self.launches, "queues": StreamQueues(self.queues),
                 "steady_state": self.blocks, **({"collectives": self.collectives} if self.collectives else {})}
        return {name: declared.encode(part) for name, part in parts.items()}

    @classmethod
    def of(cls, documents: Mapping[str, Mapping[str, Any]]) -> DeviceTrace:
        """Return the trace that these documents were made of. Raise BadBundle if they are not as this version writes
        them."""
        try:
            return cls._of(documents)
        except TypeError as error:
            raise BadBundle(f"metrics/timeline.json or a file with it is not as this version writes it: {error}",
                            REDO) from error

    @classmethod
    def _of(cls, documents: Mapping[str, Mapping[str, Any]]) -> DeviceTrace:
        for name in PARTS:
            if name not in documents:
                raise BadBundle(f"metrics/{name}.json: missing, though other parts of the examination are there", REDO)
        timeline = declared.decode(documents["timeline"], DeviceTimelines)
        joined = documents.get("collectives")
        trace = cls(timeline.devices, timeline.short_kernels, timeline.left_out, timeline.host_kernels,
                    declared.decode(documents["idle"], Idle), declared.decode(documents["launches"], LaunchStatistics),
                    declared.decode(documents["queues"], StreamQueues).streams,
                    declared.decode(joined, Collectives) if joined else None,
                    declared.decode(documents["steady_state"], SteadyState))
        trace._refuse_gaps()
        return trace

    def _refuse_gaps(self) -> None:
        """Raise TypeError if a part misses what readers need."""
        for lane in (*self.idle.devices, *self.idle.streams):
            if missing := idling.CAUSES - lane.causes.keys() or set(idling.WHY_UNKNOWN.values()) - lane.unknown.keys():
                raise TypeError(f"idle: no {', '.join(sorted(missing))}")
        if not self.devices or len(self.idle.devices) != len(self.devices):
            raise TypeError("idle and timeline have other devices")
        collectives = self.collectives
        if collectives and any(not 0 <= late.straggler < len(collectives.participants) for late in collectives.latest):
            raise TypeError("collectives: a straggler that took no part")


class Examination:
    """One pass over a trace."""

    def __init__(self, settings: Analysis, collectives: pa.Table | None = None,
                 conditions: IdleConditions | None = None,
                 ranks: Mapping[int, int] | None = None, with_launches: bool = False) -> None:
        """with_launches: whether the work has launch_id."""
        self._gathering = CollectiveCollector(collectives) if collectives is not None and collectives.num_rows else None
        self._lanes = WorkReader(self._gathering.kernel_ids if self._gathering else None, with_launches)
        self._callers, self._linker = Callers(with_launches), Linker()
        self._timeline, self._launching, self._queues = Timeline(), LaunchCounter(), Queues()
        self._idling = Idling(conditions, round(1000 * settings.kernel_wait_us))
        self._sequences, self._marked = Sequences(), Marked(self._callers.names)
        self._ranks = ranks or {}
        self._short = ShortKernels(round(1000 * settings.microkernel_us), 0, 0)

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table, until: int | None) -> None:
        """Take the rows that start next, each table in start order, with COLUMNS. until: later rows start at or after
        it; None: there are none."""
        work = self._lanes.work(kernels, copies)
        self._timeline.feed(work)
        self._sequences.feed(work)
        self._count_short(work)
        if self._gathering:
            self._gathering.feed(work)
        self._marked.markers(api_calls)
        linked = self._linker.feed(work, self._callers.calls(api_calls), until)
        if linked:
            self._linked(linked)

    def _linked(self, linked: Linked) -> None:
        self._idling.feed(linked, [key[1] for key in self._lanes.devices.known],
                          [key[2] for key in self._callers.threads.known])
        self._launching.feed(linked)
        self._queues.feed(linked)
        self._marked.feed(linked)

    def _count_short(self, work: WorkRows) -> None:
        length = (work.end - work.start)[work.kind < COPY]
        short = length[length < self._short.below_ns]
        self._short = ShortKernels(self._short.below_ns, self._short.count + len(short),
                                   self._short.ns + int(short.sum()))

    def result(self) -> DeviceTrace | None:
        """Return the trace; None if no device did anything. Call it once, after the last slice."""
        nothing = self._lanes.work(*(tables.ALL[name].build().select(columns) for name, columns in COLUMNS.items()
                                     if name != "api_calls"))
        remaining = self._linker.feed(nothing, self._callers.calls(tables.API_CALLS.build()), None)
        if remaining:
            self._linked(remaining)
        self._linker = Linker()  # nothing more comes: what it remembers makes room for what the whole takes
        lanes = self._lanes
        devices = self._timeline.devices(lanes.devices.known)
        if not devices:
            return None
        return DeviceTrace(
            devices, self._short, lanes.left_out, lanes.host_kernels,
            self._idling.result(lanes.devices.known, lanes.streams.known, lanes.names.known),
            self._launching.result(self._callers.names.known, lanes.names.known),
            self._queues.result(lanes.streams.known),
            self._gathering.result(lanes.devices.known, self._ranks) if self._gathering else None,
            steady.steady_state(self._sequences, self._marked, lanes.streams.known, lanes.names.known))


def trace(kernels: pa.Table, settings: Analysis, copies: pa.Table | None = None, api_calls: pa.Table | None = None,
          collectives: pa.Table | None = None, system_events: pa.Table | None = None,
          gpu_events: pa.Table | None = None) -> DeviceTrace:
    """Return what the devices did, from tables in memory. Raise Absent if none did anything."""
    if kernels["device_id"].null_count == kernels.num_rows:
        refuse_dispatches(kernels)
        raise Absent(NO_GPU)
    ranks = _ranks(kernels) if "rank" in kernels.column_names else {}
    examination = Examination(settings, collectives, idling.conditions(system_events, gpu_events), ranks,
                              has_launches(kernels, copies))
    streamed = {"kernels": kernels, "copies": copies, "api_calls": api_calls}
    rows = {name: _in_order(tables.ALL[name].build() if table is None else table) for name, table in streamed.items()}
    examination.feed(rows["kernels"], rows["copies"], rows["api_calls"], None)
    whole_trace = examination.result()
    if whole_trace is None:
        raise Absent(NO_WORK)
    return whole_trace


def of_tables(session_tables: Mapping[str, pa.Table], settings: Analysis) -> DeviceTrace | None:
    """Return what the devices did, from a session's tables by name; None if none did anything."""
    if "kernels" not in session_tables:
        return None
    trace_tables = {name: session_tables[name] for name in (*COLUMNS, *WHOLE) if name in session_tables}
    return known(trace, settings=settings, **trace_tables)


def _in_order(rows: pa.Table) -> pa.Table:
    start = rows["t_start_ns"].to_numpy()
    return rows if (start[1:] >= start[:-1]).all() else rows.sort_by("t_start_ns")


def _ranks(kernels: pa.Table) -> dict[int, int]:
    ranked = kernels.filter(pc.is_valid(kernels["rank"])).group_by("capture").aggregate([("rank", "min")])
    return {number_of(capture): rank
            for capture, rank in zip(ranked["capture"].to_pylist(), ranked["rank_min"].to_pylist(), strict=True)}
