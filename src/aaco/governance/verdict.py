"""The verdict on a change: what decides it, how severe it is, and the exit code that goes with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from aaco.core.errors import Exit
from aaco.core.readings import or_why
from aaco.governance.advice import phrase, recommend
from aaco.governance.change import Change, Part, attribute
from aaco.governance.compare import Comparison, Side
from aaco.governance.metrics import Judged
from aaco.governance.verdict_document import (
    CALIBRATED,
    ESTIMATOR,
    Cause,
    Counts,
    Direction,
    EnvironmentDifference,
    MetricVerdict,
    RegressionVerdict,
    Severity,
)
from aaco.tracelake.history.measures import LATENCY, MEASURES, Measure

SEVERITIES: tuple[tuple[float, Severity], ...] = ((50.0, "critical"), (20.0, "high"), (10.0, "medium"))
NOTHING_CLAIMED = "an inconclusive comparison claims nothing that could be right; see p_regression"
FIGURES = ("ci", "p_regression", "p_tolerance", "p_value", "q_value", "mde80_pct", "mde80_normal_pct", "sigma_session")
NOT_IN_THIS_VERSION = {
    "duet": "the sides were not measured in turns",
    "change_point": "two sides were compared, not a series",
    "q_value": "one metric was tested: nothing to adjust for",
    "seed": "nothing random entered this verdict",
    "unknown_mass": "causes are an exact sum, not probabilities",
}


def judge(baseline: Side, current: Side, judged: Judged, differences: Sequence[EnvironmentDifference],
          tool_version: str, reproduce_command: str) -> RegressionVerdict:
    """Return the whole verdict on `current` against `baseline`: the comparison, where the change sits, what to do
    next.
    """
    metric, comparison = judged.metric, judged.headline
    change, why_no_change = or_why(lambda: attribute(baseline.profile(), current.profile()))
    cause, why_no_cause = _cause(comparison, change, why_no_change)
    evidence, why_no_evidence = _evidence(change, why_no_change)
    reasons = why_no_evidence | dict.fromkeys(FIGURES, comparison.why_no_interval or comparison.why)
    reasons |= {"suspected_cause": why_no_cause, "causes": why_no_change}
    verdict = RegressionVerdict(
        **of_comparison(comparison), latency_delta_pct=judged.found[LATENCY].effect_pct,
        suspected_cause=phrase(cause) if cause else None, evidence=evidence,
        recommendation=recommend(comparison, cause, baseline, current), warnings=_warnings(baseline, current),
        metric=metric, unit=MEASURES[metric].unit, direction=MEASURES[metric].direction,
        baseline_value=_centre(baseline, metric), current_value=_centre(current, metric),
        effect_pct=comparison.effect_pct, q_value=judged.q_values.get(metric),
        n_sessions=Counts(baseline=baseline.processes, current=current.processes), n_units=_units(comparison),
        n_iterations=Counts(baseline=baseline.iterations, current=current.iterations),
        replication_unit=comparison.unit, design=comparison.design, estimator=_estimator(MEASURES[metric]),
        baseline_name=baseline.label,
        baseline_ids=list(baseline.session_ids), session_ids=list(current.session_ids),
        env_diff=list(differences),
        causes=_causes(change) if change else [], metrics=_metrics(baseline, current, judged),
        metrics_absent=dict(judged.absent), tool_version=tool_version, reproduce_command=reproduce_command)
    return with_reasons(verdict, reasons)


def of_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return the fields of a verdict that are those of its comparison, whatever the sides are."""
    sure = confidence(comparison)
    return {"status": comparison.status, "why": comparison.why, "regression": comparison.status == "regressed",
            "severity": severity(comparison), "confidence": sure,
            "confidence_why": CALIBRATED if sure is not None else NOTHING_CLAIMED, "ci": interval(comparison),
            "level": comparison.level, "tolerance_pct": comparison.tolerance_pct,
            "p_regression": comparison.p_regression, "p_tolerance": comparison.p_tolerance,
            "p_value": comparison.p_value, "mde80_pct": comparison.mde80_pct,
            "mde80_normal_pct": comparison.mde80_normal_pct, "sigma_session": comparison.sigma_session,
            "n_history": comparison.history}


def of_metric(name: str, unit: str, direction: Direction, found: Comparison, centres: tuple[float, float],
              q_value: float | None) -> MetricVerdict:
    """Return the verdict on one metric. centres: its value on either side."""
    return MetricVerdict(
        metric=name, unit=unit, direction=direction, status=found.status, why=found.why, baseline_value=centres[0],
        current_value=centres[1], effect_pct=found.effect_pct, ci=interval(found), p_value=found.p_value,
        q_value=q_value, p_regression=found.p_regression, mde80_pct=found.mde80_pct, sigma_session=found.sigma_session,
        n_units=_units(found), replication_unit=found.unit)


def in_history(found: RegressionVerdict, change_point: dict[str, Any] | None, why_none: str) -> RegressionVerdict:
    """Return the verdict with the last change of level in the history of its metric, or why there is none."""
    reasons = {name: why for name, why in found.why_absent.items() if name != "change_point"}
    absent = {} if change_point else {"change_point": why_none}
    return found.model_copy(update={"change_point": change_point, "why_absent": reasons | absent})


