"""A higher level of graph optimisation: fusion takes away nodes and the passes between them."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, Values
from aaco.core.advice import Step


def _nodes_and_overhead(values: Values) -> float:
    return values["node_memory_pct"] + values["runtime_overhead_pct"]


def _levels_left(values: Values) -> float:
    return float(values["graph_levels_left"] > 0)


ACTIONS = (Action(
    "graph_level", "Raise the level of graph optimisation", _nodes_and_overhead,
    "nodes pass over memory, or the runtime is between them", "low",
    (Step("aaco compare MODEL MODEL --option-b graph_optimization=all"),), "runtime_overhead_pct",
    feasible=_levels_left,
    why_feasible="fusion takes away nodes and passes between them; what it can join is not known before: a bound"),)
