"""One definition per statistic, used everywhere: quantiles, their intervals, spread, and Student's t.

Quantiles interpolate linearly between order statistics (Hyndman & Fan 1996, type 7), as numpy and DuckDB's
quantile_cont do. Intervals for quantiles are distribution-free: order statistics with an exact binomial coverage that
reaches the level (Conover, Practical Nonparametric Statistics, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from aaco.core.readings import Absent, Estimate
from aaco.core.special import digamma as digamma
from aaco.core.special import t_cdf as t_cdf
from aaco.core.special import t_cdfs as t_cdfs
from aaco.core.special import t_quantile as t_quantile
from aaco.core.special import trigamma as trigamma

Sample = NDArray[np.float64] | Sequence[float]
MAD_TO_SIGMA = 1.4826


def quantile(sample: Sample, q: float, level: float = 0.95) -> Estimate:
    """The q-quantile with its order-statistic interval.

    The interval is absent (None) where no pair of order statistics reaches the level. Raises Absent when the sample
    cannot support the quantile: fewer than one observation is expected beyond it.
    """
    count = len(sample)
    needed = smallest_sample(q)
    if count < needed:
        raise Absent(f"p{100 * q:g} needs at least {needed} iterations, there are {count}")
    ordered = np.sort(np.asarray(sample, dtype=np.float64))
    ranks = interval_ranks(count, q, level)
    low, high = (float(ordered[ranks[0]]), float(ordered[ranks[1]])) if ranks else (None, None)
    return Estimate(float(np.quantile(ordered, q)), low, high)


def smallest_sample(q: float) -> int:
    """The smallest count with at least one observation expected beyond the quantile on its far side."""
    return math.ceil(1 / min(q, 1 - q) - 1e-9)


def early_stopping_count(q: float, confidence: float = 0.99) -> int:
    """Return how many observations a statement about the q-quantile needs when one of them may lie beyond it.

    The early-stopping rule of MLPerf LoadGen: the fewest with which one beyond the quantile happens less often than
    1 - confidence if the share within it is below q. 64 for p90, 662 for p99.
    """
    count = 1
    while q**count * (1 + count * (1 - q)) >= 1 - confidence:
        count += 1
    return count + 1


@lru_cache(1 << 10)  # every process of a fleet has about as many iterations
def interval_ranks(count: int, q: float, level: float) -> tuple[int, int] | None:
    """0-based ranks (low, high) of the order statistics that cover the q-quantile with at least `level`.

    The two ends are each trimmed by at most (1 - level) / 2; None when the sample is too small for that.
    """
    tail = (1 - level) / 2
    cumulative = np.cumsum(_binomial(count, q))
    low = int(np.searchsorted(cumulative, tail, side="right")) - 1
    high = int(np.searchsorted(cumulative, 1 - tail, side="left"))
    return (low, high) if low >= 0 and high < count else None


def percent(log_ratio: float) -> float:
    """Return a change on the log scale in percent."""
    return 100 * math.expm1(min(log_ratio, 700.0))  # beyond that a double overflows; the interval of 1 degree can


def mean_interval(sample: Sample, level: float = 0.95) -> Estimate:
    """The mean with its Student-t interval; the interval is None for one observation.

    Of positive values it is that of the mean's logarithm (delta method), so that both ends are positive.
    """
    values = np.asarray(sample, dtype=np.float64)
    if not len(values):
        raise Absent("no iterations")
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    half = t_quantile(0.5 + level / 2, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    if values.min() > 0:
        return Estimate(mean, mean * math.exp(-half / mean), mean * math.exp(half / mean))
    return Estimate(mean, mean - half, mean + half)


def mad_sigma(sample: Sample) -> float:
    """Median absolute deviation scaled to the standard deviation of a normal sample."""
    values = np.asarray(sample, dtype=np.float64)
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def f_upper(ratio: float, above: float, below: float) -> float:
    """P(F > ratio) for Fisher's F with `above` and `below` degrees of freedom."""
    from scipy.special import fdtrc

    return float(fdtrc(above, below, ratio))


def inverse_trigamma(y: float) -> float:
    """The x > 0 with trigamma(x) = y, by bisection on the logarithm (trigamma falls from infinity to 0)."""
    low, high = math.log(1e-8), math.log(1e8)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(math.exp(middle)) > y else (low, middle)
    return math.exp((low + high) / 2)


def f_quantile(p: float, between: float, within: float) -> float:
    """The p-quantile of Fisher's F with these degrees of freedom."""
    from scipy.special import fdtri

    return float(fdtri(between, within, p))


def detectable(level: float, degrees: float, power: float = 0.8) -> float:
    """How many standard errors long a true change is that a two-sided t test at `level` sees with this power.

    The noncentrality at which Student's t exceeds its quantile so often (the other tail is left out: it adds less than
    a thousandth); 2.8 for many degrees of freedom, a level of 0.95 and a power of 0.8, and more for fewer degrees.
    """
    from scipy.special import nctdtrinc

    return float(nctdtrinc(degrees, 1 - power, t_quantile(0.5 + level / 2, degrees)))


def _binomial(count: int, q: float) -> NDArray[np.float64]:
    """P(X = k), k = 0..count-1, for X ~ Binomial(count, q), through logarithms so that large counts work."""
    k = np.arange(count, dtype=np.float64)
    log_factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))
    log_choose = log_factorials[count] - log_factorials[:count] - log_factorials[count - np.arange(count)]
    return np.asarray(np.exp(log_choose + k * math.log(q) + (count - k) * math.log1p(-q)))
