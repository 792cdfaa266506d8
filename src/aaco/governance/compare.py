"""Is one side slower than the other, beyond the spread of its own processes: Student's t over per-process values.

The unit of replication is the process, never the iteration: iterations of one process share its memory layout, its
threads' placement and the machine's state of that moment, so tests over iterations raise false alarms in more than
half of all comparisons of a thing with itself (`python -m benchmarks.governance --only false_alarms`). Everything is
computed on the logarithm of the values, so a change is a ratio and swapping the sides only flips its sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from aaco.analytics.quality import sentinel
from aaco.core import inputs, statistics
from aaco.core.arrays import Reals
from aaco.core.errors import UsageError, first_problem
from aaco.core.readings import Absent, known, or_why
from aaco.governance import change
from aaco.governance.calibrate import probability
from aaco.governance.spread import ALONE, Sessions, Spread, estimate, in_pairs
from aaco.governance.verdict_document import DETECTABLE, Decision, EnvironmentDifference
from aaco.tracelake.history.measures import LATENCY, MEASURES
from aaco.tracelake.history.replicates import IDENTITY, ProcessSample, Profile, Replicate

Unit = Literal["process", "session", "block"]
Veto = Literal["same session", "too few", "contaminated", "measured badly"]
PLURAL: Mapping[Unit, str] = {"process": "processes", "session": "sessions", "block": "blocks of runs"}

LEAST = 5  # units a side that a verdict needs, or ALONE sessions on the other side of fewer
CONTAMINATED = sentinel.LIMIT
POOR = 50.0  # of measurement_quality: below it is poor or bad by its bands
PROVENANCE = ("model", "tool_version", "git_commit", "git_branch")  # shown where they differ, never blocking


class Side(Struct, frozen=True):
    """One side of a comparison: sessions of fresh processes that all measured the same thing."""

    label: str
    replicates: tuple[Replicate, ...]

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The sessions, in order."""
        return tuple(replicate.session_id for replicate in self.replicates)

    @property
    def medians_ms(self) -> Reals:
        """The median latency of every process."""
        return np.array([process.median_ms for replicate in self.replicates for process in replicate.processes])

    @property
    def processes(self) -> int:
        """How many fresh processes measured."""
        return sum(len(replicate.processes) for replicate in self.replicates)

    @property
    def contaminated(self) -> tuple[Replicate, ...]:
        """The sessions that interference slowed so much that a change may be the machine's own."""
        return tuple(item for item in self.replicates if (item.disturbed or 0.0) > CONTAMINATED)

    @property
    def badly_measured(self) -> tuple[Replicate, ...]:
        """The sessions with so poor a measurement that nothing may be concluded from it."""
        return tuple(item for item in self.replicates if item.quality is not None and item.quality < POOR)

    @property
    def iterations(self) -> int:
        """How many inferences were measured in all."""
        return sum(process.iterations for replicate in self.replicates for process in replicate.processes)

    def log_values(self, metric: str = LATENCY) -> list[Reals]:
        """Per session, the logarithm of each process's value of a metric, turned so that more is worse.

        Raise Absent where a session has no value of it.
        """
        worse = 1.0 if MEASURES[metric].direction == "lower_is_better" else -1.0
        return [worse * np.log(replicate.values(metric)) for replicate in self.replicates]

    def profile(self) -> Profile:
        """Return the sessions' profiles added up. Raise Absent, with the reason, when one has none."""
        for replicate in self.replicates:
            if replicate.profile is None:
                raise Absent(f"session {replicate.session_id}: {replicate.why_no_profile or 'no kernels recorded'}")
        return change.combine([replicate.profile for replicate in self.replicates if replicate.profile])


class Comparison(Struct, frozen=True):
    """The change from baseline to current in percent (positive = slower), with its interval and what it could show.

    low_pct, high_pct, p_*, mde80_pct and sigma_session are None together, and `why_no_interval` says why.
    `veto` names what keeps any numbers from being a verdict: the status is then inconclusive for any interval,
    and there is no probability.
    sigma_session is the relative standard deviation of one unit. p_value is two-sided, for no change at all;
    p_tolerance one-sided, for a slowdown of the tolerance or less; p_regression and p_improvement the probabilities
    that the true change is beyond the tolerance (calibrate.probability). mde80_pct is exact at `level` for these
    degrees of freedom, mde80_normal_pct the normal approximation. history: sessions besides the sides that the spread
    is known from.
    """

    status: Decision
    why: str
    effect_pct: float
    tolerance_pct: float
    level: float
    unit: Unit
    units: tuple[int, int]
    design: str
    low_pct: float | None = None
    high_pct: float | None = None
    p_regression: float | None = None
    p_value: float | None = None
    mde80_pct: float | None = None
    sigma_session: float | None = None
    degrees: float | None = None
    why_no_interval: str = ""
    veto: Veto | None = None
    p_tolerance: float | None = None
    p_improvement: float | None = None
    mde80_normal_pct: float | None = None
    history: int = 0


