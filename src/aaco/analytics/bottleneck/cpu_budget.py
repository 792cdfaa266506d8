"""Split the wall time of a CPU run's clean inferences by what limited it. Parts sum to the wall exactly, in whole ns.

Three records are set against each other. The clean inferences give the wall, the account of the process's threads what
others took of it, and the profiled pass, another process, what each node takes. A profile stretches each node by a
fixed time (ONNX Runtime notes shapes and memory inside the node's span); the shortest node is a bound of it. What a
node takes beyond that is its work. The work of all nodes, from the median inference, is left as it is; what a quiet
clean inference took beyond it is the runtime's overhead. So the profile's own cost cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.costs import family
from aaco.analytics.roofline.limiters import Limiter, of_family
from aaco.core.documents import encode
from aaco.core.inputs import Window, execution_window
from aaco.core.readings import Absent
from aaco.tracelake.document_schemas.answers import BudgetNode, CpuTimeBudget, CpuTimes

Side = Literal["compute", "memory", "unplaced"]
Part = Literal[Side, "overhead", "threads", "other_load", "stolen", "quota", "unexplained"]
NODES: tuple[Side, ...] = ("compute", "memory", "unplaced")
CONTENDED: tuple[Part, ...] = ("other_load", "stolen", "quota")
PARTS: tuple[Part, ...] = (*NODES, "overhead", "threads", *CONTENDED, "unexplained")
FIXED_MOST_NS = 10_000  # of a node: beyond it the shortest node of a model does work
EMPTY = 0.1  # of a node's time: a short one whose roofs allow less has as good as no work
QUIET = 0.25  # quantile of the latencies without what interference cost
WORKING = 0.1  # of what the busiest thread of the pool ran: below it a thread is none of the pool
SIDES: Mapping[Limiter, Side] = {Limiter.COMPUTE: "compute", Limiter.MEMORY: "memory", Limiter.MEMORY_LATENCY: "memory"}
MOST_LISTED = 50
ON_DEVICE = "its kernels ran on a device, whose own time budget says where the time went"


class CpuNode(Struct, frozen=True):
    """An executed node: its median time in an inference, what of it is waiting for the pool, and the least time that
    the machine's roofs allow (None: not known), ns.
    """

    name: str
    op_type: str
    side: Side
    time_ns: float
    wait_ns: float
    ideal_ns: float | None


class ThreadTimes(CpuTimes):
    """What a process's threads got of the CPUs while it measured (runner.cpu_times says how it is read)."""

    @property
    def active(self) -> int:
        """Return how many threads worked or waited for work: the main one, and those of the pool."""
        return 1 + sum(ran >= WORKING * max(self.threads) > 0 for ran in self.threads)

    @property
    def foreign_share(self) -> float:
        """Return the part of the waits for a CPU that others caused; the rest is of the process's own threads, where it
        has more of them than CPUs.
        """
        surplus, others = max(0, self.active - self.cpus), self.others_busy_ns / max(1, self.span_ns)
        return others / (others + surplus) if surplus else 1.0


class CpuRun(Struct, frozen=True):
    """The accounts of the clean passes, and of the profiled one; and what the run left to try: how many levels of graph
    optimisation it did not use (None: not recorded), and whether its model takes other batches.
    """

    clean: tuple[ThreadTimes, ...]
    profiled: ThreadTimes | None = None
    levels_left: int | None = None
    batch_fixed: bool | None = None


class CpuBudget(Struct, frozen=True):
    """parts_ns: by limiter, summing to wall_ns, the wall of all measured inferences."""

    wall_ns: int
    inferences: int
    parts_ns: dict[Part, int]
    told_by: str

    def pct(self, *parts: Part) -> float:
        """Return the share of the wall that these parts take together."""
        return 100 * sum(self.parts_ns[part] for part in parts) / self.wall_ns


def cpu_nodes(window: Window, executed_nodes: pa.Table, roofline: pa.Table | None = None) -> tuple[CpuNode, ...]:
    """Return the executed nodes of a run on CPUs, those that took most first. Raise Absent if a device ran any.

    A node's side is that of the roof that needs longer for its work; where its work or its roof is not known, that of
    its operator's family.
    """
    kernels = execution_window(window).kernels
    if kernels["device_id"].null_count < kernels.num_rows:
        raise Absent(ON_DEVICE)
    columns = (executed_nodes[name].to_pylist() for name in ("name", "op_type", "domain"))
    operators = {name: (op_type, domain or "") for name, op_type, domain in zip(*columns, strict=True)}
    placed = {row["name"]: row for row in (roofline.to_pylist() if roofline is not None else ())
              if row["ideal_ns"] is not None}
    nodes = [_node(name, *operators.get(name, ("", "")), placed.get(name), *medians)
             for name, *medians in _medians(kernels, window.inferences)]
    return tuple(sorted(nodes, key=lambda node: -node.time_ns))