def confidence(comparison: Comparison) -> float | None:
    """Return the calibrated probability that the status is right; None where it claims nothing."""
    worse, better = comparison.p_regression, comparison.p_improvement
    if worse is None or better is None or comparison.status == "inconclusive":
        return None
    return {"regressed": worse, "improved": better, "equivalent": max(1 - worse - better, 0.0)}[comparison.status]


def severity(comparison: Comparison) -> Severity:
    """Return how bad a confirmed regression is: low from the tolerance, medium from 10 %, high 20 %, critical 50 %."""
    if comparison.status != "regressed":
        return "none"
    return next((name for least, name in SEVERITIES if comparison.effect_pct >= least), "low")


def exit_code(verdict: RegressionVerdict, strict: bool) -> Exit:
    """Return what the command exits with; `strict` makes an answer that could not be given a failure."""
    if verdict.status == "error":
        return Exit.TOOL_ERROR
    if verdict.status == "regressed":
        return Exit.REGRESSION
    return Exit.INCONCLUSIVE if strict and verdict.status in ("inconclusive", "no_baseline") else Exit.FINE


def with_reasons(verdict: RegressionVerdict, reasons: Mapping[str, str]) -> RegressionVerdict:
    """Return the verdict with a reason for every null field, and for each key of evidence that is not there."""
    known = {**NOT_IN_THIS_VERSION, **reasons}
    empty = [name for name, value in verdict if value is None or (name == "causes" and not value)]
    keys = [name for name in known if name.startswith("evidence.")]
    return verdict.model_copy(update={"why_absent": {
        name: known[name] for name in (*empty, *keys) if known.get(name) and name != "confidence"}})


def _cause(comparison: Comparison, change: Change | None, why_no_change: str) -> tuple[Part | None, str]:
    """Return the largest contribution to a confirmed change, where the profiled pass shows that change too."""
    if comparison.status not in ("regressed", "improved"):
        return None, f"no change is confirmed: the status is {comparison.status}"
    if change is None:
        return None, why_no_change
    if change.delta_pct / comparison.effect_pct < 0.5:
        return None, (f"the profiled pass changed by {change.delta_pct:+.1f} %, the timed one by "
                      f"{comparison.effect_pct:+.1f} %: it does not show this change")
    return change.largest, ""


def _warnings(baseline: Side, current: Side) -> list[str]:
    """Sessions that interference slowed, which unpaired processes cannot tell from a change of the code, and
    sides of which that is not known."""
    sides = (("baseline", baseline), ("current", current))
    found = [f"{label} session {item.session_id}: interference slowed its median by {100 * (item.disturbed or 0):.1f} "
             "%, so a change may be the machine's own" for label, side in sides for item in side.contaminated]
    unknown = [label for label, side in sides
               if any(item.disturbed is None for item in side.replicates)]
    if unknown:
        found.append(f"{' and '.join(unknown)}: whether anything disturbed it is not known (--telemetry records it), "
                     "so other work on the machine may have made the change")
    return found


def _evidence(change: Change | None, why_no_change: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the changes of launches and kernel durations, percent, and under evidence.NAME why one is not there."""
    absent = {"evidence.cpu_overhead_delta": "host time outside the profiled window is not recorded per inference"}
    if change is None:
        return {}, absent | dict.fromkeys(("evidence.kernel_launch_count_delta", "evidence.avg_kernel_duration_delta"),
                                          why_no_change)
    counts = [sum(row.count_before for row in change.families), sum(row.count_after for row in change.families)]
    times = [sum(row.ns_before for row in change.families), sum(row.ns_after for row in change.families)]
    found = {"profiled_window_delta": _signed(change.window_before_ns, change.window_after_ns),
             "kernel_launch_count_delta": _signed(*counts), "kernel_time_delta": _signed(*times),
             "avg_kernel_duration_delta": _signed(times[0] / counts[0], times[1] / counts[1])}
    absent |= {f"evidence.{name}": "it was zero before" for name, value in found.items() if value is None}
    return {name: value for name, value in found.items() if value is not None}, absent


def _signed(before: float, after: float) -> str | None:
    return f"{100 * (after / before - 1):+.1f}%" if before else None


def _causes(change: Change) -> list[Cause]:
    return [Cause(family=part.family or None, kind=part.kind, delta_ns=part.delta_ns, inferences=change.inferences,
                  share_pct=100 * part.delta_ns / change.delta_ns if change.delta_ns else None)
            for part in change.parts]


def interval(comparison: Comparison) -> tuple[float, float] | None:
    """Of the change, in percent; None where there is none."""
    if comparison.low_pct is None or comparison.high_pct is None:
        return None
    return comparison.low_pct, comparison.high_pct


def _centre(side: Side, metric: str) -> float:
    values = [value for replicate in side.replicates for value in replicate.values(metric)]
    return math.exp(sum(map(math.log, values)) / len(values))


def _estimator(measure: Measure) -> str:
    return ESTIMATOR if measure is MEASURES[LATENCY] else f"ratio of geometric means of {measure.what}"


def _units(comparison: Comparison) -> Counts:
    return Counts(baseline=comparison.units[0], current=comparison.units[1])


def _metrics(baseline: Side, current: Side, judged: Judged) -> list[MetricVerdict]:
    return [of_metric(name, MEASURES[name].unit, MEASURES[name].direction, found,
                      (_centre(baseline, name), _centre(current, name)), judged.q_values.get(name))
            for name, found in judged.found.items()]
