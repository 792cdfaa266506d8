"""The inputs of metrics: the session's tables, and the views of them that several metrics share.

Each function here is an input name; its parameters are tables or other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core.readings import Absent
from aaco.core.tables import OF_INFERENCES, sampled, started_in

OF_THE_HOST = "the profile times the host's dispatch of a node, not the device's work"
RUN = "model_run"


class Window(Struct, frozen=True):
    """The profiled window: its measured kernels, inferences and wall time."""

    kernels: pa.Table
    inferences: int
    wall_ns: int
    run_ns: NDArray[np.int64]


def latencies_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Return the latency of every measured inference that counts, in order, ms."""
    return _phase(inference_iters, "measurement")


def all_latencies_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Return the latency of every measured inference, also of those that do not count, ms."""
    measurements = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement"))
    if not measurements.num_rows:
        raise Absent("no measurement iterations were recorded")
    return np.asarray(measurements["latency_ms"].to_numpy())


def warmup_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Return the latency of every warm-up inference, in order, ms."""
    return _phase(inference_iters, "warmup")


def process_medians_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Return the median of each process's measured latencies, in the order of the processes, ms."""
    iterations = counted(inference_iters, "measurement")
    process, latency = pc.fill_null(iterations["process"], -1).to_numpy(), iterations["latency_ms"].to_numpy()
    return np.array([np.median(latency[process == index]) for index in np.unique(process)])


def longest_run_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Return the measured latencies that count, in order, of the process that made most of them, ms."""
    iterations = counted(inference_iters, "measurement")
    process = pc.fill_null(iterations["process"], -1).to_numpy()
    processes, counts = np.unique(process, return_counts=True)
    return np.asarray(iterations["latency_ms"].to_numpy()[process == processes[counts.argmax()]])


def measured(kernels: pa.Table) -> pa.Table:
    """Return the kernels that belong to a measured inference and have a time."""
    return kernels.filter(_all_valid(kernels, ("iteration", "t_start_ns", "dur_ns")))


def window(kernels: pa.Table, api_calls: pa.Table) -> Window:
    """Return the kernels of measured inferences and the wall time of the runs that hold them. Raise Absent."""
    in_inferences = measured(kernels)
    if not in_inferences.num_rows:
        raise Absent("no kernel belongs to a measured inference")
    runs = api_calls.filter(pc.and_kleene(pc.equal(api_calls["name"], RUN), _all_valid(api_calls, ("dur_ns",))))
    first = pc.min(in_inferences["t_start_ns"]).as_py()
    covering = runs.filter(pc.greater(runs["t_end_ns"], first))
    inferences = pc.count_distinct(in_inferences["iteration"]).as_py()
    if covering.num_rows != inferences:
        raise Absent(f"{covering.num_rows} runs hold the kernels of {inferences} inferences")
    run_ns = covering["dur_ns"].to_numpy()
    if run_ns.sum() <= 0:
        raise Absent("no time passed in the runs that hold the kernels")
    return Window(in_inferences, inferences, int(run_ns.sum()), run_ns)


class KernelsAlone(Struct, frozen=True):
    """Measured inferences of a pass that recorded only kernels: the union of the kernels' times, and the wall time."""

    union_ns: int
    wall_ns: int


