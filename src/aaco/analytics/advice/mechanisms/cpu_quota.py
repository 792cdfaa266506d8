"""A higher quota for the control group of a run: without it no thread is kept from running by it."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, of_metric
from aaco.core.advice import Step

ACTIONS = (Action(
    "raise_quota", "Raise the CPU quota of the run's control group", of_metric("quota_pct"),
    "the quota keeps threads from running", "low",
    (Step("cpu.max of its cgroup; docker run --cpus; Kubernetes resources.limits.cpu"),), "quota_pct"),)
