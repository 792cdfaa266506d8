"""The gate over a suite: what is red, what only looked like it, and what is not known. Pure; ci_gate measures.

Two hurdles come before red. Every metric of every benchmark is one test among all of them (Benjamini and Hochberg),
and what still looks worse is a suspect, which fresh processes must show again. A tool that failed is an error of its
own kind, never a change; and where something regressed, no other benchmark's failure hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from aaco.core.documents import FrozenModel
from aaco.core.errors import Exit
from aaco.governance import sla
from aaco.governance.multiplicity import benjamini_hochberg
from aaco.governance.suite import Benchmark, Ignore, Suite
from aaco.governance.verdict_document import RegressionVerdict

Outcome = Literal["regressed", "missed", "error", "suspect", "no_baseline", "inconclusive", "unconfirmed", "ignored",
                  "improved", "near", "equivalent", "kept", "skipped"]
WORST_FIRST: tuple[Outcome, ...] = (
    "regressed", "missed", "error", "suspect", "no_baseline", "inconclusive", "unconfirmed", "ignored", "improved",
    "near", "equivalent", "kept", "skipped")
RED: tuple[Outcome, ...] = ("regressed", "missed")
UNKNOWN: tuple[Outcome, ...] = ("suspect", "no_baseline", "inconclusive")
OF_OBJECTIVE: Mapping[sla.Status, Outcome] = {"fail": "missed", "warn": "near", "pass": "kept", "skip": "skipped"}


class Check(FrozenModel):
    """One metric of one benchmark: a comparison with the baseline, or an objective. Nulls: see `why`."""

    benchmark: str
    metric: str
    kind: Literal["comparison", "objective"] = "comparison"
    unit: str
    outcome: Outcome
    why: str
    baseline_value: float | None = None
    current_value: float | None = None
    effect_pct: float | None = Field(default=None, description="positive is worse")
    ci: tuple[float, float] | None = Field(default=None, description="of effect_pct; of an objective, of its value")
    level: float | None = None
    tolerance_pct: float | None = None
    p_value: float | None = None
    q_value: float | None = Field(default=None, description="p_value adjusted for every comparison of the suite")
    mde80_pct: float | None = Field(default=None, description="smallest change seen at 80 % power")
    noise_pct: float | None = Field(default=None, description="noise floor: standard deviation of one unit")
    limit: float | None = Field(default=None, description="of an objective")
    confirmed_by: list[str] = Field(default=[], description="sessions of fresh processes that show it, too")


class Judged(FrozenModel):
    """One benchmark of the suite."""

    name: str
    outcome: Outcome
    why: str
    session_ids: list[str] = Field(default=[])
    baseline: str | None = None
    checks: list[Check] = Field(default=[])
    error_code: int | None = Field(default=None, description="what `aaco` alone would have exited with")
    reproduce_command: str | None = None
    fresh_baseline_ids: list[str] = Field(default=[], description="sessions of the baseline's version, measured again")


class Overlooked(FrozenModel):
    """An entry of the ignore list, and what became of it."""

    benchmark: str
    metric: str
    until: date
    reason: str
    state: Literal["used", "unused", "expired"]


class Report(FrozenModel):
    """aaco-ci.json. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    suite: str
    status: Literal["passed", "failed", "inconclusive", "error"]
    exit_code: int
    false_alarm_pct: float
    comparisons: int = Field(description="how many were tested at once")
    benchmarks: list[Judged]
    ignored: list[Overlooked]
    tool_version: str

    @property
    def checks(self) -> list[Check]:
        """Of all benchmarks, the worst first, then the largest effect."""
        found = [check for each in self.benchmarks for check in each.checks]
        return sorted(found, key=lambda one: (WORST_FIRST.index(one.outcome), -abs(one.effect_pct or 0.0)))

    @property
    def silent(self) -> bool:
        """Whether there is nothing that a person should read."""
        quiet = ("equivalent", "kept", "skipped")
        return all(check.outcome in quiet for check in self.checks) and not any(
            each.outcome not in quiet for each in self.benchmarks) and not any(
            each.state == "expired" for each in self.ignored)


class Measurement(Struct, frozen=True):
    """A session of a benchmark, with what it says: its verdict, where there was something to compare with.

    anew: that on the baseline's version, which was measured after it.
    """

    session_id: str
    verdict: RegressionVerdict | None = None
    objectives: sla.Report | None = None
    anew: RegressionVerdict | None = None


