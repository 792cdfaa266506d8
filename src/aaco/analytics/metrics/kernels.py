"""How the work reaches the hardware: kernel counts, lengths, gaps and partitions, from the profiled pass."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.inputs import Window, union_ns
from aaco.core.config import Analysis
from aaco.core.readings import Absent
from aaco.core.registry import metric

METHODS = "METHODS section 1"


@metric(unit="1", better="lower", formula="kernels of the window / inferences of the window", source=METHODS)
def kernels_per_inference(window: Window) -> float:
    """Kernel executions that one inference takes."""
    return window.kernels.num_rows / window.inferences


@metric(unit="ratio", better="lower", formula="kernels per inference / executed graph nodes", source=METHODS,
        aliases=("KAR",), bands=("<=1.2 excellent", "<=2 good", "<=5 investigate", ">5 severe"))
def kernel_amplification_ratio(kernels_per_inference: float, executed_nodes: pa.Table) -> float:
    """Kernels launched per node of the graph the runtime executes after its own optimisation."""
    return kernels_per_inference / executed_nodes.num_rows


@metric(unit="ratio", better="lower", formula="kernels per inference / source graph nodes", source=METHODS)
def source_amplification_ratio(kernels_per_inference: float, graph_nodes: pa.Table) -> float:
    """Kernels per node of the graph as the user wrote it; below 1 means the runtime fused nodes."""
    return kernels_per_inference / graph_nodes.num_rows


@metric(unit="ratio", better="higher", formula="union of GPU kernel intervals / wall time of the window",
        source=METHODS,
        bands=(">=0.9 device-bound", ">=0.7 host overhead visible", "<0.7 host-limited"))
def gpu_active_ratio(gpu_window: Window) -> float:
    """Share of the window in which at least one kernel ran on the GPU. Low means host-limited, no more than that."""
    return _union(gpu_window) / gpu_window.wall_ns


@metric(unit="ratio", better="higher", formula="sum of GPU kernel times / their union", source=METHODS)
def gpu_concurrency(gpu_window: Window) -> float:
    """Kernels running at once, averaged over the time at least one runs."""
    return pc.sum(gpu_window.kernels["dur_ns"]).as_py() / _union(gpu_window)


@metric(unit="us", better="none", formula="sum of kernel times / kernels", source=METHODS)
def kernel_mean_us(execution_window: Window) -> float:
    """Mean length of a kernel."""
    return pc.mean(execution_window.kernels["dur_ns"]).as_py() / 1000


@metric(unit="pct", better="lower", formula="100 x kernels shorter than analysis.microkernel_us / kernels",
        source=METHODS,
        bands=("<10 healthy", "<=30 acceptable", "<=50 concern", ">50 severe"))
def microkernel_pct(execution_window: Window, settings: Analysis) -> float:
    """Share of executions too short to hide their own launch; counted per execution, never from averages."""
    return 100 * float(_is_micro(execution_window, settings).mean())


@metric(unit="pct", better="lower", formula="100 x time in kernels shorter than analysis.microkernel_us / kernel time",
        source=METHODS)
def microkernel_time_pct(execution_window: Window, settings: Analysis) -> float:
    """Share of kernel time spent in executions too short to hide their own launch."""
    duration = execution_window.kernels["dur_ns"].to_numpy()
    if not duration.sum():
        raise Absent("every kernel is shorter than the profile's resolution")
    return 100 * float(duration[_is_micro(execution_window, settings)].sum() / duration.sum())


@metric(unit="1/s", better="lower", formula="kernels of the window / wall time of the window", source=METHODS)
def launch_rate_hz(window: Window) -> float:
    """Kernels launched per second of the window."""
    return 1e9 * window.kernels.num_rows / window.wall_ns


@metric(unit="pct", better="lower", formula="100 x sum of min(gap, calibrated launch latency) / wall time",
        source=METHODS,
        aliases=("LTS",), bands=("<5 healthy", "<=20 warning", ">20 critical"))
def launch_tax_pct(gpu_window: Window, machine: dict[str, float]) -> float:
    """Share of the window in which the device idles because the next kernel is still being launched."""
    if "launch_latency_ns" not in machine:
        raise Absent("this machine's launch latency has not been calibrated")
    start, end = _intervals(gpu_window)
    reach = np.maximum.accumulate(end)
    gaps = np.maximum(0, start[1:] - reach[:-1])
    return 100 * float(np.minimum(gaps, machine["launch_latency_ns"]).sum()) / gpu_window.wall_ns


@metric(unit="1", better="lower", formula="microkernel share x launch rate / 1000", source="the mission's README",
        bands=("<0.3 healthy", "<=0.7 warning", ">0.7 critical"))
def launch_tax_score(gpu_window: Window, microkernel_pct: float, launch_rate_hz: float) -> float:
    """The mission's launch tax: many short kernels at a high rate. Its bands were set for GPUs."""
    return microkernel_pct / 100 * launch_rate_hz / 1000


