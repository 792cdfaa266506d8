"""What metrics read: the session's tables, and the few views of them that several metrics share.

Each function here is an input name; its parameters are tables or other inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.readings import Absent

RUN = "model_run"


@dataclass(frozen=True)
class Window:
    """The profiled window: its measured kernels, inferences and wall time."""

    kernels: pa.Table
    inferences: int
    wall_ns: int
    run_ns: NDArray[np.int64]


def latencies_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Latency of every measured inference, in order."""
    return _phase(inference_iters, "measurement")


def warmup_ms(inference_iters: pa.Table) -> NDArray[np.float64]:
    """Latency of every warm-up inference, in order."""
    return _phase(inference_iters, "warmup")


def window(kernels: pa.Table, api_calls: pa.Table) -> Window:
    """The kernels that belong to a measured inference, and the wall time of the runs that hold them."""
    measured = kernels.filter(pc.is_valid(kernels["iteration"]))
    if not measured.num_rows:
        raise Absent("no kernel belongs to a measured inference")
    runs = api_calls.filter(pc.equal(api_calls["name"], RUN))
    first = pc.min(measured["t_start_ns"]).as_py()
    held = runs.filter(pc.greater(runs["t_end_ns"], first))
    inferences = pc.count_distinct(measured["iteration"]).as_py()
    if held.num_rows != inferences:
        raise Absent(f"{held.num_rows} runs hold the kernels of {inferences} inferences")
    run_ns = held["dur_ns"].to_numpy()
    return Window(measured, inferences, int(run_ns.sum()), run_ns)


def execution_window(window: Window) -> Window:
    """The window, if its kernels' times are those of the work itself."""
    chosen = window.kernels.filter(pc.equal(window.kernels["timed"].cast(pa.string()), "dispatch"))
    if chosen.num_rows:
        names = ", ".join(sorted(filter(None, pc.unique(chosen["provider"].cast(pa.string())).to_pylist())))
        raise Absent(f"on {names} the profile times the host's dispatch of a node, not the device's work")
    return window


def gpu_window(window: Window) -> Window:
    """The window's kernels that ran on a GPU."""
    on_device = window.kernels.filter(pc.is_valid(window.kernels["device_id"]))
    if not on_device.num_rows:
        execution_window(window)
        raise Absent("no GPU kernels: every kernel of this session ran on the host CPU")
    return Window(on_device, window.inferences, window.wall_ns, window.run_ns)


def measured_events(system_events: pa.Table, inference_iters: pa.Table) -> pa.Table:
    """The operating-system events while inferences were measured: loading and warm-up of each process left out."""
    chosen = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement"))
    spans = chosen.group_by("process").aggregate([("t_start_ns", "min"), ("t_end_ns", "max")])
    at = system_events["t_ns"].to_numpy()
    inside = np.zeros(len(at), bool)
    for first, last in zip(spans["t_start_ns_min"].to_pylist(), spans["t_end_ns_max"].to_pylist(), strict=True):
        inside |= (at > first) & (at <= last)
    return system_events.filter(pa.array(inside))


def union_ns(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Length of the union of half-open intervals, in ns."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    gaps = np.maximum(0, start[1:] - reach[:-1]).sum()
    return int(reach[-1] - start[0] - gaps) if len(start) else 0


def _phase(inference_iters: pa.Table, phase: str) -> NDArray[np.float64]:
    chosen = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), phase))
    if not chosen.num_rows:
        raise Absent(f"no {phase} iterations were recorded")
    return np.asarray(chosen["latency_ms"].to_numpy())


VIEWS = {view.__name__: view for view in (
    latencies_ms, warmup_ms, window, execution_window, gpu_window, measured_events)}
