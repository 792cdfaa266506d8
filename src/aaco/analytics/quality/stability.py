"""Whether a series of latencies is steady enough to represent what it measures: independence, drift, number of modes.

All of it describes one run in its order. Whether two runs differ is a question over processes; these do not answer it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

from aaco.core import special
from aaco.core.arrays import Ints, Reals
from aaco.core.readings import Absent

LEAST = 10  # fewer iterations are not judged
POINTS = 400  # a longer series is cut into this many equal parts, and their medians represent it
LAGS = 10
GRID = 256
VALLEY = 0.6  # of the lower peak: a density that falls deeper between two peaks has two modes
SHARE = 0.1  # of the iterations that a mode holds at least


def autocorrelation(series: Reals, lag: int = 1) -> float:
    """Return the correlation of the series with itself `lag` later, by the usual biased estimate (Box and Jenkins).

    Raise Absent for a series too short, or without any variation.
    """
    centred = _long_enough(series) - series.mean()
    total = float(centred @ centred)
    if not total:
        raise Absent("all latencies are equal")
    return float(centred[lag:] @ centred[:-lag]) / total


def effective_size(series: Reals) -> float:
    """Return how many independent iterations carry as much about the mean: n (1 - r) / (1 + r), r the lag-1
    correlation.

    Exact for a first-order autoregression and long series; negative correlation counts as none.
    """
    positive = max(0.0, autocorrelation(series))
    return len(series) * (1 - positive) / (1 + positive)


def ljung_box_p(series: Reals, lags: int = LAGS) -> float:
    """Return the probability of autocorrelations as large as these in a series without any (Ljung and Box 1978)."""
    count, lags = len(_long_enough(series)), min(lags, len(series) // 5)
    terms = (autocorrelation(series, lag) ** 2 / (count - lag) for lag in range(1, lags + 1))
    return special.chi_square_upper(count * (count + 2) * sum(terms), lags)


def drift(series: Reals) -> tuple[float, float]:
    """Return how far the series moved from its first to its last, and the probability of that without a trend.

    The slope is Theil's and Sen's median of all slopes, the probability Mann's and Kendall's with its correction for
    ties, both over the medians of at most `POINTS` equal parts, two-sided.
    """
    points = _thinned(_long_enough(series))
    later, earlier, apart = _pairs(len(points))
    rise = points[later] - points[earlier]
    slope = float(np.median(rise / apart))
    return slope * (len(points) - 1), _kendall_p(points, int(np.sign(rise).sum()))


@lru_cache(maxsize=2)  # a fleet's groups, and the parts of long series, are often of one length
def _pairs(count: int) -> tuple[Ints, Ints, Ints]:
    """Return the later and the earlier place of every pair, and the distance between them."""
    later, earlier = np.tril_indices(count, -1)
    return later, earlier, later - earlier


def _kendall_p(points: Reals, score: int) -> float:
    count, ties = len(points), np.unique(points, return_counts=True)[1]
    variance = (count * (count - 1) * (2 * count + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if not variance:
        return 1.0
    return math.erfc(max(abs(score) - 1, 0) / math.sqrt(2 * variance))


def modes(series: Reals) -> int:
    """Return how many modes the latencies have, outliers left out.

    Peaks of a Gaussian kernel density of Silverman's bandwidth (1986, 3.31), between which it falls below `VALLEY` of
    the lower one, and which hold `SHARE` of the iterations each. Its errors are in tests/unit/test_stability.py.
    """
    kept = _without_outliers(_long_enough(series))
    spread = min(float(kept.std(ddof=1)), float(np.subtract(*np.quantile(kept, [0.75, 0.25]))) / 1.34)
    if not spread:
        return 1
    width = 0.9 * spread * len(kept) ** -0.2
    points = np.quantile(kept, (np.arange(min(len(kept), POINTS)) + 0.5) / min(len(kept), POINTS))
    grid = np.linspace(points[0] - 2 * width, points[-1] + 2 * width, GRID)
    density = np.exp(-0.5 * ((grid[:, None] - points) / width) ** 2).sum(axis=1)
    return _peaks(density, grid, kept)


def _peaks(density: Reals, grid: Reals, kept: Reals) -> int:
    """Return the number of separate peaks: two adjacent ones merge while the valley between them is shallow or one is
    small."""
    inner = density[1:-1]
    tops = [int(place) + 1 for place in np.flatnonzero((inner > density[:-2]) & (inner >= density[2:]))]
    while len(tops) > 1:
        valleys = [int(left + density[left:right].argmin()) for left, right in pairwise(tops)]
        edges = [-np.inf, *grid[valleys], np.inf]
        held = np.histogram(kept, edges)[0] / len(kept)
        depth = [density[valley] / min(density[left], density[right])
                 for valley, (left, right) in zip(valleys, pairwise(tops), strict=True)]
        if held.min() < SHARE:
            del tops[int(held.argmin())]
        elif max(depth) > VALLEY:
            pair = int(np.argmax(depth))
            del tops[pair if density[tops[pair]] < density[tops[pair + 1]] else pair + 1]
        else:
            break
    return max(1, len(tops))


def _without_outliers(series: Reals) -> Reals:
    """Return the values within twice the range of nine tenths of them: a second mode is no outlier, however far it is.
    """
    low, middle, high = np.quantile(series, [0.05, 0.5, 0.95])
    reach = max(high - middle, middle - low)
    return series[np.abs(series - middle) <= 2 * reach] if reach else series


def _thinned(series: Reals) -> Reals:
    if len(series) <= POINTS:
        return series
    size, longer = divmod(len(series), POINTS)  # that many parts have one value more
    border = longer * (size + 1)
    parts = (series[:border].reshape(longer, size + 1), series[border:].reshape(POINTS - longer, size))
    return np.concatenate([np.median(part, axis=1) for part in parts])


def _long_enough(series: Reals) -> Reals:
    if len(series) < LEAST:
        raise Absent(f"needs {LEAST} iterations, there are {len(series)}")
    return series
