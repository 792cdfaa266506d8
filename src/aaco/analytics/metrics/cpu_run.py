"""Where the clean inferences of a run on CPUs spent their wall time: what bottleneck rules read of it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from aaco.analytics.bottleneck.cpu_budget import CONTENDED, NODES, CpuBudget, CpuNode, CpuRun, Part, work_ns
from aaco.analytics.fusion.fusion import opportunities, steps_of
from aaco.analytics.roofline.nodes import BANDWIDTH, PEAK
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

SOURCE = "docs/concepts/diagnosis.md"


@metric(unit="pct", better="none", formula="100 x time in nodes whose arithmetic needs longer than their bytes / wall",
        source=SOURCE)
def node_compute_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences in nodes on the compute side of this machine's roofs."""
    return _share(cpu_budget, "compute")


@metric(unit="pct", better="none", formula="100 x time in nodes whose bytes need longer than their arithmetic / wall",
        source=SOURCE)
def node_memory_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences in nodes that pass over memory, caches included."""
    return _share(cpu_budget, "memory")


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x time in nodes of which neither work nor family tells the side / wall")
def node_unplaced_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences in nodes with no evidence of what limits them."""
    return _share(cpu_budget, "unplaced")


@metric(unit="pct", better="lower", source=SOURCE, bands=("<5 healthy", "<=20 warning", ">20 critical"),
        formula="100 x (a quiet clean inference - the work of its nodes) x inferences / wall")
def runtime_overhead_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences that the runtime takes to run its nodes: dispatch, allocation, checks of shapes."""
    return _share(cpu_budget, "overhead")


@metric(unit="pct", better="lower", source=SOURCE, bands=("<5 healthy", "<=20 warning", ">20 critical"),
        formula="100 x (handing out work, waiting for the pool, waiting for a CPU that an own thread has) / wall")
def thread_wait_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences that the run's own threads cost: imbalance, hand-over, more threads than CPUs."""
    return _share(cpu_budget, "threads")


@metric(unit="pct", better="lower", source=SOURCE, bands=("<5 quiet", "<=20 disturbed", ">20 contended"),
        formula="100 x (waits for a CPU that others have + steal + quota throttling) / wall")
def contended_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences that others took: processes, the hypervisor, a quota of the control group."""
    return _share(cpu_budget, *CONTENDED)


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x time in which a quota kept threads from running, while the main one was off its CPU / wall")
def quota_pct(cpu_budget: CpuBudget, cpu_run: CpuRun) -> Estimate:
    """Share of the clean inferences that the CPU quota of the run's control group took."""
    if all(times.throttled_ns is None for times in cpu_run.clean):
        raise Absent("no control group of the run reports a quota")
    return _share(cpu_budget, "quota")


@metric(unit="pct", better="lower", formula="100 x time that no record explains / wall", source=SOURCE)
def unexplained_pct(cpu_budget: CpuBudget) -> Estimate:
    """Share of the clean inferences that neither nodes, overhead, threads nor others explain."""
    return _share(cpu_budget, "unexplained")


@metric(unit="ratio", better="none", formula="threads that worked or waited for work / CPUs that the run may use",
        source=SOURCE, bands=("<=1 fits", ">1 over-subscribed"))
def threads_per_cpu(cpu_run: CpuRun) -> float:
    """How many threads of the run share a CPU: above 1 they wait for each other."""
    return max(times.active / max(1, times.cpus) for times in cpu_run.clean)


@metric(unit="pct", better="lower", source="docs/concepts/diagnosis.md",
        formula="share of nodes on the compute side x fp32's part of their time x (1 - measured fp32 roof / int8 roof)")
def int8_saving_pct(cpu_budget: CpuBudget, roofline: pa.Table, machine: Mapping[str, float]) -> float:
    """Share of the clean inferences that fp32 products could save at most if they computed in 8-bit integers."""
    if "int8_flops" not in machine or PEAK not in machine:
        raise Absent("this machine's int8 and fp32 ceilings have not both been measured (aaco calibrate)")
    rows = [row for row in roofline.to_pylist() if row["bound"] == "compute"]
    share = sum(row["time_ns"] for row in rows if row["dtype"] == "float32") / sum(row["time_ns"] for row in rows)
    return cpu_budget.pct("compute") * share * max(0.0, 1 - machine[PEAK] / machine["int8_flops"])


@metric(unit="1", better="lower", formula="levels of graph optimisation beyond the run's own", source=SOURCE)
def graph_levels_left(cpu_run: CpuRun) -> float:
    """How many levels of graph optimisation the run did not use; with none left there is nothing to raise."""
    if cpu_run.levels_left is None:
        raise Absent("the level of graph optimisation was not recorded")
    return float(cpu_run.levels_left)


@metric(unit="ratio", better="none", formula="1 if the model takes other batches, else 0", source=SOURCE)
def batch_is_free(cpu_run: CpuRun) -> float:
    """Whether the model's first dimension can be another."""
    if cpu_run.batch_fixed is None:
        raise Absent("whether the model fixes its batch was not recorded")
    return float(not cpu_run.batch_fixed)


@metric(unit="pct", better="lower", source="docs/concepts/diagnosis.md; Chen et al., TVM, 2018, section 3",
        formula="100 x (time of tensors between nodes that could be one, at most the nodes' own, + the overhead of the "
        "nodes that go) / wall")
def node_fusible_pct(cpu_budget: CpuBudget, cpu_nodes: tuple[CpuNode, ...], executed_nodes: pa.Table,
                     graph_nodes: pa.Table, graph_edges: pa.Table, machine: Mapping[str, float]) -> float:
    """Share of the clean inferences that joining nodes could save at most."""
    work = work_ns(cpu_nodes)
    own_ns = {node.name: node_work for node, node_work in zip(cpu_nodes, work, strict=True)}
    joined = opportunities(steps_of(executed_nodes, graph_nodes, graph_edges, own_ns), machine.get(BANDWIDTH))
    saved = sum(fusion.saved_ns or 0.0 for fusion in joined) / sum(work)
    gone = sum(len(fusion.steps) - 1 for fusion in joined) / len(cpu_nodes)
    return min(1.0, saved) * cpu_budget.pct(*NODES) + min(1.0, gone) * cpu_budget.pct("overhead")


def _share(budget: CpuBudget, *parts: Part) -> Estimate:
    return Estimate(budget.pct(*parts), method=budget.told_by)
