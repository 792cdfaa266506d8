"""Other work kept off the CPUs of a run: what others took comes back when they are gone."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, Values
from aaco.core.advice import Step


def _of_others(values: Values) -> float:
    return values["contended_pct"] - values.get("quota_pct", 0.0)


ACTIONS = (Action(
    "quiet_cpus", "Keep other work off the run's CPUs", _of_others, "others have the run's CPUs", "low",
    (Step("aaco run --lab standard, or taskset -c; see top; --noise repeat measures until enough is clean"),),
    "contended_pct"),)
