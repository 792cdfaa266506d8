"""What of each capture is judged, the time of each rank in it, and which rank is late.

Two passes over a session's tables: one for how far captures reach and when ranks arrive at collectives, one for the
time of each device inside its window. The second is left out where the one device's whole work is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.bottleneck import ranks, work
from aaco.analytics.bottleneck.rank_pass import RankPass
from aaco.analytics.kernels import kernel_groups
from aaco.analytics.streaming import communication
from aaco.analytics.streaming.link_launches import Callers
from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, integers, number_of, or_none
from aaco.analytics.timeline import collectives, lone_waits, preempted, stragglers
from aaco.analytics.timeline import windows as judged
from aaco.analytics.timeline.arrivals import Arrivals
from aaco.analytics.timeline.arrivals import arrivals as arrivals_of
from aaco.analytics.timeline.lone_waits import LoneWaits
from aaco.analytics.timeline.preempted import LONGER_NS, NONE_PREEMPTED, PreemptedKernels
from aaco.analytics.timeline.trace import COLUMNS, DeviceTrace
from aaco.core import distinct
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COLLECTIVES, KERNEL_GROUPS, KERNELS
from aaco.steps.findings import device_work
from aaco.steps.findings import trace as trace_finding
from aaco.tracelake import documents, layout, queries, store

READ: Mapping[str, tuple[str, ...]] = {
    name: tuple(dict.fromkeys(COLUMNS[name] + work.COLUMNS[name])) for name in COLUMNS}
NUMBERS = ("kernel_id", "device_id", "t_start_ns", "t_end_ns", "capture", "grid_x", "grid_y", "grid_z")
EXTENT: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_name", *NUMBERS),
    "copies": ("kind", "t_start_ns", "t_end_ns", "capture"), "api_calls": ("name", "t_start_ns", "t_end_ns", "capture")}
LAUNCHES = ("kernel_id", "kernel_name", "device_id", "t_start_ns", "t_end_ns", "grid_x", "grid_y", "grid_z", "capture")


class _FirstPass(Struct, frozen=True):
    """How far captures reach; the kernels of collectives by id, sorted; the waits in them, with the devices by their
    numbers in those; waits of collectives without a recorded partner; by kernel name the ns of first collectives that
    waited for a rank that was not there yet; and of each device (capture, device) how many other kernels are so long
    that another process may have stopped them."""

    extents: dict[int, judged.CaptureExtent]
    collective_ids: Ints
    arrivals: Arrivals | None
    devices: list[tuple[int, ...]]
    lone: LoneWaits
    skew_ns: Mapping[str, int]
    long_kernels: Mapping[tuple[int, int], int]

    def arrived(self) -> tuple[Ints, Ints]:
        """Return the kernels of collectives that waited, sorted, and when the last participant arrived on their own
        device's clock, which is not that of the arrivals."""
        ids, times = self.lone.kernel_id, self.lone.arrived
        if self.arrivals is not None:
            ids = np.append(ids, self.arrivals.kernel_id)
            times = np.append(times, self.arrivals.own_start + self.arrivals.wait)
        order = np.argsort(ids)
        return ids[order], times[order]

    def starts(self) -> dict[int, tuple[int, int]]:
        """Return by capture start and end of the first collectives that waited for a rank that was not there yet."""
        spans: dict[int, tuple[int, int]] = {}
        for number, (start, end) in self.lone.first.items():
            capture = self.devices[number][0]
            before = spans.get(capture, (start, end))
            spans[capture] = min(start, before[0]), max(end, before[1])
        return spans


@finding(reads=(layout.CAPTURES,), after=("trace", "device_work", "kernel_groups", "kernel_classes"),
         writes=("windows", KERNEL_GROUPS, "kernel_classes", "device_work"), report="windows")
def windows(session: Session, settings: Analysis) -> Results:
    """The steady state that is judged, the time of each rank in it, and which rank the others wait for."""
    parts = documents.read_held(session, layout.TRACE)
    if not parts:
        return
    first = _first_pass(session)
    if session_windows := _judge(session, settings, DeviceTrace.of(parts), first):
        yield "windows", encode(session_windows)
    if first.skew_ns:
        yield from _with_skew(session, first.skew_ns)


