"""The verdict on a change: what verdict.json holds, how severe it is, and the exit code that goes with it.

The schema of the document is RegressionVerdict.model_json_schema(). Every null has its reason in `why_absent`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from aaco.core.errors import Exit
from aaco.core.plan import HOST
from aaco.core.readings import Absent
from aaco.governance.change import Change, Part, attribute
from aaco.governance.compare import DETECTABLE, ESTIMATOR, LEAST, PLURAL, Comparison, Difference, Side

Status = Literal["regressed", "improved", "equivalent", "inconclusive", "no_baseline", "error"]
Severity = Literal["none", "low", "medium", "high", "critical"]
METRIC, UNIT = "latency_ms", "ms"
SEVERITIES: tuple[tuple[float, Severity], ...] = ((50.0, "critical"), (20.0, "high"), (10.0, "medium"))
PATIENCE = 50  # beyond this many units a side, less noise is cheaper than more measurements
UNCALIBRATED = "a probability is printed only once it is calibrated on labelled runs; see p_regression and ci"
NOT_IN_THIS_VERSION = {
    "change_point": "two sides were compared, not a series",
    "q_value": "one metric was tested: nothing to adjust for",
    "seed": "nothing random entered this verdict",
    "unknown_mass": "causes are an exact sum, not probabilities",
}
ADVICE = {
    "count": "more kernels per inference: check fusion, graph partitioning and which provider got the nodes",
    "duration": "the kernels take longer each: check their shapes, data types, clocks and who shares the machine",
    "gaps": "more time between kernels: check the host's launch path, synchronisation and copies",
    "overlap": "fewer kernels side by side: check streams and their dependencies",
}


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True)  # a later version's further fields are passed over


class Counts(_Document):
    """How many of something each side has."""

    baseline: int
    current: int


class EnvironmentDifference(_Document):
    """A fact that differs between the sides; null = not recorded."""

    fact: str
    baseline: str | None
    current: str | None
    blocks: bool = Field(description="the comparison was made only because it was forced")


class Cause(_Document):
    """One addend of the change of the profiled window; all of them sum to it exactly, in whole ns."""

    family: str | None = Field(description="kernel family; null for gaps and overlap")
    kind: Literal["count", "duration", "gaps", "overlap"]
    delta_ns: int = Field(description="summed over `inferences` inferences")
    inferences: int = Field(ge=1)
    share_pct: float | None = Field(description="of the window's change; null when that is 0")


class RegressionVerdict(_Document):
    """verdict.json. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    status: Status
    why: str = Field(description="what decided the status")
    regression: bool
    severity: Severity
    confidence: float | None = None
    confidence_why: str = UNCALIBRATED
    latency_delta_pct: float | None = Field(default=None, description="effect_pct, under the name of old")
    suspected_cause: str | None = None
    evidence: dict[str, str] = Field(default={}, description="signed changes per inference in the profiled pass")
    recommendation: str
    warnings: list[str] = Field(default=[], description="what was recorded that may have made the change by itself")
    metric: str = METRIC
    unit: str = UNIT
    direction: Literal["lower_is_better"] = "lower_is_better"
    baseline_value: float | None = Field(default=None, description="geometric mean of per-process medians")
    current_value: float | None = None
    effect_pct: float | None = Field(default=None, description="positive is slower")
    ci: tuple[float, float] | None = Field(default=None, description="confidence interval of effect_pct")
    level: float | None = None
    tolerance_pct: float | None = None
    p_regression: float | None = Field(default=None, description="one-sided, for a slowdown of the tolerance or less")
    p_value: float | None = Field(default=None, description="two-sided, for no change")
    q_value: float | None = None
    mde80_pct: float | None = Field(
        default=None,
        description=f"smallest change seen at 80 % power, {DETECTABLE} x sigma_session x sqrt(1/a + 1/b) over n_units: "
                    "a normal approximation, too small by 14 % with 5 + 5 units and by more with fewer")
    sigma_session: float | None = Field(default=None, description="relative standard deviation of one unit")
    n_sessions: Counts | None = Field(default=None, description="processes measured")
    n_units: Counts | None = Field(default=None, description="units of replication that the interval rests on")
    n_iterations: Counts | None = None
    replication_unit: Literal["process", "session", "block"] | None = None
    design: str = ""
    order_randomised: bool = False
    estimator: str = ESTIMATOR
    baseline_name: str | None = None
    baseline_ids: list[str] = []
    session_ids: list[str] = []
    env_diff: list[EnvironmentDifference] = []
    change_point: None = None
    confirmed_by: list[str] = []
    causes: list[Cause] = []
    unknown_mass: None = None
    seed: int | None = Field(default=None, description="of the order in which things were measured")
    tool_version: str
    reproduce_command: str
    why_absent: dict[str, str] = Field(default={}, description="the reason of every null")

    @model_validator(mode="after")
    def _hangs_together(self) -> RegressionVerdict:
        if self.effect_pct is not None and (self.baseline_value is None or self.current_value is None):
            raise ValueError("an effect without the values it is of")
        if self.ci is not None and (self.effect_pct is None or self.level is None):
            raise ValueError("an interval without its effect or its level")
        return self


