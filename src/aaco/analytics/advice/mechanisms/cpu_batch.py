"""A larger batch of a run on CPUs: eight samples share the overhead of one."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, Values, of_metric
from aaco.core.advice import Step

BATCH = 8  # samples that share the runtime's overhead


def _shared_overhead(values: Values) -> float:
    return values["batch_is_free"] * (1 - 1 / BATCH)


ACTIONS = (Action(
    "larger_batch", "Raise the batch", of_metric("runtime_overhead_pct"), "the runtime is between nodes", "low",
    (Step("aaco run MODEL --batch 8"),), "runtime_overhead_pct", feasible=_shared_overhead,
    why_feasible="eight samples share the overhead of one", memory="activations of eight samples"),)
