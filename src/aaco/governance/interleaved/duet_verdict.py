"""The verdict of a comparison in turns, from its pairs: what they say, and the document that says it.

Where the device's own time in each turn was recorded it is judged beside the latency and stands for both: on an H200
latencies of ten processes spread by 21 %, and times of the device so little that a change of 1 % shows. The latency
still counts: a slowdown of only the host is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.core import statistics
from aaco.core.readings import Absent
from aaco.governance import metrics, verdict
from aaco.governance.compare import Comparison
from aaco.governance.interleaved import duet, sign_flips
from aaco.governance.interleaved.duet import Fit, Look
from aaco.governance.metrics import Judged
from aaco.governance.prior import Prior
from aaco.governance.verdict_document import Counts, Duet, EnvironmentDifference, MetricVerdict, RegressionVerdict
from aaco.tracelake.history.measures import LATENCY

Stopped = Literal["settled", "precision", "budget", "processes"]
DESIGN = "interleaved duet"
NO_PROFILE = "a comparison in turns profiles neither side: aaco run both, then aaco diff"
NOT_JUDGED = "requests of two endpoints are judged by their times per token and to the first token"
DEVICE = "device_time_ms"
TPOT, TTFT = "tpot_p50_ms", "ttft_dispatched_p50_ms"  # of pairs of requests to two endpoints
# How the columns of the pairs end.
TIMES = {LATENCY: "ms", DEVICE: "device_ms", TPOT: "tpot_ms", TTFT: "ttft_ms"}
OF_A_TURN = {LATENCY: "", DEVICE: "; of the time in which a kernel, a fill or a copy within the device ran",
             TPOT: "; of an answer's time per output token", TTFT: "; of the time from dispatch to the first token"}
MUCH_DISTURBED = 0.2  # of the pairs: worth a warning


class Terms(Struct, frozen=True):
    """What a comparison is judged by, settled before it is measured.

    prior: what earlier runs say of the scatter of latencies; device_prior: of the device's times. only_quiet: latencies
    of disturbed pairs do not count; the device's times do. Of requests: correlation, that of neighbouring blocks where
    Student's t judges them, None for sign flips; too_few, why they are no ground for a verdict.
    """

    tolerance_pct: float
    alpha: float
    looks: tuple[Look, ...]
    unit: Literal["process", "block"]
    only_quiet: bool
    prior: Prior | None
    why_no_prior: str
    precision_pct: float | None = None
    device_prior: Prior | None = None
    why_no_device_prior: str = ""
    correlation: float | None = None
    too_few: str = ""

    def quiet(self, metric: str) -> bool:
        """Return whether only undisturbed pairs count."""
        return self.only_quiet and metric == LATENCY

    def look(self, processes: int) -> int:
        """Return the index of the look that is due after so many processes; an early end is the look that was next."""
        return next((at for at, look in enumerate(self.looks) if processes <= look.processes), len(self.looks) - 1)


class Traced(Struct, frozen=True):
    """In how many processes a tracer recorded what the device did; and why its time is not judged, if it is not."""

    processes: int = 0
    why_absent: str = ""


class Finding(Struct, frozen=True):
    """What the pairs say of a metric. fit: None where nothing could be estimated, and the comparison says why."""

    comparison: Comparison
    fit: Fit | None
    units: tuple[duet.Unit, ...]


class Findings(Struct, frozen=True):
    """What the pairs say under the terms at a look: by each metric, and, as `judged`, by all of them together."""

    each: Mapping[str, Finding]
    judged: Judged
    look: int

    @property
    def headline(self) -> Finding:
        """The finding that represents all, its comparison as it is among all."""
        return replace(self.each[self.judged.metric], comparison=self.judged.headline)

    @property
    def latency(self) -> Finding:
        """The finding by the host's clock; of requests, that of all metrics."""
        return self.each.get(LATENCY, self.headline)