class Measured(Struct, frozen=True):
    """A benchmark as far as it was measured. again: the re-runs of a suspect. error: what the tool could not do."""

    benchmark: Benchmark
    first: Measurement | None = None
    again: Sequence[Measurement] = field(default=())
    no_baseline: str | None = None
    error: str | None = None
    error_code: int = Exit.TOOL_ERROR


def suspects(suite: Suite, measured: Sequence[Measured]) -> set[str]:
    """Return the benchmarks that look worse, or miss an objective: to be measured once more, also where that is
    overlooked.
    """
    return {check.benchmark for check in _first_look(suite, measured) if check.outcome in RED}


def decide(suite: Suite, measured: Sequence[Measured], today: date, tool_version: str) -> Report:
    """Return the report over the suite. today: for the ignore list, where entries hold until the end of their last
    day.
    """
    checks = _overlook(suite.ignore, [_confirmed(check, measured) for check in _first_look(suite, measured)], today)
    judged = [_judged(each, [check for check in checks if check.benchmark == each.benchmark.name])
              for each in measured]
    status, code = _status(judged)
    return Report(suite=suite.name, status=status, exit_code=code, false_alarm_pct=suite.false_alarm_pct,
                  comparisons=sum(check.q_value is not None for check in checks), benchmarks=judged,
                  ignored=[_overlooked(each, measured, suite, today) for each in suite.ignore],
                  tool_version=tool_version)


def exit_code(report: Report, strict: bool = False) -> int:
    """Return what `aaco ci` exits with; `strict` makes an answer that could not be given a failure."""
    return Exit.INCONCLUSIVE if strict and report.status == "inconclusive" else report.exit_code


def _first_look(suite: Suite, measured: Iterable[Measured]) -> list[Check]:
    """Return every check by the first measurements, each comparison one among all."""
    found = [check for each in measured if each.first for check in (*_comparisons(each, each.first),
                                                                    *_objectives(each, each.first))]
    tested = [place for place, check in enumerate(found) if check.p_value is not None]
    q_values = benjamini_hochberg([found[place].p_value or 0.0 for place in tested])
    for place, q_value in zip(tested, q_values.tolist(), strict=True):
        found[place] = _among_all(found[place].model_copy(update={"q_value": q_value}), suite.false_alarm_pct)
    return found


def _comparisons(each: Measured, measurement: Measurement) -> list[Check]:
    verdict = measurement.verdict
    return [] if verdict is None else [
        Check(benchmark=each.benchmark.name, metric=one.metric, unit=one.unit, outcome=one.status, why=one.why,
              baseline_value=one.baseline_value, current_value=one.current_value, effect_pct=one.effect_pct, ci=one.ci,
              level=verdict.level, tolerance_pct=verdict.tolerance_pct, p_value=one.p_value, mde80_pct=one.mde80_pct,
              noise_pct=None if one.sigma_session is None else 100 * one.sigma_session) for one in verdict.metrics]


def _objectives(each: Measured, measurement: Measurement) -> list[Check]:
    report = measurement.objectives
    return [Check(benchmark=each.benchmark.name, metric=one.metric, kind="objective", unit=one.unit,
                  outcome=OF_OBJECTIVE[one.status], why=one.why, current_value=one.value, ci=one.ci, limit=one.limit)
            for one in (report.objectives if report else ())]


def _among_all(check: Check, false_alarm_pct: float) -> Check:
    """Return a change that is none among so many tests is not called one."""
    if check.outcome not in ("regressed", "improved") or check.q_value is None:
        return check
    if check.q_value <= false_alarm_pct / 100:
        return check
    why = (f"it looks {'worse' if check.outcome == 'regressed' else 'better'}, but among all comparisons of the suite "
           f"that is no surprise (q = {check.q_value:.2g})")
    return check.model_copy(update={"outcome": "inconclusive", "why": why})


