"""How the work reaches the hardware: kernel counts, lengths, gaps and partitions, from the profiled pass or a trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.kernels.fallback import fallen_back
from aaco.analytics.timeline.launch_tax import score
from aaco.core import statistics
from aaco.core.inputs import KernelsAlone, Window, process_medians_ms, union_ns
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

if TYPE_CHECKING:  # a policy over a fleet needs the names of these metrics, and none of their inputs
    from aaco.analytics.bottleneck.judged import GpuTime
    from aaco.analytics.timeline.activity import Activity

SOURCE = "AACO's own definition"


@metric(unit="1", better="lower", formula="kernels of the window / inferences of the window", source=SOURCE)
def kernels_per_inference(window: Window) -> float:
    """Kernel executions that one inference takes."""
    return window.kernels.num_rows / window.inferences


@metric(unit="ratio", better="lower", formula="kernels per inference / executed graph nodes", source=SOURCE,
        aliases=("KAR",), bands=("<=1.2 excellent", "<=2 good", "<=5 investigate", ">5 severe"))
def kernel_amplification_ratio(kernels_per_inference: float, executed_nodes: pa.Table) -> float:
    """Kernels launched per node of the graph the runtime executes after its own optimisation.

    Absent where a provider compiled subgraphs: their nodes are unknown.
    """
    several = pc.greater(pc.list_value_length(executed_nodes["source_nodes"]), 1)
    if compiled := executed_nodes.filter(pc.and_(several, pc.is_null(executed_nodes["domain"]))).num_rows:
        raise Absent(f"{compiled} of {executed_nodes.num_rows} executed nodes are compiled subgraphs, and their own "
                     "nodes are not known: see source_amplification_ratio")
    return kernels_per_inference / executed_nodes.num_rows


@metric(unit="ratio", better="lower", formula="kernels per inference / source graph nodes", source=SOURCE)
def source_amplification_ratio(kernels_per_inference: float, graph_nodes: pa.Table) -> float:
    """Kernels per node of the graph as the user wrote it; below 1 means the runtime fused nodes."""
    return kernels_per_inference / graph_nodes.num_rows


@metric(unit="ratio", better="higher", source=SOURCE,
        formula="union of GPU kernel intervals / wall time of the window (the pass of kernels alone has both, if made)",
        bands=(">=0.9 device-bound", ">=0.7 host overhead visible", "<0.7 host-limited"))
def gpu_active_ratio(gpu_time: GpuTime, kernels_alone: KernelsAlone | None = None) -> Estimate:
    """Share of the window in which at least one kernel ran on the GPU. Low means host-limited, no more than that."""
    if kernels_alone:
        return Estimate(kernels_alone.union_ns / kernels_alone.wall_ns)
    return Estimate(gpu_time.union_ns / gpu_time.wall_ns, method=gpu_time.judged)


@metric(unit="ratio", better="higher", formula="sum of GPU kernel times / their union", source=SOURCE)
def gpu_concurrency(gpu_time: GpuTime) -> float:
    """Kernels running at once, averaged over the time at least one runs."""
    if not gpu_time.union_ns:
        raise Absent("every kernel is shorter than the profile's resolution")
    return gpu_time.kernel_ns / gpu_time.union_ns


@metric(unit="us", better="none", formula="sum of kernel times / kernels", source=SOURCE)
def kernel_mean_us(execution_activity: Activity) -> float:
    """Mean length of a kernel."""
    return execution_activity.kernel_ns / execution_activity.kernels / 1000


@metric(unit="pct", better="lower", formula="100 x kernels shorter than analysis.microkernel_us / kernels",
        source=SOURCE,
        bands=("<10 healthy", "<=30 acceptable", "<=50 concern", ">50 severe"))
def microkernel_pct(execution_activity: Activity) -> float:
    """Share of executions too short to hide their own launch; counted per execution, never from averages."""
    return 100 * execution_activity.short / execution_activity.kernels


@metric(unit="pct", better="lower", formula="100 x time in kernels shorter than analysis.microkernel_us / kernel time",
        source=SOURCE)
def microkernel_time_pct(execution_activity: Activity) -> float:
    """Share of kernel time spent in executions too short to hide their own launch."""
    if not execution_activity.kernel_ns:
        raise Absent("every kernel is shorter than the profile's resolution")
    return 100 * execution_activity.short_ns / execution_activity.kernel_ns


@metric(unit="1/s", better="lower", formula="kernels of the window / wall time of the window", source=SOURCE)
def launch_rate_hz(activity: Activity) -> float:
    """Kernels launched per second of the window."""
    return 1e9 * activity.kernels / activity.wall_ns


@metric(unit="pct", better="lower", formula="100 x idle time for the host, in gaps shorter than a pause (250 us) / "
        "wall; without a host trace, 100 x sum of min(gap, calibrated launch latency) / wall time", source=SOURCE,
        aliases=("LTS",), bands=("<5 healthy", "<=20 warning", ">20 critical"))
def launch_tax_pct(launching: Estimate) -> Estimate:
    """Share of the wall in which a device waits for a host that launches as fast as it can."""
    return launching


@metric(unit="1", better="lower", formula="microkernel share x launch rate / 1000", source=SOURCE,
        bands=("<0.3 healthy", "<=0.7 warning", ">0.7 critical"))
def launch_tax_score(gpu_time: GpuTime, microkernel_pct: float, launch_rate_hz: float) -> float:
    """AACO's launch tax: many short kernels at a high rate. Its bands were set for GPUs."""
    return score(microkernel_pct / 100, launch_rate_hz)


