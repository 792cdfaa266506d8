"""How a series scatters: a robust centre and scale, outliers drawn in, and the memory of its noise.

Performance histories have spikes, long tails and memory: a machine that is slow now is slow at the next measurement,
too. Everything here is computed so that a few changes of level do not pass for noise: scales are quantiles of absolute
deviations (Rousseeuw & Croux 1993), memory is read from the variogram, which a step touches at a few lags only.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import sliding_window_view

from aaco.core.arrays import Reals
from aaco.core.readings import Absent

MEAN_TO_SIGMA = float(np.sqrt(np.pi / 2))  # of the mean absolute deviation of a normal sample
SPIKE = 5  # values of a running median: it passes over spikes of two
DRAWN_IN = 4.0  # scales from the running median beyond which a value counts as that far away
LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
PER_LAG = 10  # values that a lag must have to be read: a step touches as many differences as the lag is long
MOST_MEMORY = 0.95  # a noise that forgets slower than this cannot be told from a drifting level
FEWEST = 6
FLAT = 1e-12  # logarithms that differ by less are those of equal values: a double carries no more


class Baseline(Struct, frozen=True):
    """The centre and scale of a stretch that is taken as normal: median and 1.4826 x median absolute deviation.

    `estimator` says which scale it is: where more than half of the values are one and the same (a coarse clock), the
    median deviation is 0, which is not the noise; the mean absolute deviation stands in.
    """

    median: float
    sigma: float
    count: int
    estimator: str

    def residuals(self, values: Sequence[float] | Reals) -> Reals:
        """Return how many sigmas each value is above the centre."""
        return np.asarray((np.asarray(values, dtype=np.float64) - self.median) / self.sigma)


def baseline(values: Sequence[float] | Reals) -> Baseline:
    """Return the robust baseline of a stretch of values. Raise Absent for fewer than 6, for NaN, and for a constant."""
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < FEWEST:
        raise Absent(f"a baseline needs {FEWEST} values, there are {len(sample)}")
    if not np.isfinite(sample).all():
        raise Absent("not every value is a finite number")
    middle = float(np.median(sample))
    deviations = np.abs(sample - middle)
    sigma = scale(deviations)
    if sigma <= FLAT * max(abs(middle), FLAT):
        raise Absent("every value is the same: there is no scatter to measure a change against")
    estimator = "median absolute deviation" if np.median(deviations) else "mean absolute deviation"
    return Baseline(middle, sigma, len(sample), estimator)


def scale(deviations: Reals, share: float = 0.5) -> float:
    """Return the standard deviation of the normal noise whose absolute deviations have this quantile; 0 for none at
    all.

    share: 0.5 gives 1.4826 x MAD. Where that quantile is 0, the mean deviation stands in: values that repeat exactly
    are rounded, not free of noise.
    """
    sizes = np.abs(deviations)
    if not len(sizes):
        return 0.0
    found = float(np.quantile(sizes, share)) / NormalDist().inv_cdf(0.5 + share / 2)
    return found or MEAN_TO_SIGMA * float(sizes.mean())


def difference_scale(values: Reals, share: float = 0.5) -> float:
    """Return the noise from one value to the next, which changes of level hardly touch."""
    return scale(np.diff(values), share) / float(np.sqrt(2))


def running_median(values: Reals, width: int) -> Reals:
    """Return the median of `width` (odd) values around each; at the ends, of as many of them as there are, repeated."""
    if len(values) <= width:
        return np.full(len(values), np.median(values))
    half = width // 2
    ends = np.full(half, np.median(values[:half + 1])), np.full(half, np.median(values[-half - 1:]))
    return np.asarray(np.median(sliding_window_view(np.concatenate([ends[0], values, ends[1]]), width), axis=1))


def tamed(values: Reals) -> Reals:
    """Return the values with those further than 4 scales from their neighbours drawn in to there: a step stays a
    step.
    """
    middle, reach = running_median(values, SPIKE), DRAWN_IN * difference_scale(values)
    return np.asarray(middle + np.clip(values - middle, -reach, reach))


def memory(residuals: Reals, share: float = 0.5) -> float:
    """Return the first autocorrelation of noise that forgets exponentially, from its variogram; 0 to 0.95.

    The variogram, half the squared scale of differences at a lag, rises from sigma^2 (1 - rho) at lag 1 to sigma^2.
    """
    heights = [scale(residuals[lag:] - residuals[:-lag], share) ** 2 for lag in LAGS if len(residuals) >= PER_LAG * lag]
    if len(heights) < 2 or not max(heights):
        return 0.0
    return float(np.clip(1 - heights[0] / max(heights), 0.0, MOST_MEMORY))


def effective(count: float, rho: float) -> float:
    """Return how many independent values have a mean as sure as that of `count` values with this memory."""
    return max(1.0, count * (1 - rho) / (1 + rho))
