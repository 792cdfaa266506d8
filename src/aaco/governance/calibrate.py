"""How probable it is that something got slower: a posterior, made honest on comparisons whose answer is known.

The prior is that of a gate: in half of all comparisons nothing changed, in the other half the change is of either sign
and of any size, small ones being more common (Laplace on the log scale). The likelihood is Student's t of the
comparison. What the posterior says is then brought to what it turned out to be worth: a logistic fit (Platt 1999) on
comparisons of known answer; `python -m benchmarks.governance --only calibration` prints how far it is off on others
(docs/concepts/regressions.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

CHANGED = 0.5  # prior probability that anything changed
TYPICAL = 0.10  # mean size of a change that did, on the log scale
NODES = 4001
LIMIT = 1e-3  # no reliability was published for what is surer than this


@dataclass(frozen=True)
class Fit:
    """A logistic fit: logit of the probability = intercept + slope x logit of the posterior."""

    intercept: float
    slope: float

    def __call__(self, posterior: float) -> float:
        inside = min(max(posterior, 1e-9), 1 - 1e-9)
        odds = self.intercept + self.slope * math.log(inside / (1 - inside))
        return min(max(1 / (1 + math.exp(-odds)), LIMIT), 1 - LIMIT)


FITTED = Fit(0.292, 0.940)


def probability(effect: float, error: float, degrees: float, margin: float) -> tuple[float, float]:
    """The probabilities that the true change is a slowdown beyond the margin, and a speed-up beyond it.

    effect, error, margin: on the log scale, positive = slower; error > 0, margin >= 0.
    """
    worse, better = posterior(effect, error, degrees, margin)
    return FITTED(worse), FITTED(better)


def posterior(effect: float, error: float, degrees: float, margin: float) -> tuple[float, float]:
    """The same before calibration.

    The slab's part is the mean of the prior's density over quantiles of the likelihood, taken as a distribution of the
    true change: exact for any prior that is smooth on the scale of a node.
    """
    truth = effect - error * _nodes(round(degrees, 2))
    weight = np.exp(-np.abs(truth) / TYPICAL) / (2 * TYPICAL)
    slab, unchanged = float(weight.mean()), _density(effect / error, degrees) / error
    total = CHANGED * slab + (1 - CHANGED) * unchanged
    if not total > 0:  # further out than doubles reach: the change is as large as it looks
        return float(effect > margin), float(effect < -margin)
    beyond = (float(weight[truth > margin].sum()), float(weight[truth < -margin].sum()))
    return CHANGED * beyond[0] / NODES / total, CHANGED * beyond[1] / NODES / total


@lru_cache(256)
def _nodes(degrees: float) -> Reals:
    from scipy.special import stdtrit

    return np.asarray(stdtrit(degrees, (np.arange(NODES) + 0.5) / NODES))


def _density(t: float, degrees: float) -> float:
    """Of Student's t."""
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    return math.exp(scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))
