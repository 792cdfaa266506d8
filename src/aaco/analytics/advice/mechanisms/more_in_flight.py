"""More reads that do not wait for each other, for kernels that wait for memory: larger batches, more blocks.

What stays of such a kernel depends on how many of its reads can be on their way at once, and on what they share. The
bytes that they must move are no bound of a step with more samples in it either: several queries may read the same.
"""

from __future__ import annotations

from aaco.analytics.advice.action import MORE_REQUESTS, OWN_CODE, Action, Values
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

LEAST_PART = 0.05  # of the device's work: less of it is less than that of any step, however little its host takes


def _least_ns(work: StepWork) -> Reals:
    raise Absent("a trace does not say how many more reads could be on their way at once")


def _waiting_for_memory(values: Values) -> float:
    """Return the time of kernels that wait for memory. KeyError where that is too little of the device's work."""
    share = values["memory_latency_limited_pct"]
    if share < LEAST_PART * values.get("device_limited_pct", 0.0):
        raise KeyError("memory_latency_limited_pct")
    return share


MORE_IN_FLIGHT = Mechanism("more_in_flight", "Give the device more independent reads at once", "not known", _least_ns)
ACTIONS = (Action(
    "more_in_flight", "Give the device more independent reads at once", _waiting_for_memory,
    "kernels are bound by memory latency", "high",
    (Step("larger batches, several queries per launch, more blocks", (OWN_CODE,)), *MORE_REQUESTS),
    "memory_latency_limited_pct", mechanism="more_in_flight"),)