def _with_skew(session: Session, skew_ns: Mapping[str, int]) -> Results:
    """Yield what was found of the session's kernels before, with the waits of first collectives, ns by kernel name."""
    if store.holds(session, KERNEL_GROUPS):
        yield KERNEL_GROUPS, kernel_groups.with_skew(store.read(session, KERNEL_GROUPS), skew_ns)
    if classes := documents.read(session, layout.finding("kernel_classes")):
        kernels = [kernel | {"skew_ns": skew_ns.get(kernel["kernel_name"])} for kernel in classes["kernels"]]
        yield "kernel_classes", classes | {"kernels": kernels}
    if done := documents.read(session, layout.finding("device_work")):
        yield "device_work", done | {"skew_ns": sum(skew_ns.values())}


def _judge(session: Session, settings: Analysis, trace: DeviceTrace, first: _FirstPass) -> ranks.Windows | None:
    """Return the windows of a session; None where they hold no work of a device. Raise BadBundle."""
    captures, arrivals = judged.choose(trace, first.extents, first.starts()), first.arrivals
    rank_by_capture = trace_finding.ranks_of(session)
    named = {or_none(capture): rank for capture, rank in rank_by_capture.items()}
    who_waits = stragglers.stragglers(arrivals, [(or_none(capture), device) for capture, device in first.devices],
                                      named) if arrivals else None
    stopped = _preempted(session, captures, first)
    is_as_recorded = not stopped and not len(first.lone.kernel_id)
    times = ((_unchanged(session, trace, captures, rank_by_capture) if is_as_recorded else []) or
             _second_pass(session, settings, trace, captures, first, stopped, rank_by_capture))
    return ranks.windows(trace, captures, times, who_waits) if times else None


def _first_pass(session: Session) -> _FirstPass:
    rows = list(queries.batches(session, COLLECTIVES, collectives.COLUMNS))
    table = pa.Table.from_batches(rows) if rows else COLLECTIVES.build().select(collectives.COLUMNS)
    ids, devices, extents = np.sort(integers(table["kernel_id"])), TupleIds(), judged.Extents()
    names, communicates = NameIds(), np.zeros(0, bool)
    columns: list[Ints] = []
    long_kernels: Counter[tuple[int, int]] = Counter()
    for piece in queries.slices(session, EXTENT):
        kernels, copies, calls = (piece.tables[name] for name in EXTENT)
        extents.feed(kernels, copies, calls)
        column = {name: integers(kernels[name]) for name in NUMBERS}
        name = names.numbers(kernels["kernel_name"])
        communicates = np.append(communicates, communication.flags(names.known[len(communicates):]))
        collective = np.isin(column["kernel_id"], ids)
        long = ~collective & (column["t_end_ns"] - column["t_start_ns"] >= LONGER_NS)
        long_kernels.update(zip(column["capture"][long].tolist(), column["device_id"][long].tolist(), strict=True))
        mine = collective | np.append(communicates, False)[np.where(name == NONE, -1, name)]
        mine &= (column["t_end_ns"] >= column["t_start_ns"])
        mine &= (column["t_start_ns"] != NONE) & (column["device_id"] != NONE)
        device = devices.numbers(column["capture"][mine], column["device_id"][mine])
        columns.append(np.stack([device, name[mine], *(column[number][mine] for number in NUMBERS)]))
    device, name, kernel_id, _, start, end, _, *grid = np.concatenate(columns or [np.zeros((10, 0), np.int64)], axis=1)
    named = np.isin(kernel_id, ids)
    arrivals = arrivals_of(table, kernel_id[named], start[named], end[named], device[named], devices.known
                           ) if named.any() else None
    lone = ~np.isin(kernel_id, arrivals.kernel_id) if arrivals else np.ones(len(kernel_id), bool)
    kind = [column[lone] for column in (name, *grid, *_messages(table, kernel_id))]
    waits = lone_waits.find(kernel_id[lone], start[lone], end[lone], device[lone], kind)
    skew_ns: Counter[str] = Counter()
    for row, _ in lone_waits.start_skews(start, end - start, device).values():
        if name[row] != NONE:
            skew_ns[names.known[name[row]]] += int(end[row] - start[row])
    return _FirstPass(extents.result(), ids, arrivals, devices.known, waits, skew_ns, long_kernels)


