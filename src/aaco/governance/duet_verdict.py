"""The verdict of a comparison in turns, from its pairs alone: what they say, and the document that says it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.governance import compare, duet, verdict
from aaco.governance.compare import Comparison, Difference
from aaco.governance.duet import Fit, Look, Prior
from aaco.governance.verdict import Counts, EnvironmentDifference, RegressionVerdict

Stopped = Literal["settled", "precision", "budget", "processes"]
DESIGN = "interleaved duet"
NO_PROFILE = "a comparison in turns profiles neither side: aaco run both, then aaco diff"
MUCH_DISTURBED = 0.2  # of the pairs: worth a warning


@dataclass(frozen=True)
class Terms:
    """What a comparison is judged by, settled before it is measured. prior: what earlier runs say of the scatter."""

    tolerance_pct: float
    alpha: float
    looks: tuple[Look, ...]
    unit: Literal["process", "block"]
    only_quiet: bool
    prior: Prior | None
    why_no_prior: str
    precision_pct: float | None = None

    def look(self, processes: int) -> int:
        """The index of the look that is due after so many processes; an early end is the look that was next."""
        return next((at for at, look in enumerate(self.looks) if processes <= look.processes), len(self.looks) - 1)


@dataclass(frozen=True)
class Finding:
    """What the pairs say under the terms. fit: None where nothing could be estimated, and the comparison says why."""

    comparison: Comparison
    fit: Fit | None
    units: tuple[duet.Unit, ...]
    look: int


def find(pairs: pa.Table, terms: Terms) -> Finding:
    """Judge the pairs at the look that is due. Raises ValueError for times that are none."""
    units = duet.units(pairs, terms.only_quiet)
    processes = len(set(pairs.filter(pc.equal(pairs["kind"].cast(pa.string()), "change"))["process"].to_pylist()))
    at = terms.look(processes)
    try:
        fit = duet.fit(units, terms.prior, terms.why_no_prior)
    except Absent as reason:
        nothing = Comparison("inconclusive", str(reason), math.nan, terms.tolerance_pct, 1 - terms.alpha, terms.unit,
                             (processes, processes), DESIGN, why_no_interval=str(reason), veto="too few")
        return Finding(nothing, None, units, at)
    return Finding(duet.judge(fit, terms.looks[at], terms.alpha, terms.tolerance_pct, terms.unit, DESIGN), fit, units,
                   at)


def document(pairs: pa.Table, terms: Terms, found: Finding, stopped_by: Stopped, differences: Sequence[Difference],
             labels: tuple[str, str], session_id: str, seed: int, tool_version: str,
             reproduce_command: str) -> RegressionVerdict:
    """The whole verdict on the current side against the baseline."""
    seen, fit = found.comparison, found.fit
    changes = [one for one in found.units if one.kind == "change"]
    centres = _centres(pairs, terms.only_quiet)
    effect = None if fit is None or centres is None else seen.effect_pct
    why = seen.why_no_interval or ("" if centres else "no process measured both sides")
    sure = verdict.confidence(seen)
    made = RegressionVerdict(
        status=seen.status, why=seen.why, regression=seen.status == "regressed", severity=verdict.severity(seen),
        latency_delta_pct=effect, recommendation=_recommend(seen, terms, found), warnings=_warnings(found, terms),
        confidence=sure, confidence_why=verdict.CALIBRATED if sure is not None else verdict.NOTHING_CLAIMED,
        baseline_value=centres[0] if centres else None, current_value=centres[1] if centres else None,
        effect_pct=effect, ci=None if seen.low_pct is None or seen.high_pct is None else (seen.low_pct, seen.high_pct),
        level=seen.level, tolerance_pct=seen.tolerance_pct, p_regression=seen.p_regression, p_value=seen.p_value,
        p_tolerance=seen.p_tolerance, mde80_normal_pct=seen.mde80_normal_pct, n_history=seen.history,
        mde80_pct=seen.mde80_pct, sigma_session=seen.sigma_session,
        n_sessions=Counts(baseline=len(changes), current=len(changes)),
        n_units=Counts(baseline=len(changes), current=len(changes)),
        n_iterations=Counts(baseline=sum(one.pairs for one in changes), current=sum(one.pairs for one in changes)),
        replication_unit=terms.unit, design=DESIGN, order_randomised=True, seed=seed, estimator=duet.ESTIMATOR,
        baseline_name=labels[0], baseline_ids=[session_id], session_ids=[session_id],
        env_diff=[EnvironmentDifference(**vars(item)) for item in differences], duet=_how(terms, found, stopped_by),
        tool_version=tool_version, reproduce_command=reproduce_command)
    figures = ("effect_pct", "latency_delta_pct", "baseline_value", "current_value", *verdict.FIGURES)
    reasons = dict.fromkeys(figures, why) | dict.fromkeys(("suspected_cause", "causes"), NO_PROFILE)
    return verdict.with_reasons(made, reasons | {"q_value": verdict.NOT_IN_THIS_VERSION["q_value"]}, "")


def _how(terms: Terms, found: Finding, stopped_by: Stopped) -> verdict.Duet:
    fit, units = found.fit, found.units
    believed = fit.prior if fit else None
    return verdict.Duet(
        processes=sum(one.kind == "change" for one in units), controls=sum(one.kind != "change" for one in units),
        pairs=sum(one.pairs for one in units), disturbed_pairs=sum(one.disturbed for one in units),
        only_quiet=terms.only_quiet, look=found.look + 1, looks=len(terms.looks),
        look_alpha=terms.looks[found.look].alpha, stopped_by=stopped_by, degrees=fit.degrees if fit else None,
        prior_degrees=believed.degrees if believed else 0.0, prior_runs=believed.runs if believed else 0,
        why_no_prior=fit.why_no_prior if fit else terms.why_no_prior,
        order_effect_pct=None if fit is None or fit.order_effect is None else compare.percent(fit.order_effect))


def _centres(pairs: pa.Table, only_quiet: bool) -> tuple[float, float] | None:
    """Geometric means over processes of either side's median, of the processes that measured both."""
    rows = pairs.filter(pc.equal(pairs["kind"].cast(pa.string()), "change"))
    rows = rows.filter(pc.invert(rows["disturbed"])) if only_quiet else rows
    process = rows["process"].to_numpy()
    if not len(process):
        return None
    sides = [rows[f"{side}_ms"].to_numpy() for side in ("baseline", "current")]
    means = [float(np.mean([np.log(np.median(times[process == one])) for one in np.unique(process)]))
             for times in sides]
    return math.exp(means[0]), math.exp(means[1])


