"""How near each kernel name comes to its roof: by this machine's measured ceilings, by counters, or by shapes."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.analytics.kernels.priority import nearest_roof
from aaco.report.sections import nodes

UNKNOWN = "neither counters nor operators' shapes tell its work"
UNMODELLED = "the work of its nodes is not modelled, or the machine was not calibrated (aaco calibrate)"
BY = {"nodes": "modelled work of the graph's nodes, measured roofs", "counters": "hardware counters, theoretical roofs",
      "shapes": "operators' shapes, theoretical roofs"}


class Reach(Struct, frozen=True):
    """The share of the roof that a kernel name reaches over its whole time, which roof, and what says so."""

    share: float
    roof: str
    by: str


def by_kernel(explanation: Explanation) -> dict[str, Reach]:
    """By kernel name; names with unknown work are not in it."""
    return _of_classes(explanation) if explanation.captures else _of_nodes(explanation)


def why_none(explanation: Explanation) -> str:
    """Why a kernel is not in it."""
    return UNKNOWN if explanation.captures else UNMODELLED


def sources(found: dict[str, Reach]) -> str:
    """What says so, for all of them."""
    return "; ".join(BY[name] for name in dict.fromkeys(one.by for one in found.values()))


def _of_nodes(explanation: Explanation) -> dict[str, Reach]:
    """The least time that the roofs allow over the time taken, of those nodes with modelled work."""
    parts: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for node in nodes.executed(explanation):
        if node.roof:
            parts[node.op_type].append((node.time_ns, node.time_ns * node.roof.utilization, node.roof.bound))
    found = {}
    for name, each in parts.items():
        longest = max(each)
        if time := sum(ns for ns, _, _ in each):
            found[name] = Reach(sum(ideal for _, ideal, _ in each) / time, longest[2], "nodes")
    return found


def _of_classes(explanation: Explanation) -> dict[str, Reach]:
    """The larger of the shares of the compute and the memory roof that the examination of kernel names found."""
    found = {}
    for one in (explanation.examined.get("kernel_classes") or {}).get("kernels", ()):
        nearest = nearest_roof(one)
        if nearest and one["by"] in BY:
            roof, share = nearest
            found[one["kernel_name"]] = Reach(share, roof, one["by"])
    return found
