"""How probable it is that something got slower: a posterior, calibrated on comparisons with a known answer.

The prior is that of a gate: in half of all comparisons nothing changed, in the other half the change is of either sign
and of any size, small ones being more common (Laplace on the log scale). The likelihood is Student's t of the
comparison. The posterior is then mapped to the frequencies that were observed: a logistic fit (Platt 1999) on
comparisons of known answer; `python -m benchmarks.governance --only calibration` prints how far it is off on others
(docs/concepts/regressions.md).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Reals

CHANGED = 0.5  # prior probability that anything changed
TYPICAL = 0.10  # mean size of a change that did, on the log scale
NODES = 1000  # of each distribution
LIMIT = 1e-3  # no reliability was published for what is surer than this


class Fit(Struct, frozen=True):
    """A logistic fit: logit of the probability = intercept + slope x logit of the posterior."""

    intercept: float
    slope: float

    def __call__(self, posterior: float) -> float:
        inside = min(max(posterior, 1e-9), 1 - 1e-9)
        odds = self.intercept + self.slope * math.log(inside / (1 - inside))
        return min(max(1 / (1 + math.exp(-odds)), LIMIT), 1 - LIMIT)


_SHARES = (np.arange(NODES) + 0.5) / NODES
_PRIOR = TYPICAL * np.sign(_SHARES - 0.5) * -np.log1p(-2 * np.abs(_SHARES - 0.5))
FITTED = Fit(0.292, 0.940)


def probability(effect: float, error: float, degrees: float, margin: float) -> tuple[float, float]:
    """Return the probabilities that the true change is a slowdown beyond the margin, and a speed-up beyond it.

    effect, error, margin: on the log scale, positive = slower; error > 0, margin >= 0.
    """
    worse, better = posterior(effect, error, degrees, margin)
    return FITTED(worse), FITTED(better)


def posterior(effect: float, error: float, degrees: float, margin: float) -> tuple[float, float]:
    """Return the same before calibration: the joint density of prior and likelihood, by the trapezoidal rule over the
    quantiles of both, so that wherever either is narrow there are nodes.
    """
    corners = np.array([0.0, margin, -margin, effect])
    truth = np.sort(np.concatenate((effect - error * _nodes(round(degrees, 2)), _PRIOR, corners)))
    joint = np.exp(-np.abs(truth) / TYPICAL) / (2 * TYPICAL) * _density((effect - truth) / error, degrees) / error
    parts = np.diff(truth) * (joint[1:] + joint[:-1]) / 2
    unchanged = (1 - CHANGED) * float(_density(np.array(effect / error), degrees)) / error
    total = CHANGED * float(parts.sum()) + unchanged
    if not total > 0:  # further out than doubles reach: the change is as large as it looks
        return float(effect > margin), float(effect < -margin)
    beyond = float(parts[truth[:-1] >= margin].sum()), float(parts[truth[1:] <= -margin].sum())
    return CHANGED * beyond[0] / total, CHANGED * beyond[1] / total


@lru_cache(256)
def _nodes(degrees: float) -> Reals:
    from scipy.special import stdtrit

    return np.asarray(stdtrit(degrees, _SHARES))


def _density(t: Reals, degrees: float) -> Reals:
    """Of Student's t."""
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    return np.asarray(np.exp(scale - (degrees + 1) / 2 * np.log1p(t * t / degrees)))