def _warnings(found: Finding, terms: Terms) -> list[str]:
    warnings, units = [], found.units
    disturbed = sum(one.disturbed for one in units)
    measured = sum(one.pairs for one in units) + (disturbed if terms.only_quiet else 0)
    if measured and disturbed > MUCH_DISTURBED * measured:
        what = "they are left out" if terms.only_quiet else "both sides of a pair bear it, so they count"
        warnings.append(f"other work ran beside {disturbed} of {measured} pairs; {what}")
    if not any(one.kind != "change" for one in units):
        warnings.append("no controls: the effect of the order of creation is averaged over, not measured")
    return warnings


def _recommend(seen: Comparison, terms: Terms, found: Finding) -> str:
    if seen.veto:
        return f"Measure at least {duet.LEAST_PROCESSES} processes: --processes {duet.LEAST_PROCESSES}"
    if seen.status == "regressed":
        return "Find where the time goes: aaco run either side, then aaco diff; the current side is slower."
    if seen.status == "improved":
        return "Keep it: the current side is faster."
    if seen.status == "equivalent":
        return "Nothing to do: any change is within the tolerance."
    assert found.fit is not None and seen.mde80_pct is not None
    needed = math.ceil(found.fit.processes * max(2.0, (seen.mde80_pct / terms.tolerance_pct) ** 2))
    return f"Measure more: --most-processes {needed} goes on until the answer is there."