def find(pairs: pa.Table, terms: Terms, why_no_device: str) -> Findings:
    """Judge the pairs at the look that is due; why_no_device: why there are no times of the device, empty where there
    are. Raise ValueError for times that are none.
    """
    processes = len(set(pairs.filter(pc.equal(pairs["kind"].cast(pa.string()), "change"))["process"].to_pylist()))
    at, absent, each = terms.look(processes), {}, {}
    try:
        each[LATENCY] = _find(pairs, terms, at, LATENCY, terms.prior, terms.why_no_prior)
    except Absent as reason:
        nothing = Comparison("inconclusive", str(reason), math.nan, terms.tolerance_pct, 1 - terms.alpha, terms.unit,
                             (processes, processes), DESIGN, why_no_interval=str(reason), veto="too few")
        each[LATENCY] = Finding(nothing, None, duet.units(pairs, terms.only_quiet))
    try:
        if why_no_device:
            raise Absent(why_no_device)
        each[DEVICE] = _find(pairs, terms, at, DEVICE, terms.device_prior, terms.why_no_device_prior)
    except Absent as reason:
        absent[DEVICE] = str(reason)
    judged = metrics.among_all({name: item.comparison for name, item in each.items()}, absent,
                               LATENCY if DEVICE in absent else DEVICE)
    return Findings(each, judged, at)


def find_requests(pairs: pa.Table, terms: Terms) -> Findings:
    """Judge pairs of requests by their time per output token, and by that to the first. Raise Absent where the
    former has no answer, ValueError for times that are none.
    """
    each, absent = {TPOT: _find_of_blocks(pairs, terms, TPOT)}, {}
    try:
        each[TTFT] = _find_of_blocks(pairs, terms, TTFT)
    except Absent as reason:
        absent[TTFT] = str(reason)
    judged = metrics.among_all({name: item.comparison for name, item in each.items()}, absent, TPOT)
    return Findings(each, judged, 0)


def _find(pairs: pa.Table, terms: Terms, at: int, metric: str, believed: Prior | None, why: str) -> Finding:
    units = duet.units(pairs, terms.quiet(metric), TIMES[metric])
    fit = duet.fit(units, believed, why)
    return Finding(duet.judge(fit, terms.looks[at], terms.alpha, terms.tolerance_pct, terms.unit, DESIGN), fit, units)


def _find_of_blocks(pairs: pa.Table, terms: Terms, metric: str) -> Finding:
    """Judge blocks of pairs. Either order in a pair is as frequent in each block, so it has no effect."""
    units = tuple(replace(one, order=0.0) for one in duet.units(pairs, times=TIMES[metric]))
    fit = duet.fit(units, None, terms.why_no_prior)
    if terms.correlation is not None:
        fit = duet.widened(fit, terms.correlation)
    seen = duet.judge(fit, terms.looks[0], terms.alpha, terms.tolerance_pct, terms.unit, DESIGN)
    if terms.correlation is None:
        seen = sign_flips.judged(seen, np.array([one.log_ratio for one in units]), terms.alpha)
    if terms.too_few:
        seen = replace(seen, status="inconclusive", why=terms.too_few, veto="too few")
    return Finding(seen, fit, units)


def document(pairs: pa.Table, terms: Terms, found: Findings, traced: Traced, stopped_by: Stopped,
             differences: Sequence[EnvironmentDifference], labels: tuple[str, str], session_id: str, seed: int,
             tool_version: str, reproduce_command: str) -> RegressionVerdict:
    """Return the whole verdict on the current side against the baseline."""
    metric, headline = found.judged.metric, found.headline
    seen, fit = headline.comparison, headline.fit
    changes = [one for one in headline.units if one.kind == "change"]
    centres = _centres(pairs, terms, metric)
    effect = None if fit is None or centres is None else seen.effect_pct
    why = seen.why_no_interval or ("" if centres else "no process measured both sides")
    every = _metrics(pairs, terms, found)
    made = RegressionVerdict(
        **verdict.of_comparison(seen),
        latency_delta_pct=found.latency.comparison.effect_pct if found.latency.fit and LATENCY in found.each else None,
        recommendation=_recommend(headline, terms), warnings=_warnings(found, terms),
        metric=metric,
        baseline_value=centres[0] if centres else None, current_value=centres[1] if centres else None,
        effect_pct=effect,
        q_value=found.judged.q_values.get(metric) if len(found.judged.q_values) > 1 else None,
        n_sessions=Counts(baseline=len(changes), current=len(changes)),
        n_units=Counts(baseline=len(changes), current=len(changes)),
        n_iterations=Counts(baseline=sum(one.pairs for one in changes), current=sum(one.pairs for one in changes)),
        replication_unit=terms.unit, design=DESIGN, order_randomised=True, seed=seed,
        estimator=duet.ESTIMATOR + OF_A_TURN[metric],
        baseline_name=labels[0], baseline_ids=[session_id], session_ids=[session_id],
        env_diff=list(differences), metrics=every,
        metrics_absent=_absent(found), duet=_how(terms, found, traced, stopped_by),
        tool_version=tool_version, reproduce_command=reproduce_command)
    figures = ("effect_pct", "baseline_value", "current_value", *verdict.FIGURES)
    reasons = dict.fromkeys(figures, why) | dict.fromkeys(("suspected_cause", "causes"), NO_PROFILE)
    reasons |= {"latency_delta_pct": found.latency.comparison.why_no_interval if LATENCY in found.each else NOT_JUDGED}
    return verdict.with_reasons(made, reasons | {"q_value": verdict.NOT_IN_THIS_VERSION["q_value"]})


