"""What of each capture is judged, the time of each rank in it, and which rank is late.

Two passes over a session's tables: one for how far captures reach and when ranks arrive at collectives, one for the
time of each device inside its window. The second is left out where the one device's whole work is judged.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from aaco.analytics.bottleneck import ranks, work
from aaco.analytics.bottleneck.rank_pass import RankPass
from aaco.analytics.streaming.stream_ids import NONE, TupleIds, integers, number_of, or_none
from aaco.analytics.timeline import collectives, stragglers
from aaco.analytics.timeline import windows as judged
from aaco.analytics.timeline.arrivals import Arrivals
from aaco.analytics.timeline.arrivals import arrivals as arrivals_of
from aaco.analytics.timeline.trace import COLUMNS, DeviceTrace
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COLLECTIVES
from aaco.steps.findings import device_work
from aaco.steps.findings import trace as trace_finding
from aaco.tracelake import documents, layout, queries

READ: Mapping[str, tuple[str, ...]] = {
    name: tuple(dict.fromkeys(COLUMNS[name] + work.COLUMNS[name])) for name in COLUMNS}
EXTENT: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_id", "device_id", "t_start_ns", "t_end_ns", "capture"),
    "copies": ("kind", "t_start_ns", "t_end_ns", "capture"), "api_calls": ("name", "t_start_ns", "t_end_ns", "capture")}


@finding(reads=(layout.CAPTURES,), after=("trace", "device_work"), report="windows")
def windows(session: Session, settings: Analysis) -> Results:
    """The steady state that is judged, the time of each rank in it, and which rank the others wait for."""
    if session_windows := find(session, settings):
        yield "windows", session_windows.document()


def find(session: Session, settings: Analysis) -> ranks.Windows | None:
    """Return the windows of a session; None where it holds no work of a device. Raise BadBundle."""
    parts = documents.read_held(session, layout.TRACE)
    if not parts:
        return None
    trace = DeviceTrace.of(parts)
    extents, arrivals, devices = _first_pass(session)
    captures = judged.choose(trace, extents)
    rank_by_capture = trace_finding.ranks_of(session)
    named = {or_none(capture): rank for capture, rank in rank_by_capture.items()}
    who_waits = stragglers.stragglers(arrivals, [(or_none(capture), device) for capture, device in devices],
                                      named) if arrivals else None
    times = (_unchanged(session, trace, captures, rank_by_capture) or
             _second_pass(session, settings, trace, captures, arrivals, rank_by_capture))
    return ranks.windows(trace, captures, times, who_waits) if times else None


def _first_pass(session: Session) -> tuple[dict[int, judged.CaptureExtent], Arrivals | None, list[tuple[int, ...]]]:
    """Return how far each capture reaches, and the waits in collectives with the devices by their numbers in that."""
    rows = list(queries.batches(session, COLLECTIVES, collectives.COLUMNS))
    table = pa.Table.from_batches(rows) if rows else COLLECTIVES.build().select(collectives.COLUMNS)
    ids, devices, extents = integers(table["kernel_id"]), TupleIds(), judged.Extents()
    times: list[tuple[Ints, Ints, Ints, Ints]] = []
    for piece in queries.slices(session, EXTENT):
        kernels, copies, calls = (piece.tables[name] for name in EXTENT)
        extents.feed(kernels, copies, calls)
        column = {name: integers(kernels[name]) for name in EXTENT["kernels"]}
        mine = np.isin(column["kernel_id"], ids) & (column["t_end_ns"] >= column["t_start_ns"])
        mine &= (column["t_start_ns"] != NONE) & (column["device_id"] != NONE)
        device = devices.numbers(column["capture"][mine], column["device_id"][mine])
        times.append((column["kernel_id"][mine], column["t_start_ns"][mine], column["t_end_ns"][mine], device))
    if not len(ids) or not times:
        return extents.result(), None, []
    kernel_id, start, end, device = (np.concatenate(column) for column in zip(*times, strict=True))
    arrivals = arrivals_of(table, kernel_id, start, end, device, devices.known) if len(kernel_id) else None
    return extents.result(), arrivals, devices.known


def _unchanged(session: Session, trace: DeviceTrace, captures: tuple[judged.CaptureWindow, ...],
               rank_by_capture: Mapping[int, int]) -> list[ranks.RankTime]:
    """Return the time of the one device of a session if all its work is judged, as other findings say it."""
    (device, *others), (lane, *_), document = trace.devices, trace.idle.devices, documents.read(
        session, layout.finding("device_work"))
    if others or not document or (device.t_start_ns, device.t_end_ns) != (captures[0].t_start_ns, captures[0].t_end_ns):
        return []
    done = work.DeviceWork.of(document)
    rank = rank_by_capture.get(number_of(device.capture))
    return [ranks.RankTime(device.capture, device.device_id, rank, device, lane, done.parts_ns, 0, done.copies,
                           done.call_ns, done.host_ns, done.told_by_ns, ())]


def _second_pass(session: Session, settings: Analysis, trace: DeviceTrace, captures: tuple[judged.CaptureWindow, ...],
                 arrivals: Arrivals | None, rank_by_capture: Mapping[int, int]) -> list[ranks.RankTime]:
    """Return the time of each device in its capture's window, in the order of the trace's devices."""
    window_by_capture = {window.capture: window for window in captures}
    ids, arrived = _arrived(session, arrivals)
    conditions = trace_finding.conditions_of(session)
    limits = device_work.limits_of(session)
    passes = [RankPass(window_by_capture[device.capture], device.device_id, settings, conditions, ids, arrived, limits)
              for device in trace.devices]
    for piece in queries.slices(session, READ):
        kernels, copies, calls = (piece.tables[name] for name in READ)
        for rank_pass in passes:
            rank_pass.feed(kernels, copies, calls, piece.end_ns)
    times = [rank_pass.result(rank_by_capture.get(number_of(device.capture)))
             for rank_pass, device in zip(passes, trace.devices, strict=True)]
    return [time for time in times if time is not None]


def _arrived(session: Session, arrivals: Arrivals | None) -> tuple[Ints, tuple[Ints, Ints]]:
    """Return the kernels of all collectives, sorted; and those that waited, with when the last participant arrived on
    their own device's clock, which is not that of the arrivals."""
    batches = [integers(batch["kernel_id"]) for batch in queries.batches(session, COLLECTIVES, ("kernel_id",))]
    ids = np.sort(np.concatenate(batches)) if batches else np.zeros(0, np.int64)
    if arrivals is None:
        return ids, (np.zeros(0, np.int64), np.zeros(0, np.int64))
    order = np.argsort(arrivals.kernel_id)
    return ids, (arrivals.kernel_id[order], (arrivals.own_start + arrivals.wait)[order])