def cpu_budget(cpu_nodes: tuple[CpuNode, ...], inference_iters: pa.Table, cpu_run: CpuRun | None = None,
               window: Window | None = None) -> CpuBudget:
    """Return the budget of a run's measured inferences. Raise Absent without any.

    Without an account of the threads (cpu_run), what others took is the noise sentinel's estimate.
    """
    measured = inference_iters.filter(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement"))
    wall = int(pc.sum(pc.subtract(measured["t_end_ns"], measured["t_start_ns"])).as_py() or 0)
    if not wall:
        raise Absent("no measured inference took any time")
    share = _Shares(wall)
    _take_lost(share, measured, cpu_run)
    _take_work(share, cpu_nodes, measured, cpu_run, window.inferences if window else 1)
    return CpuBudget(wall, measured.num_rows, share.parts | {"unexplained": share.left},
                     "account of its threads" if cpu_run else "estimated cost of recorded interference")


class _Shares:
    """A wall of which parts are taken until nothing is left."""

    def __init__(self, wall_ns: int) -> None:
        self.wall = self.left = wall_ns
        self.parts: dict[Part, int] = dict.fromkeys(PARTS, 0)

    def take(self, part: Part, amount_ns: float) -> None:
        """Give a part as much of the amount as is left."""
        taken = min(self.left, max(0, round(amount_ns)))
        self.parts[part] += taken
        self.left -= taken


def _medians(kernels: pa.Table, inferences: int) -> list[tuple[str, float, float]]:
    """Return each node's name with the medians over inferences of its time and of its wait for the pool."""
    waits = pc.fill_null(kernels["pool_wait_ns"], 0)
    rows = pa.table({"node": kernels["executed_node"].cast(pa.string()), "iteration": kernels["iteration"],
                     "ns": kernels["dur_ns"], "wait_ns": waits})
    rows = rows.filter(pc.is_valid(rows["node"])).group_by(["node", "iteration"]).aggregate(
        [("ns", "sum"), ("wait_ns", "sum")]).sort_by("node")
    names, times, waited = (rows[name].to_numpy() for name in ("node", "ns_sum", "wait_ns_sum"))
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1])) if len(names) else np.zeros(0, np.int64)
    ends = np.append(first[1:], len(names))
    return [(str(names[low]), _median(times[low:high], inferences), _median(waited[low:high], inferences))
            for low, high in zip(first.tolist(), ends.tolist(), strict=True)]


def _median(values: np.ndarray, inferences: int) -> float:
    """Return the median over all inferences; those in which the node did not run have 0."""
    return float(np.median(np.append(values, np.zeros(max(0, inferences - len(values))))))


def _node(name: str, op_type: str, domain: str, place: Mapping[str, Any] | None, time_ns: float, wait_ns: float
          ) -> CpuNode:
    side = place["bound"] if place and place["ideal_ns"] else SIDES.get(of_family(family(op_type, domain)), "unplaced")
    return CpuNode(name, op_type, side, time_ns, min(wait_ns, time_ns), place["ideal_ns"] if place else None)


def work_ns(nodes: Sequence[CpuNode]) -> list[float]:
    """Return what each node takes beyond the fixed time of a profiled node, ns, but no less than its roofs allow.

    Of a node that is short and far from its roofs that is its least time: the rest of it is what any node takes, to a
    scatter that is as large as the work.
    """
    fixed = _fixed_ns(nodes)
    return [_work_ns(node, fixed) for node in nodes]


def _fixed_ns(nodes: Sequence[CpuNode]) -> float:
    """Return a bound of the fixed time of a profiled node, ns: that of the shortest."""
    return min([FIXED_MOST_NS, *(node.time_ns for node in nodes if node.time_ns)])


def _work_ns(node: CpuNode, fixed: float) -> float:
    least = min(node.ideal_ns or 0.0, node.time_ns)
    if node.ideal_ns is not None and node.time_ns <= FIXED_MOST_NS and least <= EMPTY * node.time_ns:
        return least
    return max(node.time_ns - fixed, least)


