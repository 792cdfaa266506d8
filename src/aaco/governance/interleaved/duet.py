"""Is one side slower than the other, when both were measured in turns: Student's t over the processes of a duet.

Each fresh process holds both sides and alternates them; what it says is one number, the median of log(current /
baseline) over its pairs. The machine's state of the moment is in both members of a pair and cancels. What does not
cancel is the order in which the two were created (the later one sits elsewhere in memory), so that order is drawn
anew for each process and its effect is estimated from controls: processes whose two sides are the same thing. Controls
of either side in turn scatter, on average, exactly as a change does (the variance of A - A and of B - B averages to
that of A - B), so both estimate one variance by least squares.

References: Bulej et al., "Duet Benchmarking", ICPE 2020 (pairs); Smyth 2004, "Linear models and empirical Bayes
methods", section 6 (the prior and its degrees of freedom); Kim & DeMets 1987 (how alpha is spent over looks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from aaco.core import statistics
from aaco.core.arrays import Reals
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.core.tables import replaced
from aaco.core.words import plural
from aaco.governance import compare
from aaco.governance.calibrate import probability
from aaco.governance.compare import Comparison
from aaco.governance.prior import LEAST_RUNS, Prior, prior_of_variances
from aaco.governance.spread import ROUNDING
from aaco.governance.verdict_document import DETECTABLE

Kind = Literal["change", "baseline control", "current control"]
KINDS: tuple[Kind, ...] = ("change", "baseline control", "current control")

LEAST_PROCESSES = 5  # a verdict needs (docs/concepts/regressions.md)
LEAST_QUIET = 20  # pairs that a process must have left where only quiet ones count
LEAST_MARGIN_PCT = 0.5  # what the order of creation alone was seen to make of two equal sides
UNLIKE = 0.05  # a prior is not believed where this run's spread, under it, would be rarer than that
SPENDING = 2.0  # the share of alpha that is spent by a share t of the processes is t**SPENDING
DISTURBED = 1.25  # a spin that took this many times the machine's usual one: something else ran beside the pair
USUAL = 0.1  # which quantile of the spins is the usual one
ESTIMATOR = "mean over processes of the median of log(current / baseline) over pairs, less the order of creation"


class Unit(Struct, frozen=True):
    """What one process found. order: +1 where current was created after baseline, -1 before it; of commands, which
    are created for every pair anew, the mean over its pairs of which ran second."""

    kind: Kind
    log_ratio: float
    order: float
    pairs: int
    disturbed: int = 0  # pairs beside which the machine was not as usual, whether or not they count


class Fit(Struct, frozen=True):
    """The change from baseline to current on the log scale; `sigma` is that of one process."""

    effect: float
    standard_error: float
    degrees: float
    sigma: float
    order_effect: float | None  # None: the processes cannot tell it from the change
    prior: Prior | None
    why_no_prior: str
    processes: int


class Look(Struct, frozen=True):
    """One of the planned looks at the data: after so many processes, at this share of alpha."""

    processes: int
    alpha: float


def unit(kind: Kind, baseline: Reals, current: Reals, order: float, disturbed: NDArray[np.bool_],
         only_quiet: bool = False) -> Unit:
    """Return a process's finding from its pairs of times; only_quiet: leaves out the pairs that were disturbed.

    Raise Absent where no pairs are left, ValueError for times that are none.
    """
    if not (np.isfinite(baseline).all() and np.isfinite(current).all()):
        raise ValueError("a time that is no number")
    if (baseline <= 0).any() or (current <= 0).any():
        raise ValueError("a time of zero or less")
    counted = ~disturbed if only_quiet else np.ones(len(baseline), bool)
    if not counted.any():
        raise Absent(f"all of its {len(counted)} pairs were disturbed" if len(counted) else "it has no pairs")
    ratios = np.log(current[counted] / baseline[counted])
    return Unit(kind, float(np.median(ratios)), order, int(counted.sum()), int(disturbed.sum()))


def units(pairs: pa.Table, only_quiet: bool = False, times: str = "ms") -> tuple[Unit, ...]:
    """Return what each process of the pairs table found, in order; only_quiet: of the pairs that were not disturbed,
    and processes with too few of those left out. times: which of either side's, as its columns end.

    Raise ValueError for times that are none.
    """
    process = pairs["process"].to_numpy()
    found = (_of_process(pairs.filter(process == number), only_quiet, times) for number in np.unique(process))
    return tuple(one for one in found if one)


def _of_process(rows: pa.Table, only_quiet: bool, times: str) -> Unit | None:
    first = rows["created_first"] if rows["created_first"][0].as_py() else rows["ran_first"]
    order = np.array([1.0 if name == "baseline" else -1.0 for name in first.to_pylist()])
    noisy = rows["disturbed"].to_numpy()
    if only_quiet and int((~noisy).sum()) < LEAST_QUIET:
        return None
    baseline, current = (rows[f"{side}_{times}"].to_numpy() for side in ("baseline", "current"))
    return unit(rows["kind"][0].as_py(), baseline, current, float(order.mean()), noisy, only_quiet)


def disturbed(spins_ns: Reals) -> NDArray[np.bool_]:
    """Return which of these times of one fixed piece of work, of a whole run, are not as usual on this machine."""
    if not len(spins_ns):
        return np.zeros(0, bool)
    return np.asarray(spins_ns > DISTURBED * np.quantile(spins_ns, USUAL))


def marked(pairs: pa.Table) -> pa.Table:
    """Return the pairs table with its column `disturbed` filled in."""
    return replaced(pairs, "disturbed", pa.array(disturbed(pairs["spin_ns"].to_numpy())))


def prior(history: Sequence[Sequence[float]]) -> Prior:
    """Return what the controls of earlier runs say of the scatter: per run, its log ratios.

    The prior of Smyth (2004): the runs' log variances scatter by chance (trigamma of their degrees) and beyond it by
    how much the machine's spread differs from run to run; the less of that, the more a prior is worth. It is worth no
    more than what the runs hold together. Raise Absent where there are too few.
    """
    runs = [np.asarray(run, np.float64) for run in history if len(run) > 1]
    variances = np.array([run.var(ddof=1) for run in runs])
    usable = np.isfinite(variances) & (variances > ROUNDING**2)
    if usable.sum() < LEAST_RUNS:
        raise Absent(f"{plural(int(usable.sum()), 'earlier run')} of this on this machine with controls, {LEAST_RUNS} "
                     "are needed to know how much the spread differs from run to run")
    degrees = np.array([len(run) - 1.0 for run in runs])[usable]
    return prior_of_variances(variances[usable], degrees)


def fit(units: Sequence[Unit], believed: Prior | None = None, why_no_prior: str = "") -> Fit:
    """Least squares of log ratio on change and order of creation over all processes, one variance for all of them.

    The variance is shrunk towards the prior's unless this run scatters so much more that the prior does not describe
    it. Raise Absent where nothing can be estimated.
    """
    changes = [one for one in units if one.kind == "change"]
    if len(changes) < 2:
        raise Absent(f"{len(changes)} process(es) measured both sides: two are the least that have a spread")
    values = np.array([one.log_ratio for one in units])
    if not np.isfinite(values).all():
        raise ValueError("a log ratio that is no number")
    design, has_order = _design(units)
    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    own_degrees = len(values) - int(rank)
    if own_degrees < 1:
        raise Absent("as many processes as there is to estimate: no spread is left over")
    residuals = values - design @ solution
    own = float(residuals @ residuals) / own_degrees
    if own <= ROUNDING**2:
        raise Absent("every process found the very same ratio: a clock too coarse, or times that were not measured")
    believed, why = _believable(believed, why_no_prior, own, own_degrees)
    degrees, variance = float(own_degrees), own
    if believed:
        degrees = own_degrees + believed.degrees
        variance = (own_degrees * own + believed.degrees * believed.variance) / degrees
    spread = float(np.linalg.inv(design.T @ design)[0, 0])
    return Fit(float(solution[0]), math.sqrt(variance * spread), degrees, math.sqrt(variance),
               float(solution[1]) if has_order else None, believed, why, len(changes))


def widened(fit: Fit, correlation: float) -> Fit:
    """Return the fit of units in time, of which only adjacent ones correlate: their mean scatters more than their
    spread says, and their spread is less than that of independent units."""
    count = fit.processes
    wider = (1 + 2 * (count - 1) / count * correlation) / (1 - 2 * correlation / count)
    return replace(fit, standard_error=fit.standard_error * math.sqrt(wider))


def looks(first: int, most: int, alpha: float) -> tuple[Look, ...]:
    """Return the looks of a run of `first` to `most` processes, each twice as far as the one before, with their alphas.

    They are planned before anything is measured, and their alphas sum to `alpha`. Each look's interval is at its own
    alpha, so all of them hold together with probability 1 - alpha at least (Bonferroni), however the looks depend on
    each other and for any reason one stops at one of them.
    """
    if not 2 <= first <= most:
        raise UsageError(f"{first} to {most} processes", "at least two, and no more at first than at most")
    counts = [first]
    while counts[-1] < most:
        counts.append(min(most, 2 * counts[-1]))
    spent = [(count / most) ** SPENDING * alpha for count in counts]
    return tuple(Look(count, now - before) for count, now, before in zip(counts, spent, [0.0, *spent], strict=False))


def judge(found: Fit, look: Look, alpha: float, tolerance_pct: float, unit_name: Literal["process", "block"],
          design: str) -> Comparison:
    """Return the three-way decision on the interval at the look's own alpha. p_* are scaled to the whole alpha, so that
    they may be held against it at any look. Raise UsageError for a margin below LEAST_MARGIN_PCT.
    """
    if not LEAST_MARGIN_PCT <= tolerance_pct < math.inf:
        raise UsageError(f"a tolerance of {tolerance_pct:g} %", f"at least {LEAST_MARGIN_PCT} %: the order of creation "
                         "alone makes as much of two equal sides")
    error, margin, scale = found.standard_error, math.log1p(tolerance_pct / 100), alpha / look.alpha
    quantile = statistics.t_quantile(1 - look.alpha / 2, found.degrees)
    low, high = found.effect - quantile * error, found.effect + quantile * error
    mde_pct = statistics.percent(statistics.detectable(1 - look.alpha, found.degrees) * error)
    status, why = compare.decide(low, high, margin, mde_pct, tolerance_pct)
    too_few = found.processes < LEAST_PROCESSES
    if too_few:
        status, why = "inconclusive", f"{plural(found.processes, 'process')}: a verdict needs {LEAST_PROCESSES}"
    worse, better = probability(found.effect, error, found.degrees, margin)
    return Comparison(
        status, why, statistics.percent(found.effect), tolerance_pct, 1 - alpha, unit_name,
        (found.processes, found.processes), design, low_pct=statistics.percent(low), high_pct=statistics.percent(high),
        p_regression=worse, p_improvement=better,
        p_tolerance=min(1.0, scale * statistics.t_cdf((margin - found.effect) / error, found.degrees)),
        p_value=min(1.0, scale * 2 * statistics.t_cdf(-abs(found.effect) / error, found.degrees)),
        mde80_pct=mde_pct, mde80_normal_pct=100 * DETECTABLE * error, sigma_session=found.sigma,
        degrees=found.degrees,
        veto="too few" if too_few else None, history=found.prior.runs if found.prior else 0)


def settled(found: Comparison, precision_pct: float | None = None) -> bool:
    """Return whether to stop looking: the answer is there, or the interval is narrow enough."""
    if found.status != "inconclusive":
        return True
    if precision_pct is None or found.low_pct is None or found.high_pct is None:
        return False
    return (found.high_pct - found.low_pct) / 2 <= precision_pct


def oriented(units: Sequence[Unit]) -> list[float]:
    """Return the log ratios of controls as later created over earlier created, for the history."""
    return [one.log_ratio * (math.copysign(1.0, one.order) if one.order else 1.0) for one in units]


def _design(units: Sequence[Unit]) -> tuple[Reals, bool]:
    """Rows (is a change, order); without the order's column where that cannot be told from the change."""
    both = np.array([[one.kind == "change", one.order] for one in units], np.float64)
    if np.linalg.matrix_rank(both) == 2 and len(units) > 3:
        return both, True
    return both[:, :1], False


def _believable(believed: Prior | None, why: str, own: float, degrees: int) -> tuple[Prior | None, str]:
    if believed and statistics.f_upper(own / believed.variance, degrees, believed.degrees) < UNLIKE:
        times = math.sqrt(own / believed.variance)
        return None, f"this run scatters {times:.1f} times as much as the {believed.runs} before it say"
    return believed, why