def judge(baseline: Side, current: Side, comparison: Comparison, differences: Sequence[Difference],
          tool_version: str, reproduce_command: str) -> RegressionVerdict:
    """The whole verdict on `current` against `baseline`: the comparison, where the change sits, what to do next."""
    change, why_no_change = _change(baseline, current)
    cause, why_no_cause = _cause(comparison, change, why_no_change)
    evidence, why_no_evidence = _evidence(change, why_no_change)
    reasons = why_no_evidence | dict.fromkeys(("ci", "p_regression", "p_value", "mde80_pct", "sigma_session"),
                                              comparison.why_no_interval)
    verdict = RegressionVerdict(
        status=comparison.status, why=comparison.why, regression=comparison.status == "regressed",
        severity=severity(comparison), latency_delta_pct=comparison.effect_pct,
        suspected_cause=_phrase(cause) if cause else None, evidence=evidence,
        recommendation=_recommend(comparison, cause, baseline, current), warnings=_warnings(baseline, current),
        baseline_value=_centre(baseline), current_value=_centre(current),
        effect_pct=comparison.effect_pct, ci=_interval(comparison), level=comparison.level,
        tolerance_pct=comparison.tolerance_pct, p_regression=comparison.p_regression, p_value=comparison.p_value,
        mde80_pct=comparison.mde80_pct, sigma_session=comparison.sigma_session,
        n_sessions=Counts(baseline=baseline.processes, current=current.processes),
        n_units=Counts(baseline=comparison.units[0], current=comparison.units[1]),
        n_iterations=Counts(baseline=baseline.iterations, current=current.iterations),
        replication_unit=comparison.unit, design=comparison.design, baseline_name=baseline.label,
        baseline_ids=list(baseline.session_ids), session_ids=list(current.session_ids),
        env_diff=[EnvironmentDifference(**vars(item)) for item in differences],
        causes=_causes(change) if change else [], tool_version=tool_version, reproduce_command=reproduce_command)
    return with_reasons(verdict, reasons | {"suspected_cause": why_no_cause, "causes": why_no_change}, "")


def without_comparison(status: Literal["no_baseline", "error"], why: str, recommendation: str, tool_version: str,
                       reproduce_command: str) -> RegressionVerdict:
    """The verdict where nothing could be compared: there is no baseline, or the comparison itself failed."""
    verdict = RegressionVerdict(status=status, why=why, regression=False, severity="none",
                                recommendation=recommendation, tool_version=tool_version,
                                reproduce_command=reproduce_command)
    return with_reasons(verdict, {}, why)


def severity(comparison: Comparison) -> Severity:
    """How bad a confirmed regression is: low from the tolerance, medium from 10 %, high 20 %, critical 50 %."""
    if comparison.status != "regressed":
        return "none"
    return next((name for least, name in SEVERITIES if comparison.effect_pct >= least), "low")


def exit_code(verdict: RegressionVerdict, strict: bool) -> Exit:
    """What the command exits with; `strict` makes an answer that could not be given a failure."""
    if verdict.status == "error":
        return Exit.TOOL_ERROR
    if verdict.status == "regressed":
        return Exit.REGRESSION
    return Exit.INCONCLUSIVE if strict and verdict.status in ("inconclusive", "no_baseline") else Exit.FINE


def with_reasons(verdict: RegressionVerdict, reasons: Mapping[str, str], otherwise: str) -> RegressionVerdict:
    """The verdict with a reason for every null field, and for each key of evidence that is not there."""
    known = {**NOT_IN_THIS_VERSION, **reasons}
    empty = [name for name, value in verdict if value is None or (name == "causes" and not value)]
    keys = [name for name in known if name.startswith("evidence.")]
    found = {name: known.get(name) or otherwise for name in (*empty, *keys) if name != "confidence"}
    return verdict.model_copy(update={"why_absent": {name: why for name, why in found.items() if why}})