def _take_lost(share: _Shares, measured: pa.Table, run: CpuRun | None) -> None:
    """Take what the main thread lost: to quotas, to the hypervisor, and to others while it waited for a CPU."""
    if run is None:
        share.take("other_load", _estimated_loss(measured))
        return
    for times, inside in _inside(share.wall, run):
        waited = inside * times.main_waited_ns
        slept = max(0.0, inside * times.span_ns - inside * times.main_ran_ns - waited)
        quota = min(inside * (times.throttled_ns or 0), waited + slept)
        waited = max(0.0, waited - max(0.0, quota - slept))
        share.take("quota", quota)
        share.take("stolen", inside * times.stolen_ns / max(1, times.cpus))
        share.take("other_load", waited * times.foreign_share)
        share.take("threads", waited * (1 - times.foreign_share))


def _inside(wall_ns: int, run: CpuRun) -> list[tuple[ThreadTimes, float]]:
    """Return the clean passes, each with the part of its span that passed in inferences."""
    span = sum(times.span_ns for times in run.clean)
    return [(times, min(1.0, wall_ns / max(1, span))) for times in run.clean]


def _estimated_loss(measured: pa.Table) -> float:
    """Return what interference cost the inferences by the sentinel's estimate, ns."""
    latency = pc.subtract(measured["t_end_ns"], measured["t_start_ns"]).to_numpy()
    impact = pc.fill_null(measured["noise_impact_pct"], 0.0).to_numpy()
    return float((latency - latency / (1 + impact / 100)).sum())


def _take_work(share: _Shares, nodes: Sequence[CpuNode], measured: pa.Table, run: CpuRun | None, profiled: int
               ) -> None:
    """Take the nodes' work and waits, the runtime's overhead, then what the pool's threads waited for a CPU.

    Where less is left than work and overhead need, as beside other load, both are cut in proportion.
    """
    count, work = measured.num_rows, work_ns(nodes)
    waits = [min(node.wait_ns, node_work) for node, node_work in zip(nodes, work, strict=True)]
    overhead = min(_overhead_ns(measured, sum(work)), len(nodes) * _fixed_ns(nodes))
    fits = min(1.0, share.left / max(1.0, count * (sum(work) + overhead)))
    for part in NODES:
        share.take(part, fits * count * sum(node_work - wait for node, node_work, wait in
                                            zip(nodes, work, waits, strict=True) if node.side == part))
    waited = fits * count * sum(waits)
    lent = min(waited, _pool_waits_of_others(run, count / profiled)) if run else 0.0
    share.take("other_load", lent)
    share.take("threads", waited - lent)
    share.take("overhead", fits * count * overhead)
    if run is not None:
        for times, inside in _inside(share.wall, run):
            share.take("other_load", inside * times.pool_waited_ns * times.foreign_share)
            share.take("threads", inside * times.pool_waited_ns * (1 - times.foreign_share))


def _pool_waits_of_others(run: CpuRun, times: float) -> float:
    """Return what the pool's threads waited for a CPU because of others in the profiled pass, scaled, ns."""
    profiled = run.profiled
    return times * profiled.pool_waited_ns * profiled.foreign_share if profiled else 0.0


def _overhead_ns(measured: pa.Table, work: float) -> float:
    """Return what a quiet inference took beyond the nodes' work, ns."""
    latency = pc.subtract(measured["t_end_ns"], measured["t_start_ns"]).to_numpy()
    impact = pc.fill_null(measured["noise_impact_pct"], 0.0).to_numpy()
    return max(0.0, float(np.quantile(latency / (1 + impact / 100), QUIET)) - work)


def document(budget: CpuBudget, nodes: Sequence[CpuNode]) -> dict[str, Any]:
    """Return cpu_budget.json: the parts, and of each side the nodes that take most."""
    work = work_ns(nodes)
    listed = [BudgetNode(name=node.name, op_type=node.op_type, side=node.side, work_ns=node_work,
                         profiled_ns=node.time_ns, ideal_ns=node.ideal_ns)
              for node, node_work in sorted(zip(nodes, work, strict=True), key=lambda pair: -pair[1])[:MOST_LISTED]]
    return encode(CpuTimeBudget(wall_ns=budget.wall_ns, inferences=budget.inferences, nodes=len(nodes),
                                parts_ns=budget.parts_ns, told_by=budget.told_by, largest=listed))