def _metrics(pairs: pa.Table, terms: Terms, found: Findings) -> list[MetricVerdict]:
    """Return each metric by itself; those of which nothing could be estimated are absent."""
    every = []
    for name, item in found.each.items():
        centres = _centres(pairs, terms, name)
        if item.fit and centres:
            every.append(verdict.of_metric(name, "ms", "lower_is_better", found.judged.found[name], centres,
                                           found.judged.q_values.get(name)))
    return every


def _absent(found: Findings) -> dict[str, str]:
    """Metrics without figures, and why."""
    return dict(found.judged.absent) | {name: item.comparison.why for name, item in found.each.items() if not item.fit}


def _how(terms: Terms, found: Findings, traced: Traced, stopped_by: Stopped) -> Duet:
    fit, units = found.headline.fit, found.headline.units
    believed = fit.prior if fit else None
    return Duet(
        processes=sum(one.kind == "change" for one in units), controls=sum(one.kind != "change" for one in units),
        pairs=sum(one.pairs for one in units), disturbed_pairs=sum(one.disturbed for one in units),
        only_quiet=terms.only_quiet, look=found.look + 1, looks=len(terms.looks),
        look_alpha=terms.looks[found.look].alpha, stopped_by=stopped_by, degrees=fit.degrees if fit else None,
        prior_degrees=believed.degrees if believed else 0.0, prior_runs=believed.runs if believed else 0,
        why_no_prior=fit.why_no_prior if fit else terms.why_no_prior, traced=traced.processes,
        order_effect_pct=None if fit is None or fit.order_effect is None else statistics.percent(fit.order_effect))


def _centres(pairs: pa.Table, terms: Terms, metric: str) -> tuple[float, float] | None:
    """Geometric means over processes of either side's median, of the processes that measured both."""
    rows = pairs.filter(pc.equal(pairs["kind"].cast(pa.string()), "change"))
    rows = rows.filter(pc.invert(rows["disturbed"])) if terms.quiet(metric) else rows
    process = rows["process"].to_numpy()
    if not len(process):
        return None
    sides = [rows[f"{side}_{TIMES[metric]}"].to_numpy() for side in ("baseline", "current")]
    means = [float(np.mean([np.log(np.median(times[process == one])) for one in np.unique(process)]))
             for times in sides]
    return math.exp(means[0]), math.exp(means[1])


def _warnings(found: Findings, terms: Terms) -> list[str]:
    warnings, units = [], found.latency.units
    disturbed = sum(one.disturbed for one in units)
    measured = sum(one.pairs for one in units) + (disturbed if terms.only_quiet else 0)
    if measured and disturbed > MUCH_DISTURBED * measured:
        what = "the latency leaves them out" if terms.only_quiet else "both sides of a pair bear it, so they count"
        warnings.append(f"other work disturbed {disturbed} of {measured} pairs; {what}")
    if not any(one.kind != "change" for one in units):
        warnings.append("no controls: the effect of the order of creation is averaged over, not measured")
    return warnings


def _recommend(found: Finding, terms: Terms) -> str:
    seen = found.comparison
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
