"""Everything that one pass over a trace of devices gives: timeline, idle time, launches, queues, collectives, steps.

`Examination` is fed with slices of a session's tables in time order and keeps little of them, so a trace of any length
can be examined; `of_tables` does the same for tables in memory. What comes out is a Trace: plain values that go into
the documents of the bundle and come back from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics import blocks as steady
from aaco.analytics import idle as idling
from aaco.analytics.blocks import MARKER_COLUMNS, Blocks, Marked, Sequences
from aaco.analytics.collectives import COLUMNS as COLLECTIVE_COLUMNS
from aaco.analytics.collectives import Collectives, Gathering
from aaco.analytics.idle import Conditions, Idle, Idling
from aaco.analytics.inputs import refuse_dispatches
from aaco.analytics.lanes import NONE
from aaco.analytics.launches import Launches, Launching
from aaco.analytics.linking import CALL_COLUMNS, Callers, Linked, Linker
from aaco.analytics.queues import Queue, Queues
from aaco.analytics.timeline import Device, Timeline
from aaco.analytics.work import COPY, COPY_COLUMNS, KERNEL_COLUMNS, Lanes, Work
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.errors import BadBundle
from aaco.core.readings import Absent

SCHEMA_VERSION = 1
PARTS = ("timeline", "idle", "launches", "queues", "steady_state")  # documents that every examination writes
ANEW = "aaco analyze SESSION  # examines it anew"
# The columns that are read, by table; and tables that are taken whole, which are small.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": KERNEL_COLUMNS, "copies": COPY_COLUMNS, "api_calls": tuple(dict.fromkeys(CALL_COLUMNS + MARKER_COLUMNS))}
WHOLE: Mapping[str, tuple[str, ...]] = {
    "collectives": COLLECTIVE_COLUMNS, "gpu_events": ("t_ns", "device_id", "throttle_reasons", "source"),
    "system_events": ("t_ns", "dur_ns", "kind", "thread_id", "tier")}
NO_GPU = "no GPU kernels: every kernel of this session ran on the host CPU"
NO_WORK = "no device work: the session's kernels have no times that can be placed"


@dataclass(frozen=True)
class Short:
    """Kernels shorter than a launch: how many, and their time; below_ns is the threshold."""

    below_ns: int
    count: int
    ns: int


@dataclass(frozen=True)
class Trace:
    """What devices did. devices is never empty; left_out: rows without times that can be placed; host_kernels:
    kernels that ran on no device."""

    devices: tuple[Device, ...]
    short: Short
    left_out: int
    host_kernels: int
    idle: Idle
    launches: Launches
    queues: tuple[Queue, ...]
    collectives: Collectives | None
    blocks: Blocks

    def sum(self, name: str) -> int:
        """A duration or count of all devices together."""
        return sum(int(getattr(device, name)) for device in self.devices)

    def documents(self) -> dict[str, dict[str, Any]]:
        """By part (timeline, idle, launches, queues, collectives, steady_state) the content of its document."""
        parts = {
            "timeline": {"devices": self.devices, "short_kernels": self.short, "left_out": self.left_out,
                         "host_kernels": self.host_kernels},
            "idle": _shallow(self.idle), "launches": _shallow(self.launches), "queues": {"streams": self.queues},
            "steady_state": _shallow(self.blocks)}
        if self.collectives:
            parts["collectives"] = _shallow(self.collectives)
        return {name: {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(part)} for name, part in parts.items()}

    @classmethod
    def of(cls, documents: Mapping[str, Mapping[str, Any]]) -> Trace:
        """The trace that these documents were made of. Raises BadBundle where they are not as this version writes them.
        """
        try:
            return cls._of(documents)
        except KeyError as error:
            raise BadBundle(f"metrics/timeline.json and its neighbours: {error.args[0]} is missing", ANEW) from error
        except (TypeError, msgspec.ValidationError) as error:
            raise BadBundle(f"metrics/timeline.json and its neighbours: not as this version writes them: {error}",
                            ANEW) from error

    @classmethod
    def _of(cls, documents: Mapping[str, Mapping[str, Any]]) -> Trace:
        for name in PARTS:
            if name not in documents:
                raise BadBundle(f"metrics/{name}.json: missing, though other parts of the examination are there", ANEW)
        timeline = documents["timeline"]
        made = {"devices": timeline["devices"], "short": timeline["short_kernels"], "left_out": timeline["left_out"],
                "host_kernels": timeline["host_kernels"], "idle": documents["idle"], "launches": documents["launches"],
                "queues": documents["queues"]["streams"], "collectives": documents.get("collectives"),
                "blocks": documents["steady_state"]}
        found: Trace = msgspec.convert(made, cls)
        found._refuse_gaps()
        return found

    def _refuse_gaps(self) -> None:
        """Raise TypeError where a part lacks what readers count on."""
        for lane in (*self.idle.devices, *self.idle.streams):
            if missing := idling.CAUSES - lane.causes.keys() or set(idling.WHY_UNKNOWN.values()) - lane.unknown.keys():
                raise TypeError(f"idle: no {', '.join(sorted(missing))}")
        if not self.devices or len(self.idle.devices) != len(self.devices):
            raise TypeError("idle and timeline have other devices")
        found = self.collectives
        if found and any(not 0 <= late.straggler < len(found.participants) for late in found.latest):
            raise TypeError("collectives: a straggler that took no part")


class Examination:
    """One pass over a trace."""

    def __init__(self, settings: Analysis, collectives: pa.Table | None = None, known: Conditions | None = None,
                 ranks: Mapping[int, int] | None = None) -> None:
        self._gathering = Gathering(collectives) if collectives is not None and collectives.num_rows else None
        self._lanes = Lanes(self._gathering.kernel_ids if self._gathering else None)
        self._callers, self._linker = Callers(), Linker()
        self._timeline, self._launching, self._queues = Timeline(), Launching(), Queues()
        self._idling = Idling(known, round(1000 * settings.kernel_wait_us))
        self._sequences, self._marked = Sequences(), Marked(self._callers.names)
        self._ranks = ranks or {}
        self._short = Short(round(1000 * settings.microkernel_us), 0, 0)

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table, until: int | None) -> None:
        """The rows that start next, each table in start order, with COLUMNS. until: later rows start at or after it;
        None: there are none."""
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

    def _count_short(self, work: Work) -> None:
        length = (work.end - work.start)[work.kind < COPY]
        short = length[length < self._short.below_ns]
        self._short = Short(self._short.below_ns, self._short.count + len(short), self._short.ns + int(short.sum()))

    def result(self) -> Trace | None:
        """The answer; None where no device did anything. To be asked once, after the last slice."""
        nothing = self._lanes.work(*(tables.ALL[name].build().select(columns) for name, columns in COLUMNS.items()
                                     if name != "api_calls"))
        rest = self._linker.feed(nothing, self._callers.calls(tables.API_CALLS.build()), None)
        if rest:
            self._linked(rest)
        lanes = self._lanes
        devices = self._timeline.devices(lanes.devices.known)
        if not devices:
            return None
        return Trace(
            devices, self._short, lanes.left_out, lanes.host_kernels,
            self._idling.result(lanes.devices.known, lanes.streams.known, lanes.names.known),
            self._launching.result(self._callers.names.known, lanes.names.known),
            self._queues.result(lanes.streams.known),
            self._gathering.result(lanes.devices.known, self._ranks) if self._gathering else None,
            steady.blocks(self._sequences, self._marked, lanes.streams.known, lanes.names.known))


def trace(kernels: pa.Table, settings: Analysis, copies: pa.Table | None = None, api_calls: pa.Table | None = None,
          collectives: pa.Table | None = None, system_events: pa.Table | None = None,
          gpu_events: pa.Table | None = None) -> Trace:
    """What the devices did, from tables in memory. Raises Absent where none did anything."""
    if kernels["device_id"].null_count == kernels.num_rows:
        refuse_dispatches(kernels)
        raise Absent(NO_GPU)
    ranks = _ranks(kernels) if "rank" in kernels.column_names else {}
    examination = Examination(settings, collectives, idling.conditions(system_events, gpu_events), ranks)
    given = {"kernels": kernels, "copies": copies, "api_calls": api_calls}
    rows = {name: _in_order(tables.ALL[name].build() if table is None else table) for name, table in given.items()}
    examination.feed(rows["kernels"], rows["copies"], rows["api_calls"], None)
    found = examination.result()
    if found is None:
        raise Absent(NO_WORK)
    return found


def of_tables(found: Mapping[str, pa.Table], settings: Analysis) -> Trace | None:
    """What the devices did, from a session's tables by name; None where none did anything."""
    if "kernels" not in found:
        return None
    given = {name: found[name] for name in (*COLUMNS, *WHOLE) if name in found}
    try:
        return trace(settings=settings, **given)
    except Absent:
        return None


def _in_order(rows: pa.Table) -> pa.Table:
    start = rows["t_start_ns"].to_numpy()
    return rows if (start[1:] >= start[:-1]).all() else rows.sort_by("t_start_ns")


def _ranks(kernels: pa.Table) -> dict[int, int]:
    known = kernels.filter(pc.is_valid(kernels["rank"])).group_by("capture").aggregate([("rank", "min")])
    return {NONE if capture is None else capture: rank
            for capture, rank in zip(known["capture"].to_pylist(), known["rank_min"].to_pylist(), strict=True)}


def _shallow(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}
