"""P(regression): its integral against quadrature, its limits, and whether it is what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from aaco.governance import calibrate
from aaco.governance.calibrate import CHANGED, LIMIT, TYPICAL, posterior, probability

MARGIN = math.log1p(0.05)


@pytest.mark.parametrize(("effect", "error", "degrees"), [
    (0.0, 0.01, 8), (0.05, 0.01, 8), (0.06, 0.01, 8), (0.2, 0.1, 3), (-0.3, 0.05, 60), (0.05, 0.3, 1.7),
    (1.0, 0.2, 20)])
def test_the_posterior_is_bayes_rule(effect, error, degrees):
    """Mutation: a prior without its share of no change."""
    def joint(truth):
        return CHANGED * stats.laplace.pdf(truth, scale=TYPICAL) * stats.t.pdf((effect - truth) / error,
                                                                               degrees) / error

    marks = sorted({-MARGIN, 0.0, MARGIN, effect})
    parts = [integrate.quad(joint, low, high, limit=500)[0]
             for low, high in zip([-4.0, *marks], [*marks, 4.0], strict=True)]
    edges = [-4.0, *marks, 4.0]
    worse = sum(part for part, low in zip(parts, edges, strict=False) if low >= MARGIN)
    better = sum(part for part, high in zip(parts, edges[1:], strict=False) if high <= -MARGIN)
    total = sum(parts) + (1 - CHANGED) * stats.t.pdf(effect / error, degrees) / error
    found = posterior(effect, error, degrees, MARGIN)
    assert found == pytest.approx((worse / total, better / total), abs=2e-3)


@given(st.floats(-3, 3), st.floats(1e-12, 3), st.floats(1, 1e4), st.floats(0, 1))
def test_it_is_a_probability_and_grows_with_the_effect(effect, error, degrees, margin):
    worse, better = probability(effect, error, degrees, margin)
    assert LIMIT <= worse <= 1 - LIMIT and LIMIT <= better <= 1 - LIMIT
    assert probability(-effect, error, degrees, margin) == pytest.approx((better, worse), abs=1e-3)
    assert sum(posterior(effect, error, degrees, margin)) <= 1 + 1e-9


def test_a_change_that_is_certain_and_one_that_is_not_there():
    assert posterior(0.5, 1e-6, 50, MARGIN) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert posterior(0.0, 1e-6, 50, MARGIN) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert probability(math.log(3), 1e-12, 8, MARGIN)[0] == 1 - LIMIT


def test_what_it_says_is_what_happens():
    """Mutations: the fit's slope halved, or its intercept moved by 2: the expected calibration error is above 0.05."""
    rng, said, truth = np.random.default_rng(9), [], []
    for _ in range(6000):
        change = rng.laplace(scale=0.08) if rng.random() < 0.5 else 0.0
        error = math.exp(rng.uniform(math.log(0.01), math.log(0.1)))
        found = error * math.sqrt(rng.chisquare(8) / 8)  # the spread as eight degrees of freedom know it
        said.append(probability(change + error * rng.standard_normal(), found, 8, MARGIN)[0])
        truth.append(change > MARGIN)
    p, happened = np.array(said), np.array(truth)
    bins = np.minimum((10 * p).astype(int), 9)
    off = sum(abs(p[bins == one].mean() - happened[bins == one].mean()) * (bins == one).mean()
              for one in np.unique(bins))
    assert off <= 0.05 and ((p - happened) ** 2).mean() < 0.13


def test_the_fit_keeps_order():
    fitted = [calibrate.FITTED(p) for p in np.linspace(0, 1, 101)]
    assert fitted == sorted(fitted) and fitted[0] == LIMIT and fitted[-1] == 1 - LIMIT