def compare(baseline: Side, current: Side, tolerance_pct: float = 5.0, level: float = 0.95,
            doubtful_too: bool = False, history: Sequence[Sessions] = (), metric: str = LATENCY) -> Comparison:
    """Judge a metric of `current` against `baseline`; a change for the worse up to `tolerance_pct` is accepted.

    history: what else is known of this metric on this machine, as spread.epochs gives it: it makes the spread better
    known. Pure and symmetric: the sides swapped give the inverse ratio and the opposite status. Inconclusive whatever
    the numbers where a session is on both sides, units are too few, or (unless `doubtful_too`) a session was slowed by
    interference or measured badly. Raise UsageError for a tolerance or level that cannot be, Absent where a session has
    no value of the metric. Whether the sides may be compared at all is for `differences` to say.
    """
    if not 0 <= tolerance_pct < math.inf or not 0 < level < 1:
        raise UsageError(f"tolerance {tolerance_pct} %, level {level}", "tolerance >= 0, level between 0 and 1")
    before, after = baseline.log_values(metric), current.log_values(metric)
    try:
        spread = in_pairs(before, after, _turns(baseline, current)) or estimate(before, after, history)
    except Absent as reason:
        found = _unjudged(before, after, tolerance_pct, level, str(reason))
    else:
        found = judge(spread, tolerance_pct, level)
    veto, why = _veto(baseline, current, found, doubtful_too)
    if not veto:
        return found
    # what a probability is worth was measured on sound comparisons, so that this one has none
    return replace(found, status="inconclusive", why=why, veto=veto, p_regression=None, p_improvement=None)


def differences(baseline: Side, current: Side) -> tuple[EnvironmentDifference, ...]:
    """Return every recorded fact that is not the same on both sides, those of IDENTITY first: they block a comparison.

    A fact with several values on a side shows all of them.
    """
    before, after = _facts(baseline), _facts(current)
    found = (EnvironmentDifference(fact=name, baseline=before.get(name), current=after.get(name),
                                   blocks=name in IDENTITY) for name in dict.fromkeys((*before, *after)))
    return tuple(sorted((item for item in found if item.baseline != item.current), key=lambda item: not item.blocks))


def require_comparable(found: Sequence[EnvironmentDifference]) -> None:
    """Raise UsageError when any difference blocks, naming all that do."""
    blocking = [f"{item.fact} {item.baseline or 'not recorded'} -> {item.current or 'not recorded'}"
                for item in found if item.blocks]
    if blocking:
        raise UsageError(f"baseline and session did not measure the same thing: {'; '.join(blocking)}",
                         "compare like with like, or --force to compare all the same (the verdict will say so)")


def side_from_tables(inference_iters: pa.Table, kernels: pa.Table | None, facts: Mapping[str, Any],
                     why_no_kernels: str = "no kernels table") -> Side:
    """One session as a side: the measured latencies of each process, and the profile where kernels were recorded.

    facts: the other fields of Replicate (session_id, created_utc, machine_id, backend, ...). Raise UsageError for a
    session without measured inferences or with a latency of zero, TypeError for an unknown fact.
    """
    unknown = facts.keys() - Replicate.model_fields.keys()
    if unknown:
        raise TypeError(f"a replicate has no {sorted(unknown)}")
    profile, why = _profile(kernels, why_no_kernels)
    session = facts["session_id"]
    latencies = _latencies(inference_iters)
    if not latencies:
        raise UsageError(f"session {session} has no measured inferences", "aaco ls  # which sessions are complete")
    try:
        samples = tuple(map(ProcessSample.of, latencies))
        replicate = Replicate(processes=samples, profile=profile, why_no_profile=why, **facts)
    except ValidationError as error:
        raise UsageError(f"session {session}: {first_problem(error)}",
                         "aaco info SESSION  # checks the session's files") from error
    return Side(session, (replicate,))


def judge(spread: Spread, tolerance_pct: float, level: float) -> Comparison:
    """Return the three-way decision on a difference and its spread."""
    error, margin = spread.standard_error, math.log1p(tolerance_pct / 100)
    half = statistics.t_quantile(0.5 + level / 2, spread.degrees) * error
    low, high = spread.effect - half, spread.effect + half
    mde_pct = statistics.percent(statistics.detectable(level, spread.degrees) * error)
    status, why = decide(low, high, margin, mde_pct, tolerance_pct)
    worse, better = probability(spread.effect, error, spread.degrees, margin)
    return Comparison(
        status, why, statistics.percent(spread.effect), tolerance_pct, level, spread.unit, spread.units, spread.design,
        low_pct=statistics.percent(low), high_pct=statistics.percent(high), p_regression=worse, p_improvement=better,
        p_tolerance=statistics.t_cdf((margin - spread.effect) / error, spread.degrees),
        p_value=2 * statistics.t_cdf(-abs(spread.effect) / error, spread.degrees),
        mde80_pct=mde_pct, mde80_normal_pct=100 * DETECTABLE * error, sigma_session=spread.sigma,
        degrees=spread.degrees, history=spread.history)


