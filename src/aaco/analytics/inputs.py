"""What metrics read: the session's tables, and the few views of them that several metrics share.

Each function here is an input name; its parameters are tables or other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics import overlap
from aaco.core.readings import Absent
from aaco.core.tables import OF_INFERENCES, started_in

RUN = "model_run"


@dataclass(frozen=True)
class Window:
    """The profiled window: its measured kernels, inferences and wall time."""

    kernels: pa.Table
    inferences: int
    wall_ns: int
    run_ns: NDArray[np.int64]


def latencies_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Latency of every measured inference that counts, in order."""
    return _phase(inference_iters, "measurement")


def all_latencies_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Latency of every measured inference, also of those that do not count."""
    chosen = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement"))
    if not chosen.num_rows:
        raise Absent("no measurement iterations were recorded")
    return np.asarray(chosen["latency_ms"].to_numpy())


def warmup_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Latency of every warm-up inference, in order."""
    return _phase(inference_iters, "warmup")


def process_medians_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """The median of each process's measured latencies, in the order of the processes."""
    chosen = counted(inference_iters, "measurement")
    process, latency = pc.fill_null(chosen["process"], -1).to_numpy(), chosen["latency_ms"].to_numpy()
    return np.array([np.median(latency[process == index]) for index in np.unique(process)])


def longest_run_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """The measured latencies that count, in order, of the process that made most of them: one uninterrupted series."""
    chosen = counted(inference_iters, "measurement")
    process = pc.fill_null(chosen["process"], -1).to_numpy()
    names, made = np.unique(process, return_counts=True)
    return np.asarray(chosen["latency_ms"].to_numpy()[process == names[made.argmax()]])


def measured(kernels: pa.Table) -> pa.Table:
    """The kernels that belong to a measured inference and whose time is known."""
    return kernels.filter(_all_valid(kernels, ("iteration", "t_start_ns", "dur_ns")))


def window(kernels: pa.Table, api_calls: pa.Table) -> Window:
    """The kernels that belong to a measured inference, and the wall time of the runs that hold them."""
    chosen = measured(kernels)
    if not chosen.num_rows:
        raise Absent("no kernel belongs to a measured inference")
    runs = api_calls.filter(pc.and_kleene(pc.equal(api_calls["name"], RUN), _all_valid(api_calls, ("dur_ns",))))
    first = pc.min(chosen["t_start_ns"]).as_py()
    held = runs.filter(pc.greater(runs["t_end_ns"], first))
    inferences = pc.count_distinct(chosen["iteration"]).as_py()
    if held.num_rows != inferences:
        raise Absent(f"{held.num_rows} runs hold the kernels of {inferences} inferences")
    run_ns = held["dur_ns"].to_numpy()
    if run_ns.sum() <= 0:
        raise Absent("no time passed in the runs that hold the kernels")
    return Window(chosen, inferences, int(run_ns.sum()), run_ns)


@dataclass(frozen=True)
class Alone:
    """Measured inferences of a pass that recorded kernels alone: the union of the kernels' times, and the wall time."""

    union_ns: int
    wall_ns: int