def _confirmed(check: Check, measured: Sequence[Measured]) -> Check:
    """Return what is red by a first look stays so where every further measurement shows it, too."""
    if check.outcome not in RED:
        return check
    each = next(one for one in measured if one.benchmark.name == check.benchmark)
    if not each.again:
        how = "run `aaco ci` again" if each.benchmark.is_run else "name further sessions: confirm: [SESSION]"
        why = f"not confirmed by fresh processes: {each.error or how}; {check.why}"
        return check.model_copy(update={"outcome": "suspect", "why": why})
    shown = [again.session_id for again in each.again if _shows(check, each, again)]
    if len(shown) == len(each.again):
        return check.model_copy(update={"confirmed_by": shown})
    drifted = all(_repeats(check, each, again) for again in each.again)
    why = "no difference from the baseline's version when that is measured again: the machine changed" if drifted else \
        "fresh processes did not show it again"
    return check.model_copy(update={"outcome": "unconfirmed", "why": why})


def _shows(check: Check, each: Measured, again: Measurement) -> bool:
    """Return whether it is there once more: on the stored baseline and, where its version was measured anew, on
    that.
    """
    fresh = again.anew is None or check.kind == "objective" or _repeats(check, each, replace(again, verdict=again.anew))
    return fresh and _repeats(check, each, again)


def _repeats(check: Check, each: Measured, again: Measurement) -> bool:
    found = (*_comparisons(each, again), *_objectives(each, again))
    return any((one.metric, one.kind, one.outcome) == (check.metric, check.kind, check.outcome) for one in found)


def _overlook(ignores: Sequence[Ignore], checks: list[Check], today: date) -> list[Check]:
    valid = [each for each in ignores if each.until >= today]
    return [_under(check, next((each for each in valid if each.covers(check.benchmark, check.metric)), None))
            for check in checks]


def _under(check: Check, ignore: Ignore | None) -> Check:
    if ignore is None or check.outcome not in (*RED, "suspect"):
        return check
    why = f"overlooked until {ignore.until}: {ignore.reason} ({check.outcome}: {check.why})"
    return check.model_copy(update={"outcome": "ignored", "why": why})


def _overlooked(ignore: Ignore, measured: Sequence[Measured], suite: Suite, today: date) -> Overlooked:
    used = any(check.outcome in RED and ignore.covers(check.benchmark, check.metric)
               for check in _first_look(suite, measured))
    state: Literal["used", "unused", "expired"] = "expired" if ignore.until < today else "used" if used else "unused"
    return Overlooked(benchmark=ignore.benchmark, metric=ignore.metric, until=ignore.until, reason=ignore.reason,
                      state=state)


def _judged(each: Measured, checks: list[Check]) -> Judged:
    """Return a benchmark is as its worst check; a tool that failed is said beside what it had found until then."""
    measurements = [each.first, *each.again] if each.first else []
    verdict = each.first.verdict if each.first else None
    outcomes: list[tuple[Outcome, str]] = [(check.outcome, f"{check.metric}: {check.why}") for check in checks]
    if each.error is not None:
        outcomes.append(("error", each.error))
    if each.no_baseline is not None:
        outcomes.append(("no_baseline", each.no_baseline))
    if not outcomes:
        outcomes.append(("skipped", "it has neither a baseline nor objectives"))
    outcome, why = min(outcomes, key=lambda one: WORST_FIRST.index(one[0]))
    return Judged(name=each.benchmark.name, outcome=outcome, why=why, baseline=each.benchmark.baseline, checks=checks,
                  session_ids=[one.session_id for one in measurements if one],
                  error_code=None if each.error is None else each.error_code,
                  reproduce_command=verdict.reproduce_command if verdict else None,
                  fresh_baseline_ids=[name for one in each.again if one.anew for name in one.anew.baseline_ids])


def _status(judged: Sequence[Judged]) -> tuple[Literal["passed", "failed", "inconclusive", "error"], int]:
    """Return a confirmed regression first: it is true whatever else failed. Failures keep their code where it is
    one.
    """
    if any(each.outcome in RED for each in judged):
        return "failed", Exit.REGRESSION
    if codes := {each.error_code for each in judged if each.error_code is not None}:
        code = codes.pop() or Exit.TOOL_ERROR
        return "error", Exit.TOOL_ERROR if codes else code
    unknown = any(check.outcome in UNKNOWN for each in judged for check in each.checks) or any(
        each.outcome in UNKNOWN for each in judged)
    return ("inconclusive" if unknown else "passed"), Exit.FINE