@metric(unit="ratio", better="higher", formula="union of kernel intervals / wall time of the runs that hold them",
        source="closure of the profiled pass")
def closure_ratio(window: Window) -> float:
    """Share of the runs' wall time that the recorded kernels explain; the rest is the runtime's own."""
    return _union(window) / window.wall_ns


@metric(unit="pct", better="lower", formula="100 x (1 - closure)", source="closure of the profiled pass",
        bands=("<5 healthy", "<=20 warning", ">20 critical"))
def dispatch_overhead_pct(closure_ratio: float) -> float:
    """Time inside the runs but outside every kernel: executor, allocation, and the profiler's own cost."""
    return 100 * (1 - closure_ratio)


@metric(unit="pct", better="lower", formula="100 x (median profiled run / median clean latency - 1)",
        source="two passes in separate processes")
def profiling_overhead_pct(window: Window, latency_p50_ms: float) -> float:
    """How much slower the profiled pass ran than the clean one; run-to-run noise is part of it."""
    return 100 * (float(np.median(window.run_ns)) / 1e6 / latency_p50_ms - 1)


@metric(unit="ratio", better="lower", formula="1 - sum over partitions of (nodes in it / nodes)^2", source=METHODS,
        aliases=("PFI",), bands=("<=0 one partition", "<0.5 split", ">=0.5 fragmented"))
def partition_fragmentation(graph_nodes: pa.Table) -> float:
    """How the graph is cut up between execution providers: 0 is one partition, towards 1 many."""
    counts = pc.value_counts(pc.drop_null(graph_nodes["partition"])).field("counts").to_numpy()
    if not len(counts):
        raise Absent("the runtime did not report which provider takes which node")
    share = counts / counts.sum()
    return max(0.0, 1 - float((share**2).sum()))


@metric(unit="1", better="lower", formula="graph edges whose two nodes are on different providers", source=METHODS)
def ep_transitions(graph_nodes: pa.Table, graph_edges: pa.Table) -> float:
    """Tensors handed from one execution provider to another."""
    provider = dict(zip(graph_nodes["node_id"].to_pylist(), graph_nodes["provider"].to_pylist(), strict=True))
    if not any(provider.values()):
        raise Absent("the runtime did not report which provider takes which node")
    ends = zip(graph_edges["src_node"].to_pylist(), graph_edges["dst_node"].to_pylist(), strict=True)
    pairs = ((provider.get(source), provider.get(target)) for source, target in ends)
    return float(sum(1 for source, target in pairs if source and target and source != target))


@metric(unit="1", better="lower", formula="executed nodes that copy between devices", source=METHODS)
def memcpy_nodes(executed_nodes: pa.Table) -> float:
    """Copies between host and device that the runtime inserted into the graph."""
    return float(pc.sum(pc.starts_with(executed_nodes["op_type"].cast(pa.string()), "Memcpy")).as_py() or 0)


@metric(unit="pct", better="higher", formula="100 x kernel time shared out to graph nodes / kernel time of the capture",
        source="time is conserved: attributed + unattributed = total, in ns")
def attributed_pct(op_to_kernel_map: pa.Table) -> float:
    """Share of the capture's kernel time that is traced to nodes of the source graph."""
    total = pc.sum(op_to_kernel_map["share_ns"]).as_py()
    if not total:
        raise Absent("every kernel is shorter than the profile's resolution")
    known = op_to_kernel_map.filter(pc.is_valid(op_to_kernel_map["node_id"]))
    return 100 * (pc.sum(known["share_ns"]).as_py() or 0) / total


def _union(window: Window) -> int:
    return union_ns(*_intervals(window))


def _intervals(window: Window) -> tuple[np.ndarray, np.ndarray]:
    kernels = window.kernels.sort_by("t_start_ns")
    return kernels["t_start_ns"].to_numpy(), kernels["t_end_ns"].to_numpy()


def _is_micro(window: Window, settings: Analysis) -> np.ndarray:
    return window.kernels["dur_ns"].to_numpy() < 1000 * settings.microkernel_us