def inside_runs(found: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables with what happened from the first measured inference's begin to the last one's end: set-up and warm-up
    are no part of what a device does in inferences. Work of an inference stays, though clocks differ at its ends.
    """
    runs = found["api_calls"].filter(pc.equal(found["api_calls"]["name"].cast(pa.string()), RUN))
    begin, end = pc.min(runs["t_start_ns"]).as_py(), pc.max(runs["t_end_ns"]).as_py()
    return {**found, **{name: started_in(found[name], begin, end) for name in OF_INFERENCES if name in found}}


def execution_window(window: Window) -> Window:
    """The window, if its kernels' times are those of the work itself."""
    refuse_dispatches(window.kernels)
    return window


def refuse_dispatches(kernels: pa.Table) -> None:
    """Raises Absent where any of the kernels is the host's dispatch of work, not the work."""
    chosen = kernels.filter(pc.equal(kernels["timed"].cast(pa.string()), "dispatch"))
    if chosen.num_rows:
        names = ", ".join(sorted(filter(None, pc.unique(chosen["provider"].cast(pa.string())).to_pylist())))
        raise Absent(f"on {names} the profile times the host's dispatch of a node, not the device's work")


def gpu_window(window: Window) -> Window:
    """The window's kernels that ran on a GPU."""
    on_device = window.kernels.filter(pc.is_valid(window.kernels["device_id"]))
    if not on_device.num_rows:
        execution_window(window)
        raise Absent("no GPU kernels: every kernel of this session ran on the host CPU")
    return Window(on_device, window.inferences, window.wall_ns, window.run_ns)


@dataclass(frozen=True)
class Spans:
    """From the first measured inference of each process to its last: starts and ends, ns."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def wall_ns(self) -> int:
        """Their total length."""
        return int((self.end - self.start).sum())


def measured_spans(inference_iters: pa.Table) -> Spans:
    """When inferences were measured: loading and warm-up of each process left out."""
    chosen = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement"))
    spans = chosen.group_by("process").aggregate([("t_start_ns", "min"), ("t_end_ns", "max")])
    return Spans(spans["t_start_ns_min"].to_numpy(), spans["t_end_ns_max"].to_numpy())


def phase_ns(rows: pa.Table, phase: str | None, began: int) -> tuple[int, int]:
    """Begin and end of a phase of one process's inferences; of loading since `began`, where it has no name."""
    if phase is None:
        return began, int(pc.min(rows["t_start_ns"]).as_py())
    chosen = rows.filter(pc.equal(rows["phase"].cast(pa.string()), phase))
    if not chosen.num_rows:
        return 0, 0
    return int(pc.min(chosen["t_start_ns"]).as_py()), int(pc.max(chosen["t_end_ns"]).as_py())


def measured_events(system_events: pa.Table, measured_spans: Spans) -> pa.Table:
    """The sampled operating-system events (T1) while inferences were measured.

    A sample counts what happened in the interval before it, so only intervals that begin in there belong to it too.
    """
    samples = overlap.sampled(system_events)
    at = samples["t_ns"].to_numpy()
    began = at - _intervals_ns(samples)
    inside = np.zeros(len(at), bool)
    for first, last in zip(measured_spans.start, measured_spans.end, strict=True):
        inside |= (began >= first) & (at <= last)
    return samples.filter(pa.array(inside))


def peak_rss_bytes(system_events: pa.Table | None) -> int | None:
    """The largest resident set of a measured process; None where nothing watched it."""
    if system_events is None:
        return None
    peaks = system_events.filter(pc.equal(system_events["kind"].cast(pa.string()), "rss_peak"))
    highest = pc.max(peaks["value"]).as_py()
    return int(highest) if highest else None


def _intervals_ns(system_events: pa.Table) -> NDArray[np.int64]:
    """The length of the interval of each event: that of the `sample` event of its moment, 0 where there is none."""
    at = system_events["t_ns"].to_numpy()
    samples = system_events.filter(pc.equal(system_events["kind"].cast(pa.string()), "sample")).sort_by("t_ns")
    if not samples.num_rows:
        return np.zeros(len(at), np.int64)
    moments, lengths = samples["t_ns"].to_numpy(), pc.fill_null(samples["dur_ns"], 0).to_numpy()
    place = np.minimum(np.searchsorted(moments, at), len(moments) - 1)
    return np.where(moments[place] == at, lengths[place], 0)


def _all_valid(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """Of each row whether it has a value in every one of the columns."""
    return reduce(pc.and_, (pc.is_valid(table[name]) for name in columns))


def union_ns(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Length of the union of half-open intervals, in ns."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    gaps = np.maximum(0, start[1:] - reach[:-1]).sum()
    return int(reach[-1] - start[0] - gaps) if len(start) else 0


def _phase(inference_iters: pa.Table, phase: str) -> NDArray[np.float64]:
    return np.asarray(counted(inference_iters, phase)["latency_ms"].to_numpy())


def counted(inference_iters: pa.Table, phase: str) -> pa.Table:
    """The iterations of a phase that statistics rest on: all, or under --noise discard and repeat the clean ones."""
    made = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), phase))
    if not made.num_rows:
        raise Absent(f"no {phase} iterations were recorded")
    chosen = made.filter(pc.fill_null(made["counted"], True))
    if not chosen.num_rows:
        raise Absent(f"none of {made.num_rows} {phase} iterations is clean, and only those were to count")
    return chosen


VIEWS = {view.__name__: view for view in (
    latencies_ms, warmup_ms, process_medians_ms, longest_run_ms,
    window, execution_window, gpu_window, measured_spans, measured_events)}