def _messages(table: pa.Table, kernel_id: Ints) -> list[Ints]:
    """Return the bytes in and out of the collectives of these kernels, NONE where they are not known."""
    order = np.argsort(integers(table["kernel_id"]))
    ids = np.append(integers(table["kernel_id"])[order], np.iinfo(np.int64).max)
    at = np.searchsorted(ids, kernel_id)
    return [np.where(ids[at] == kernel_id, np.append(integers(table[name])[order], NONE)[at], NONE)
            for name in ("bytes_in", "bytes_out")]


def _preempted(session: Session, captures: Sequence[judged.CaptureWindow], first: _FirstPass
               ) -> dict[tuple[int, int], PreemptedKernels]:
    """Return the kernels of each device, as (capture, device), that another process stopped; devices without are not
    in it. Reads the kernels only if enough of them are long."""
    windows_by_capture = {number_of(window.capture): window for window in captures}
    suspects = {device: windows_by_capture[device[0]] for device, count in first.long_kernels.items()
                if count >= preempted.FEWEST and device[0] in windows_by_capture}
    suspects = {device: window for device, window in suspects.items() if window.steps >= preempted.FEWEST_STEPS}
    if not suspects:
        return {}
    names, numbers = NameIds(), [name for name in LAUNCHES if name != "kernel_name"]
    parts = [(names.numbers(rows["kernel_name"]), *(integers(rows[name]) for name in numbers))
             for rows in queries.batches(session, KERNELS, LAUNCHES)]
    launched, kernel_id, device, start, end, *grid, capture = map(np.concatenate, zip(*parts, strict=True))
    collective = np.isin(kernel_id, first.collective_ids)
    launch, _ = distinct.coded(launched, *grid)
    stopped = {}
    for key, window in suspects.items():
        rows = np.flatnonzero((capture == key[0]) & (device == key[1]) & ~collective & (end >= start)
                              & (start >= window.t_start_ns) & (start <= window.t_end_ns))
        rows = rows[np.argsort(start[rows], kind="stable")]
        stopped[key] = preempted.find(kernel_id[rows], launch[rows], (end - start)[rows], window.steps)
    return {key: kernels for key, kernels in stopped.items() if len(kernels.kernel_id)}


def _unchanged(session: Session, trace: DeviceTrace, captures: tuple[judged.CaptureWindow, ...],
               rank_by_capture: Mapping[int, int]) -> list[ranks.RankTime]:
    """Return the time of the one device of a session if all its work is judged, as other findings say it."""
    (device, *others), (lane, *_), done = trace.devices, trace.idle.devices, documents.decoded(session, work.DeviceWork)
    if others or not done or (device.t_start_ns, device.t_end_ns) != (captures[0].t_start_ns, captures[0].t_end_ns):
        return []
    rank = rank_by_capture.get(number_of(device.capture))
    return [ranks.RankTime(device.capture, device.device_id, rank, device, lane, done.parts_ns, 0, done.copies,
                           done.call_ns, done.host_ns, done.told_by_ns, ())]


def _second_pass(session: Session, settings: Analysis, trace: DeviceTrace, captures: tuple[judged.CaptureWindow, ...],
                 first: _FirstPass, stopped: Mapping[tuple[int, int], PreemptedKernels],
                 rank_by_capture: Mapping[int, int]) -> list[ranks.RankTime]:
    """Return the time of each device in its capture's window, in the order of the trace's devices."""
    window_by_capture = {window.capture: window for window in captures}
    arrived = first.arrived()
    conditions = trace_finding.conditions_of(session)
    limits = device_work.limits_of(session)
    callers = Callers(queries.has_launches(session))
    passes = [RankPass(window_by_capture[device.capture], device.device_id, settings, conditions, first.collective_ids,
                       arrived, callers, limits,
                       stopped.get((number_of(device.capture), device.device_id), NONE_PREEMPTED))
              for device in trace.devices]
    for piece in queries.slices(session, READ):
        kernels, copies, calls = (piece.tables[name] for name in READ)
        launches = callers.calls(calls)
        for rank_pass in passes:
            rank_pass.feed(kernels, copies, calls, launches, piece.end_ns)
    times = [rank_pass.result(rank_by_capture.get(number_of(device.capture)))
             for rank_pass, device in zip(passes, trace.devices, strict=True)]
    return [time for time in times if time is not None]