@metric(unit="ratio", better="higher", formula="union of kernel intervals / wall time of the runs that hold them (the "
        "pass of kernels alone has both, if made)",
        source="node-time coverage of the profiled pass")
def closure_ratio(window: Window, kernels_alone: KernelsAlone | None = None) -> float:
    """Share of the runs' wall time that the recorded kernels explain; the rest is the runtime's own."""
    if kernels_alone:
        return kernels_alone.union_ns / kernels_alone.wall_ns
    return _union(window) / window.wall_ns


@metric(unit="pct", better="lower", source="profile of ONNX Runtime: the provider of each node",
        formula="100 x time of nodes on providers of the CPU, in a session with a device's provider / wall time of the "
        "runs that hold them")
def cpu_node_pct(window: Window) -> float:
    """Share of the runs' wall time in nodes that run on the CPU, because the device's provider does not take them."""
    ran = fallen_back(window.kernels)
    return 100 * union_ns(ran["t_start_ns"].to_numpy(), ran["t_end_ns"].to_numpy()) / window.wall_ns


@metric(unit="pct", better="lower", formula="100 x (1 - node-time coverage)",
        source="node-time coverage of the profiled pass", bands=("<5 healthy", "<=20 warning", ">20 critical"))
def dispatch_overhead_pct(closure_ratio: float) -> float:
    """Time inside the runs but outside every kernel: executor, allocation, and the profiler's own cost."""
    return 100 * (1 - closure_ratio)


@metric(unit="pct", better="lower", formula="100 x (median profiled run / median clean latency - 1); interval: from "
        "those of both medians (MOVER) and, of several clean processes, from how much those differ",
        source="two passes in separate processes")
def profiling_overhead_pct(window: Window, latencies_ms: NDArray[np.float64], inference_iters: pa.Table) -> Estimate:
    """How much slower the profiled pass ran than the clean one; run-to-run noise is part of it.

    With one clean process the interval is that of these very inferences: how much processes differ is not known.
    """
    ratio = _ratio_of_medians(window.run_ns / 1e6, latencies_ms, _process_spread(inference_iters))
    low, high = (None if end is None else 100 * (end - 1) for end in (ratio.low, ratio.high))
    return Estimate(100 * (ratio.value - 1), low, high)


@metric(unit="ratio", better="none", formula="median clean latency / median profiled run; interval: as of "
        "profiling_overhead_pct", source="two passes in separate processes")
def profiling_correction_ratio(window: Window, latencies_ms: NDArray[np.float64], inference_iters: pa.Table
                               ) -> Estimate:
    """What to multiply a profiled node's time by to have its time in the clean run, if profiling slows all nodes alike.

    It does so for long nodes; short ones carry more of the profiler's cost than this takes off them.
    """
    return _ratio_of_medians(latencies_ms, window.run_ns / 1e6, _process_spread(inference_iters))


def _process_spread(inference_iters: pa.Table) -> float:
    """Return how far the logarithm of one more process's median may be from the mean of those measured, at 95 %: a
    prediction interval by Student's t. 0 for one process, of which nothing is known."""
    medians = np.log(process_medians_ms(inference_iters))
    if len(medians) < 2:
        return 0.0
    return statistics.t_quantile(0.975, len(medians) - 1) * float(medians.std(ddof=1)) * math.sqrt(1 + 1 / len(medians))


