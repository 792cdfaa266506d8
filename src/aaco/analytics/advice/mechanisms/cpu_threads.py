"""As many threads as there are CPUs for them: threads that each have a CPU do not wait for one."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, Values, of_metric
from aaco.core.advice import Step


def _surplus_threads(values: Values) -> float:
    """Return all of the waits where there are more threads than CPUs, and none where they fit."""
    return float(values["threads_per_cpu"] > 1)


def _fitting_threads(values: Values) -> float:
    return float(values["threads_per_cpu"] <= 1)


ACTIONS = (
    Action("fit_threads", "Use no more threads than CPUs", of_metric("thread_wait_pct"), "threads wait for a CPU",
           "low", (Step("intra_op_threads in configs/backends.yaml: the CPUs that an affinity or a quota leaves, which "
                 "ONNX Runtime does not count; aaco compare MODEL MODEL --option-b intra_op_threads=N"),),
           "thread_wait_pct", feasible=_surplus_threads,
           why_feasible="threads that each have a CPU do not wait for one; a bound"),
    Action("compare_threads", "Compare thread counts", of_metric("thread_wait_pct"), "threads wait for others", "low",
           (Step("aaco compare MODEL MODEL --option-b intra_op_threads=1, then 2, 4, .."),), "thread_wait_pct",
           feasible=_fitting_threads,
           why_feasible="fewer threads wait less, but what the others computed is left to them: a bound"))
