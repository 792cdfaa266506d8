"""The interval of a change from few blocks that scatter evenly to both sides of it, however widely each of them does.

On which side of the truth a block lies is then a tossed coin, and so is on which side a sum of some of them does: the
means of all subsets cut the line into parts that hold the truth equally often (Hartigan 1969, "Using subsample values
as typical values", JASA 64). An interval between two of them has its level for any scatter, also where a disturbance
makes some blocks scatter much more than others; Student's t is then too wide (Ibragimov and Mueller 2010, JBES 28), and
for blocks of measurements that follow each other the flips are the sharper of both (Canay, Romano and Shaikh 2017,
Econometrica 85). It is the test of Fisher and Pitman on the mean, turned around.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from aaco.core import statistics
from aaco.core.arrays import Reals
from aaco.governance import compare
from aaco.governance.compare import Comparison

MOST_COUNTED = 12  # blocks of which every subset is taken; of more as many subsets are drawn
SEED = 1969


def least_blocks(alpha: float) -> int:
    """Return of how many blocks the smallest p-value is alpha or less, and an interval at 1 - alpha has two ends."""
    return math.ceil(math.log2(2 / alpha) - 1e-9)


def subset_means(values: Reals) -> Reals:
    """Return the means of the subsets of some values that are not empty, sorted; of many values of subsets drawn."""
    return np.sort(_shares(len(values)) @ values)


@lru_cache(4)
def _shares(count: int) -> Reals:
    """Return the weight of each value in the mean of each subset."""
    if count <= MOST_COUNTED:
        chosen = np.arange(1, 1 << count)[:, None] >> np.arange(count) & 1
    else:
        drawn = np.random.default_rng(SEED).integers(0, 2, ((1 << MOST_COUNTED) - 1, count))
        chosen = drawn[drawn.any(axis=1)]
    return np.asarray(chosen / chosen.sum(axis=1, keepdims=True), np.float64)


def interval(means: Reals, alpha: float) -> tuple[float, float]:
    """Return the interval at level 1 - alpha, or barely more; without an end where there are too few subsets."""
    outside = int(alpha / 2 * (len(means) + 1) + 1e-9)
    return (float(means[outside - 1]), float(means[-outside])) if outside else (-math.inf, math.inf)


def p_above(means: Reals, least: float) -> float:
    """Return the one-sided p-value of the change being `least` at most."""
    return float(np.searchsorted(means, least, side="right") + 1) / (len(means) + 1)


def judged(seen: Comparison, values: Reals, alpha: float) -> Comparison:
    """Return the comparison by Student's t with the interval, the p-values and the decision of the flips.

    values: of each block, on the log scale. mde80_pct and the probabilities stay those of Student's t.
    """
    means, margin = subset_means(values), math.log1p(seen.tolerance_pct / 100)
    low, high = interval(means, alpha)
    if math.isinf(low):
        return replace(seen, status="inconclusive", veto="too few",
                       why=f"{len(values)} blocks of pairs: a verdict needs {least_blocks(alpha)}")
    assert seen.mde80_pct is not None
    status, why = compare.decide(low, high, margin, seen.mde80_pct, seen.tolerance_pct)
    either = 2 * min(p_above(means, 0.0), p_above(-means[::-1], 0.0))
    return replace(seen, status=status, why=why, low_pct=statistics.percent(low), high_pct=statistics.percent(high),
                   p_value=min(1.0, either), p_tolerance=p_above(means, margin))