def _ratio_of_medians(above: NDArray[np.float64], below: NDArray[np.float64], spread: float = 0.0) -> Estimate:
    """Return the ratio with an interval from those of both medians (MOVER on logarithms: Donner and Zou 2012).

    spread: half an interval of the logarithm that comes from elsewhere.
    """
    over, under = (statistics.quantile(sample, 0.5) for sample in (above, below))
    value = over.value / under.value
    if not (over.low and over.high and under.low and under.high):
        return Estimate(value)
    down = math.hypot(math.log(over.value / over.low), math.log(under.high / under.value), spread)
    up = math.hypot(math.log(over.high / over.value), math.log(under.value / under.low), spread)
    return Estimate(value, value * math.exp(-down), value * math.exp(up))


@metric(unit="1", better="lower", formula="0.4 x microkernel_pct + 0.3 x (100 - min(kernel_mean_us, 100)) + min(10 x "
        "kernel_amplification_ratio, 30)", source=SOURCE, aliases=("FUSION",),
        bands=("<20 low", "<50 moderate", ">=50 high"))
def fragmentation_score(microkernel_pct: float, kernel_mean_us: float, kernel_amplification_ratio: float) -> float:
    """AACO's score of how much a graph would gain from fusing its kernels, 0 to 100.

    It counts kernels, not time: what short kernels cost is `microkernel_time_pct`, what launching them costs
    `launch_tax_pct`.
    """
    return (0.4 * microkernel_pct + 0.3 * (100 - min(kernel_mean_us, 100.0))
            + min(10 * kernel_amplification_ratio, 30.0))


@metric(unit="ratio", better="lower", formula="1 - sum over partitions of (nodes in it / nodes)^2", source=SOURCE,
        aliases=("PFI",), bands=("<=0 one partition", "<0.5 split", ">=0.5 fragmented"))
def partition_fragmentation(graph_nodes: pa.Table) -> float:
    """How the graph is cut up between execution providers: 0 is one partition, towards 1 many."""
    counts = pc.value_counts(pc.drop_null(graph_nodes["partition"])).field("counts").to_numpy()
    if not len(counts):
        raise Absent("the runtime did not report which provider takes which node")
    share = counts / counts.sum()
    return max(0.0, 1 - float((share**2).sum()))


@metric(unit="1", better="lower", formula="graph edges whose two nodes are on different providers", source=SOURCE)
def ep_transitions(graph_nodes: pa.Table, graph_edges: pa.Table) -> float:
    """Tensors handed from one execution provider to another."""
    provider = dict(zip(graph_nodes["node_id"].to_pylist(), graph_nodes["provider"].to_pylist(), strict=True))
    if not any(provider.values()):
        raise Absent("the runtime did not report which provider takes which node")
    ends = zip(graph_edges["src_node"].to_pylist(), graph_edges["dst_node"].to_pylist(), strict=True)
    pairs = ((provider.get(source), provider.get(target)) for source, target in ends)
    return float(sum(1 for source, target in pairs if source and target and source != target))


@metric(unit="1", better="lower", formula="executed nodes that copy between devices", source=SOURCE)
def memcpy_nodes(executed_nodes: pa.Table) -> float:
    """Copies between host and device that the runtime inserted into the graph."""
    return float(pc.sum(pc.starts_with(executed_nodes["op_type"].cast(pa.string()), "Memcpy")).as_py() or 0)


@metric(unit="pct", better="higher", formula="100 x kernel time with an operator / kernel time of the capture",
        source="time is conserved: attributed + unattributed = total, in ns")
def attributed_pct(operators: pa.Table) -> float:
    """Share of the kernel time that is traced to nodes of the source graph, or to a framework's operators."""
    total = pc.sum(operators["device_ns"]).as_py()
    if not total:
        raise Absent("every kernel is shorter than the profile's resolution")
    known = operators.filter(pc.is_valid(operators["operator"]))
    return 100 * (pc.sum(known["device_ns"]).as_py() or 0) / total


@metric(unit="pct", better="lower", formula="100 x kernel time of forward operators computed again on the way back / "
        "kernel time of operators", source="docs/concepts/attribution.md")
def recomputed_pct(operators: pa.Table) -> float:
    """What activation checkpointing costs: the share of kernel time that computes again what was dropped before."""
    known = operators.filter(pc.is_valid(operators["phase"]))
    total = pc.sum(known["device_ns"]).as_py()
    if not total:
        raise Absent("the trace has no way back: nothing is computed again")
    again = known.filter(pc.equal(known["phase"].cast(pa.string()), "recompute"))
    return 100 * (pc.sum(again["device_ns"]).as_py() or 0) / total


def _union(window: Window) -> int:
    kernels = window.kernels.sort_by("t_start_ns")
    return union_ns(kernels["t_start_ns"].to_numpy(), kernels["t_end_ns"].to_numpy())