def _change(baseline: Side, current: Side) -> tuple[Change | None, str]:
    try:
        return attribute(baseline.profile(), current.profile()), ""
    except Absent as reason:
        return None, str(reason)


def _cause(comparison: Comparison, change: Change | None, why_no_change: str) -> tuple[Part | None, str]:
    """The largest contribution to a confirmed change, where the profiled pass shows that change too."""
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


def _phrase(cause: Part) -> str:
    more = cause.delta_ns > 0
    words = {"count": "more executions per inference" if more else "fewer executions per inference",
             "duration": "longer executions" if more else "shorter executions",
             "gaps": "longer gaps between kernels" if more else "shorter gaps between kernels",
             "overlap": "less overlap between kernels" if more else "more overlap between kernels"}[cause.kind]
    return f"{cause.family}: {words}" if cause.family else words


def _evidence(change: Change | None, why_no_change: str) -> tuple[dict[str, str], dict[str, str]]:
    """The mission's deltas in percent per inference, and under evidence.NAME why one is not there."""
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


def _recommend(comparison: Comparison, cause: Part | None, baseline: Side, current: Side) -> str:
    if comparison.veto:
        return _how_to_allow(comparison, baseline, current)
    if comparison.status == "inconclusive":
        return _how_to_resolve(comparison)
    if comparison.status == "equivalent":
        return "Nothing to do: any change is within the tolerance."
    if comparison.status == "improved":
        return "Keep it, and judge later sessions against this one: aaco baseline save NAME SESSION"
    if cause is None:
        return "Read both sessions' reports side by side: the profiled pass does not say where the time went."
    return f"{_phrase(cause).capitalize()}; {ADVICE[cause.kind]}."


def _how_to_allow(comparison: Comparison, baseline: Side, current: Side) -> str:
    """What makes a verdict possible where something keeps the numbers from being one."""
    again = _again(current)
    if comparison.veto == "same session":
        return f"Measure the other side: {again}"
    if comparison.veto == "contaminated":
        return (f"Stop the other load (top shows it) and measure both sides again: {again}; --noise repeat counts only "
                "clean iterations, --force judges all the same")
    if comparison.veto == "measured badly":
        return (f"Measure both sides again with more warm-up and iterations, on a quieter machine: {again} --noise "
                "repeat; aaco report SESSION shows what is poor, --force judges all the same")
    if comparison.unit == "session":
        return "Add sessions to the side with fewer: aaco baseline save NAME SESSION ..."
    short = [side for side in (baseline, current) if side.processes < LEAST]
    saved = f", aaco baseline save {baseline.label} (adds it)" if baseline in short else ""
    return f"Measure {LEAST} processes a side: {again}{saved}"


def _again(side: Side) -> str:
    """The command that measures a side anew, as far as the side knows it."""
    first = side.replicates[0]
    if first.backend == HOST:
        return f"aaco profile --runs {LEAST} --telemetry -- COMMAND"
    return f"aaco run {shlex.quote(first.model or 'MODEL')} --processes {LEAST} --telemetry"


def _how_to_resolve(comparison: Comparison) -> str:
    """The next measurement. With S units a side the MDE is DETECTABLE x sigma x sqrt(2 / S), solved for S."""
    assert comparison.sigma_session is not None and comparison.mde80_pct is not None  # else there was a veto
    if comparison.mde80_pct <= comparison.tolerance_pct or not comparison.tolerance_pct:
        return "The change is close to the tolerance: more processes narrow the interval (aaco run --processes N)."
    needed = math.ceil(2 * (100 * DETECTABLE * comparison.sigma_session / comparison.tolerance_pct) ** 2)
    would = f"about {needed} {PLURAL[comparison.unit]} a side would show {comparison.tolerance_pct:g} % at this spread"
    if needed > PATIENCE:
        return f"Quieten the machine first (aaco doctor): {would}."
    how = "aaco run --processes N" if comparison.unit == "process" else "aaco baseline save NAME SESSION ..."
    return f"Measure more: {would} ({how})."


def _interval(comparison: Comparison) -> tuple[float, float] | None:
    if comparison.low_pct is None or comparison.high_pct is None:
        return None
    return comparison.low_pct, comparison.high_pct


def _centre(side: Side) -> float:
    return math.exp(sum(math.log(median) for median in side.medians_ms) / side.processes)