def decide(low: float, high: float, margin: float, mde_pct: float, tolerance_pct: float) -> tuple[Decision, str]:
    """Return the three-way decision on the interval (low, high), log scale.

    A change with its whole interval beyond the tolerance has been seen, however coarse the instrument, so the
    smallest detectable change does not veto it. It does veto `equivalent`: to see nothing with an instrument that could
    not have seen a change of the tolerance says nothing. The tolerance for a speed-up is the inverse ratio, 1 / (1 +
    tolerance), so that swapping the sides swaps the answer.
    """
    if low > margin:
        return "regressed", f"the whole interval lies above the tolerance of {tolerance_pct:g} %"
    if high < -margin:
        return "improved", f"the whole interval lies below the tolerance of -{tolerance_pct:g} %"
    if mde_pct > tolerance_pct:
        return "inconclusive", (f"the smallest change these processes could show is {mde_pct:.2f} %, "
                                f"more than the tolerance of {tolerance_pct:g} %")
    if -margin <= low and high <= margin:
        return "equivalent", f"the whole interval lies within the tolerance of {tolerance_pct:g} %"
    return "inconclusive", f"the interval reaches across the tolerance of {tolerance_pct:g} %"


def _veto(baseline: Side, current: Side, found: Comparison, doubtful_too: bool) -> tuple[Veto | None, str]:
    """Return what keeps any numbers from being a verdict, and why."""
    if both := [name for name in current.session_ids if name in baseline.session_ids]:
        return "same session", f"{_named(both)} on both sides: a measurement against itself shows no change"
    if _too_few(found.units, (len(baseline.replicates), len(current.replicates))):
        return "too few", (f"{found.units[0]} against {found.units[1]} {PLURAL[found.unit]}: a verdict needs {LEAST} "
                           f"a side, or {ALONE} sessions against fewer")
    waited = [item.session_id for item in (*baseline.contaminated, *current.contaminated)]
    if waited and not doubtful_too:
        return "contaminated", (f"{_named(waited)} contaminated: interference slowed the median by more than "
                                f"{100 * CONTAMINATED:g} %, so a change may be the machine's own")
    bad = (*baseline.badly_measured, *current.badly_measured)
    if bad and not doubtful_too:
        return "measured badly", (f"{_named([item.session_id for item in bad])} measured badly: quality "
                                  f"{bad[0].quality:.0f} of 100, below {POOR:g} ({bad[0].quality_parts})")
    return None, ""


def _too_few(units: tuple[int, int], sessions: tuple[int, int]) -> bool:
    """Return whether a side has fewer than 5 units, and the other no 8 sessions on whose scatter it could rest."""
    fewer = int(units[1] < units[0])
    return units[fewer] < LEAST and sessions[1 - fewer] < ALONE


def _named(sessions: Sequence[str]) -> str:
    more = f" and {len(sessions) - 1} more are" if len(sessions) > 1 else " is"
    return f"session {sessions[0]}{more}"


def _unjudged(before: Sessions, after: Sessions, tolerance_pct: float, level: float, why: str) -> Comparison:
    one, other = np.concatenate(before), np.concatenate(after)
    return Comparison("inconclusive", why, statistics.percent(float(other.mean() - one.mean())), tolerance_pct, level,
                      "process", (len(one), len(other)), "unpaired processes, too few to know their spread",
                      why_no_interval=why)


def _turns(baseline: Side, current: Side) -> list[bool]:
    """Of all sessions in time, whether each is of the current side; empty where a time is not known, or two are equal,
    or the sides' sessions are not in the order of time themselves."""
    times = [[item.created_utc for item in side.replicates] for side in (baseline, current)]
    found = sorted((time, side) for side, known in enumerate(times) for time in known if time is not None)
    moments = [time for time, _ in found]
    in_order = all(known == sorted(time for time in known if time is not None) for known in times)
    if len(found) < len(times[0]) + len(times[1]) or len(set(moments)) < len(moments) or not in_order:
        return []
    return [bool(side) for _, side in found]


def _facts(side: Side) -> dict[str, str | None]:
    """Per fact, its value on this side; several values are joined, and None means "not recorded" in all."""
    rows = [item.environment | {name: getattr(item, name) for name in (*IDENTITY, *PROVENANCE)}
            for item in side.replicates]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _joined([row.get(name) for row in rows]) for name in names}


def _joined(values: Sequence[object]) -> str | None:
    if all(value is None for value in values):
        return None
    return ", ".join(dict.fromkeys(map(_spelled, values)))


def _spelled(value: object) -> str:
    if value is None:
        return "not recorded"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _profile(kernels: pa.Table | None, why: str) -> tuple[Profile | None, str]:
    if kernels is None:
        return None, why
    return or_why(lambda: change.profile_of(kernels))


def _latencies(inference_iters: pa.Table) -> list[Reals]:
    """Return the measured latencies of each process in ms; a source that does not distinguish processes has one."""
    measured = known(inputs.counted, inference_iters, "measurement")
    if measured is None:
        return []
    process = pc.fill_null(measured["process"], -1).to_numpy()
    latencies = measured["latency_ms"].to_numpy()
    return [latencies[process == index] for index in np.unique(process)]
