"""Time per executed graph node, with its source nodes and its distance from the measured roofs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.explanation import Explanation, once
from aaco.analytics.graph.executed_work import executed_work
from aaco.analytics.roofline.nodes import node_work, roofline
from aaco.core import inputs
from aaco.core.readings import Absent, known, or_why
from aaco.report import format

UNMODELLED, INSERTED = "its work is not modelled", "the runtime inserted it: it computes no node of the model"


class Roof(Struct, frozen=True):
    """Where a node is below the roofs: FLOP/byte, FLOP/ns (= GFLOP/s), and the share of the roof it reaches."""

    intensity: float
    gflops: float
    utilization: float
    bound: str


class Node(Struct, frozen=True):
    """An executed node: its mean time per inference in ns, and its share of all kernel time.

    sources are the source nodes it computes: none where the runtime inserted it, None where that is not known.
    """

    name: str
    op_type: str
    sources: tuple[str, ...] | None
    kernels: int
    time_ns: float
    share: float
    roof: Roof | None
    why_no_roof: str = ""


@once
def executed(explanation: Explanation) -> list[Node]:
    """Every executed node that took time, slowest first; empty where the capture does not name its nodes."""
    kernels = None if explanation.captures else explanation.tables.get("kernels")
    if kernels is None:
        return []
    used = inputs.measured(kernels)
    turns, total = pc.count_distinct(used["iteration"]).as_py(), pc.sum(used["dur_ns"]).as_py()
    named = used.filter(pc.is_valid(used["executed_node"]))
    grouped = named.group_by("executed_node").aggregate([("dur_ns", "sum"), ("dur_ns", "count")])
    sources, roofs, reasons = _sources(explanation), roofs_by_node(explanation), _why_no_roof(explanation)
    operators = _operators(explanation, named)
    found = [Node(row["executed_node"], operators.get(row["executed_node"]) or "", sources.get(row["executed_node"]),
                  row["dur_ns_count"], row["dur_ns_sum"] / turns, row["dur_ns_sum"] / total if total else 0.0,
                  roofs.get(row["executed_node"]), reasons(row["executed_node"])) for row in grouped.to_pylist()]
    return sorted(found, key=lambda node: (-node.time_ns, node.name))


def roofs_by_node(explanation: Explanation) -> dict[str, Roof]:
    """The place of each modelled node under the roofs; empty without them."""
    return {row["name"]: Roof(row["intensity"], row["flops"] / row["time_ns"], row["utilization"], row["bound"])
            for row in known(placed, explanation) or () if not row["why_absent"]}


def roof_notes(explanation: Explanation) -> list[str]:
    """What is to be known about the nodes' shares of the roof: its caveat, and why some have none."""
    found = explanation.readings.get("hardware_envelope_utilization")
    lost: dict[str, list[Node]] = defaultdict(list)
    for node in executed(explanation):
        if node.why_no_roof:
            lost[node.why_no_roof].append(node)
    absent = [f"n/a for {format.plural(len(some), 'node')} ({format.percent(sum(node.share for node in some))} of "
              f"the time): {why}" for why, some in lost.items()]
    return [found.caveat, *absent] if found and found.caveat else absent


def _why_no_roof(explanation: Explanation) -> Callable[[str], str]:
    """The reason why a node has no place under the roofs; empty for one that has."""
    costless = _why_no_cost(explanation)
    try:
        reasons = {row["name"]: row["why_absent"] or "" for row in placed(explanation)}
    except Absent as reason:
        why = str(reason)
        return lambda name: costless.get(name, why)
    return lambda name: reasons.get(name, costless.get(name, UNMODELLED))


def _why_no_cost(explanation: Explanation) -> dict[str, str]:
    """Of each executed node without a cost, the reason of the first of its source nodes that has none."""
    graph, run = explanation.tables.get("graph_nodes"), explanation.tables.get("executed_nodes")
    if graph is None or run is None:
        return {}
    why = dict(zip(graph["node_id"].to_pylist(), graph["why_no_cost"].to_pylist(), strict=True))
    pairs = zip(run["name"].to_pylist(), run["source_nodes"].to_pylist(), strict=True)
    found = {name: next((why[node] for node in nodes or [] if why.get(node)), "" if nodes else INSERTED)
             for name, nodes in pairs}
    return {name: reason for name, reason in found.items() if reason}


def placed(explanation: Explanation) -> list[dict[str, Any]]:
    """Rows of the roofline view. Raises Absent with the reason there is none."""
    if isinstance(rows := _placed(explanation), str):
        raise Absent(rows)
    return rows


@once
def _placed(explanation: Explanation) -> list[dict[str, Any]] | str:
    """Rows of the roofline view, or the reason there is none."""
    needed = ("kernels", "api_calls", "executed_nodes", "graph_nodes", "graph_edges")
    for name in needed:
        if name not in explanation.tables:
            return f"needs the {name} table: {explanation.why_no(name)}"
    kernels, calls, run, nodes, edges = (explanation.tables[name] for name in needed)
    try:
        view = roofline(node_work(inputs.window(kernels, calls), run, nodes, executed_work(run, nodes, edges)),
                        ceilings(explanation))
    except Absent as reason:
        return str(reason)
    rows: list[dict[str, Any]] = view.to_pylist()
    return rows


def why_not_placed(explanation: Explanation) -> str:
    """Why no executed node has a place under the roofs; empty where some have."""
    if why := or_why(lambda: placed(explanation))[1]:
        return why
    return "" if any(node.roof for node in executed(explanation)) else "no executed node has modelled arithmetic"


def ceilings(explanation: Explanation) -> Mapping[str, float]:
    """This machine's measured ceilings by name; empty when it has not been calibrated."""
    found: Mapping[str, float] | None = explanation.machine.get("ceilings")
    return found or {}


def _operators(explanation: Explanation, kernels: pa.Table) -> dict[str, str | None]:
    """The operator of each executed node, by the graph, else by its kernel: the CPU provider's is named like it."""
    run = explanation.tables.get("executed_nodes")
    told = [] if run is None else zip(run["name"].to_pylist(), run["op_type"].to_pylist(), strict=True)
    ran = kernels.group_by(["executed_node", "kernel_name"]).aggregate([])
    return dict(zip(ran["executed_node"].to_pylist(), ran["kernel_name"].to_pylist(), strict=True)) | dict(told)


def _sources(explanation: Explanation) -> dict[str, tuple[str, ...]]:
    """Names of the source nodes that each executed node computes."""
    graph, run = explanation.tables.get("graph_nodes"), explanation.tables.get("executed_nodes")
    if graph is None or run is None:
        return {}
    names = dict(zip(graph["node_id"].to_pylist(), graph["name"].to_pylist(), strict=True))
    pairs = zip(run["name"].to_pylist(), run["source_nodes"].to_pylist(), strict=True)
    return {name: tuple(names.get(node) or f"node {node}" for node in nodes or []) for name, nodes in pairs}
