"""A policy of `aaco sla` over a lake: each group of comparable sessions is judged by the median of its sessions.

The lake holds some metrics of each session, each as the median of its processes; `aaco sla check` has all iterations
of one session, and all its metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import groupby
from typing import Any

import numpy as np
from msgspec import Struct, field

from aaco.analytics import metrics
from aaco.core import registry, statistics
from aaco.core.errors import UsageError
from aaco.core.readings import Reading
from aaco.fleet.answers import COMPARABLE, document
from aaco.fleet.scan import LOCAL, Engine, FleetFilter, one_table
from aaco.fleet.store import Place
from aaco.governance import sla
from aaco.tracelake.history.measures import LATENCY, MEASURES

# The metrics that the lake holds, by their names in a policy.
HELD = {"latency_p50_ms": LATENCY, **{name: name for name in ("latency_p90_ms", "latency_p99_ms", "throughput_per_s")}}
# Where these are declared, and the others of the policy that is judged where none is given.
DECLARED = tuple(f"aaco.analytics.metrics.{name}" for name in ("latency", "host", "kernels"))
FEWEST = 2  # sessions that a level of a group takes


class _Group(Struct):
    """Comparable sessions, the newest first. levels: by metric, the sessions with a value and their values."""

    key: tuple[Any, ...]
    sessions: int = 0
    levels: dict[str, tuple[list[str], list[float]]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)


def check(lake: Place, policy: sla.Policy, choice: FleetFilter | None = None, newest: int | None = None,
          engine: Engine = LOCAL) -> dict[str, Any]:
    """Hold each group of comparable sessions against a policy. Raise UsageError for a metric or limit that there is
    not, AacoError.

    newest: how many sessions of each group count, the newest ones; None: all.
    """
    with ThreadPoolExecutor(1) as beside:  # it imports, while DuckDB already computes
        named = beside.submit(_outcomes_of_nothing, policy)
        table = one_table(lake, "metric_levels", choice, engine)
        unmeasured = named.result()
    named_metrics = {sla.find_metric(objective.metric) for objective in policy.objectives}
    judged = [_judged(policy, named_metrics, group) for group in _groups(table.to_pylist(), newest)]
    return document({
        "policy": policy.name, "newest": newest, "status": sla.together(group["status"] for group in judged),
        "counts": {status: sum(group["status"] == status for group in judged) for status in sla.WORST_FIRST},
        "not_held": [outcome.metric for outcome in unmeasured if outcome.metric not in HELD],
        "groups": sorted(judged, key=lambda group: sla.WORST_FIRST.index(group["status"]))})


def _outcomes_of_nothing(policy: sla.Policy) -> tuple[sla.Outcome, ...]:
    """Return the objectives, each skipped. Raise UsageError. Of the metrics all are declared only if one needs it."""
    for name in DECLARED:
        import_module(name)
    try:
        return sla.outcomes(policy, {})
    except UsageError:
        registry.load(metrics, "aaco.metrics")
        return sla.outcomes(policy, {})


def _groups(rows: list[dict[str, Any]], newest: int | None) -> Iterator[_Group]:
    for key, parts in groupby(rows, lambda row: tuple(row[name] for name in COMPARABLE)):
        group = _Group(key)
        for row in parts:
            count = len(row["ages"]) if newest is None else sum(age <= newest for age in row["ages"])
            group.sessions = max(group.sessions, *row["ages"][:count], 0)
            if row["metric"] is None:
                group.reasons.update(row["reasons"][:count])
            elif count:
                group.levels[row["metric"]] = row["sessions"][:count], row["levels"][:count]
        yield group


def _judged(policy: sla.Policy, named: Iterable[registry.Metric], group: _Group) -> dict[str, Any]:
    """Return a group with what became of each objective, and how many single sessions are beyond the limit."""
    outcomes = sla.outcomes(policy, {metric.name: _reading(metric, group) for metric in named})
    return dict(zip(COMPARABLE, group.key, strict=True)) | {
        "sessions": group.sessions, "status": sla.together(outcome.status for outcome in outcomes),
        "objectives": [outcome.model_dump(mode="json") | _beyond(outcome, group.levels) for outcome in outcomes]}


def _beyond(outcome: sla.Outcome, levels: Mapping[str, tuple[list[str], list[float]]]) -> dict[str, Any]:
    """Return how many sessions have a value, how many of those miss the limit, and the one that is worst."""
    sessions, values = levels.get(HELD.get(outcome.metric, ""), ([], []))
    if not values:
        return {"measured": 0, "beyond": None, "worst_session": None}
    sign = 1 if outcome.direction == "max" else -1
    worst = max(range(len(values)), key=lambda place: sign * values[place])
    return {"measured": len(values), "beyond": sum(sign * value > sign * outcome.limit for value in values),
            "worst_session": sessions[worst]}


def _reading(metric: registry.Metric, group: _Group) -> Reading:
    """Return the median over a group's sessions with its interval, or why there is none."""
    if metric.name not in HELD:
        return Reading(metric.name, metric.unit, None, f"a lake does not hold it; it has {', '.join(HELD)}")
    _, values = group.levels.get(HELD[metric.name], ([], []))
    if len(values) < FEWEST:
        return Reading(metric.name, metric.unit, None, _why_none(HELD[metric.name], len(values), group))
    median = statistics.quantile(np.array(values), 0.5)
    return Reading(metric.name, metric.unit, median.value, low=median.low, high=median.high)


def _why_none(name: str, measured: int, group: _Group) -> str:
    if measured:
        return f"{measured} session has a value; the level of a group takes {FEWEST}"
    if group.reasons.total() == group.sessions:
        return group.reasons.most_common(1)[0][0]
    return MEASURES[name].why_absent