def inside_runs(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the tables cut to the time from the first measured inference's begin to the last one's end.

    Set-up and warm-up are no part of what a device does in inferences. Work of an inference stays, though clocks differ
    at its ends.
    """
    runs = tables["api_calls"].filter(pc.equal(tables["api_calls"]["name"].cast(pa.string()), RUN))
    begin, end = pc.min(runs["t_start_ns"]).as_py(), pc.max(runs["t_end_ns"]).as_py()
    return {**tables, **{name: started_in(tables[name], begin, end) for name in OF_INFERENCES if name in tables}}


def execution_window(window: Window) -> Window:
    """Return the window if its kernels' times are those of the work itself. Raise Absent."""
    refuse_dispatches(window.kernels)
    return window


def refuse_dispatches(kernels: pa.Table) -> None:
    """Raise Absent if any of the kernels is the host's dispatch of work, not the work."""
    dispatches = kernels.filter(pc.equal(kernels["timed"].cast(pa.string()), "dispatch"))
    if dispatches.num_rows:
        names = ", ".join(sorted(filter(None, pc.unique(dispatches["provider"].cast(pa.string())).to_pylist())))
        raise Absent(f"on {names} {OF_THE_HOST}")


def gpu_window(window: Window) -> Window:
    """Return the window's kernels that ran on a GPU. Raise Absent if there are none."""
    on_device = window.kernels.filter(pc.is_valid(window.kernels["device_id"]))
    if not on_device.num_rows:
        execution_window(window)
        raise Absent("no GPU kernels: every kernel of this session ran on the host CPU")
    return Window(on_device, window.inferences, window.wall_ns, window.run_ns)


class MeasuredSpans(Struct, frozen=True):
    """From the first measured inference of each process to its last: starts and ends, ns."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def wall_ns(self) -> int:
        """Their total length."""
        return int((self.end - self.start).sum())


def measured_spans(inference_iters: pa.Table) -> MeasuredSpans:
    """Return when inferences were measured, without loading and warm-up of each process."""
    measurements = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement"))
    spans = measurements.group_by("process").aggregate([("t_start_ns", "min"), ("t_end_ns", "max")])
    return MeasuredSpans(spans["t_start_ns_min"].to_numpy(), spans["t_end_ns_max"].to_numpy())


def phase_ns(rows: pa.Table, phase: str | None, began: int) -> tuple[int, int]:
    """Return begin and end of a phase of one process's inferences. phase None: of loading, since `began`."""
    if phase is None:
        return began, int(pc.min(rows["t_start_ns"]).as_py())
    iterations = rows.filter(pc.equal(rows["phase"].cast(pa.string()), phase))
    if not iterations.num_rows:
        return 0, 0
    return int(pc.min(iterations["t_start_ns"]).as_py()), int(pc.max(iterations["t_end_ns"]).as_py())


def measured_events(system_events: pa.Table, measured_spans: MeasuredSpans) -> pa.Table:
    """Return the sampled operating-system events (T1) while inferences were measured.

    A sample counts the interval before it, so only those that begin in the measured time are included.
    """
    samples = sampled(system_events)
    at = samples["t_ns"].to_numpy()
    began = at - _intervals_ns(samples)
    inside = np.zeros(len(at), bool)
    for first, last in zip(measured_spans.start, measured_spans.end, strict=True):
        inside |= (began >= first) & (at <= last)
    return samples.filter(pa.array(inside))


def peak_rss_bytes(system_events: pa.Table | None) -> int | None:
    """Return the largest resident set of a measured process; None if it was not recorded."""
    if system_events is None:
        return None
    peaks = system_events.filter(pc.equal(system_events["kind"].cast(pa.string()), "rss_peak"))
    highest = pc.max(peaks["value"]).as_py()
    return int(highest) if highest else None


def _intervals_ns(system_events: pa.Table) -> NDArray[np.int64]:
    """Return the interval length of each event, from the `sample` event of the same time; 0 if there is none."""
    at = system_events["t_ns"].to_numpy()
    samples = system_events.filter(pc.equal(system_events["kind"].cast(pa.string()), "sample")).sort_by("t_ns")
    if not samples.num_rows:
        return np.zeros(len(at), np.int64)
    moments, lengths = samples["t_ns"].to_numpy(), pc.fill_null(samples["dur_ns"], 0).to_numpy()
    place = np.minimum(np.searchsorted(moments, at), len(moments) - 1)
    return np.where(moments[place] == at, lengths[place], 0)


def _all_valid(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """Return for each row whether it has a value in all of the columns."""
    return reduce(pc.and_, (pc.is_valid(table[name]) for name in columns))


def union_ns(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Return the length of the union of half-open intervals, ns."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    gaps = np.maximum(0, start[1:] - reach[:-1]).sum()
    return int(reach[-1] - start[0] - gaps) if len(start) else 0


def _phase(inference_iters: pa.Table, phase: str) -> NDArray[np.float64]:
    return np.asarray(counted(inference_iters, phase)["latency_ms"].to_numpy())


def counted(inference_iters: pa.Table, phase: str) -> pa.Table:
    """Return the iterations that statistics use: all, or the clean ones with --noise discard or repeat. Raise
    Absent.
    """
    iterations = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), phase))
    if not iterations.num_rows:
        raise Absent(f"no {phase} iterations were recorded")
    clean = iterations.filter(pc.fill_null(iterations["counted"], True))
    if not clean.num_rows:
        raise Absent(f"none of {iterations.num_rows} {phase} iterations is clean, and only those were to count")
    return clean


VIEWS = {view.__name__: view for view in (
    latencies_ms, warmup_ms, process_medians_ms, longest_run_ms,
    window, execution_window, gpu_window, measured_spans, measured_events)}
