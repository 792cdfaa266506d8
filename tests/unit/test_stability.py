"""Steadiness of a series: against scipy, closed formulas and planted answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from aaco.analytics.quality import stability
from aaco.core.readings import Absent

RNG = np.random.default_rng(0)


def autoregressive(count, r, rng):
    found = np.zeros(count)
    for place in range(1, count):
        found[place] = r * found[place - 1] + rng.standard_normal()
    return 100 + found


def test_autocorrelation_is_the_textbooks():
    """Mutation: divided by n - lag, or the mean of each part taken off."""
    series = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    deviations = series - 5.5
    expected = sum(deviations[i] * deviations[i + 1] for i in range(9)) / sum(deviations**2)
    assert stability.autocorrelation(series) == pytest.approx(expected)


def test_effective_size_predicts_the_spread_of_means():
    """Means of AR(1) series scatter as those of n_eff independent ones. Mutation: (1 + r) / (1 - r)."""
    series = [autoregressive(500, 0.6, RNG) for _ in range(300)]
    observed = np.var([each.mean() for each in series])
    predicted = np.mean([each.var() / stability.effective_size(each) for each in series])
    assert observed == pytest.approx(predicted, rel=0.25)


def test_ljung_box_raises_its_alarm_as_often_as_it_says():
    """Mutation: lags + 5 degrees; n in place of n (n + 2)."""
    independent = [stability.ljung_box_p(RNG.standard_normal(200)) < 0.05 for _ in range(400)]
    assert 0.02 <= np.mean(independent) <= 0.09
    assert np.mean([stability.ljung_box_p(autoregressive(200, 0.4, RNG)) < 0.05 for _ in range(50)]) > 0.95


@given(arrays(float, st.integers(10, 40), elements=st.integers(0, 12).map(float)))
def test_drift_is_scipys_theil_sen_and_mann_kendall(series):
    """Ties included. Mutation: no correction for ties; mean in place of the median of slopes."""
    change, p = stability.drift(series)
    slope = stats.theilslopes(series).slope
    assert change == pytest.approx(slope * (len(series) - 1))
    ties = np.unique(series, return_counts=True)[1]
    count = len(series)
    score = sum(np.sign(series[j] - series[i]) for i in range(count) for j in range(i + 1, count))
    variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    z = (abs(score) - 1) / np.sqrt(variance) if variance and score else 0
    assert p == pytest.approx(2 * stats.norm.sf(max(z, 0)))


def test_a_long_series_is_thinned_and_its_drift_kept():
    """Mutation: the parts' own number of steps forgotten."""
    series = np.linspace(10, 12, 5000) + 0.1 * RNG.standard_normal(5000)
    change, p = stability.drift(series)
    assert change == pytest.approx(2, rel=0.02) and p < 1e-6


@pytest.mark.parametrize(("make", "most"), [
    (lambda: RNG.normal(10, 1, 100), 0.03), (lambda: RNG.uniform(9, 11, 100), 0.05),
    (lambda: 10 + RNG.exponential(1, 200), 0.05), (lambda: RNG.lognormal(0, 0.5, 200), 0.05),
    (lambda: 10 + RNG.standard_t(3, 200), 0.05)])
def test_one_mode_is_seldom_taken_for_two(make, most):
    """Mutation: VALLEY = 1; SHARE = 0."""
    assert np.mean([stability.modes(make()) > 1 for _ in range(100)]) <= most


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_two_modes_far_apart_are_seen(share):
    """Six deviations. Mutation: VALLEY = 0; the outlier cut takes the smaller mode away."""
    assert all(stability.modes(RNG.normal(10, 0.1, 200) + 0.6 * (np.arange(200) < share * 200)) == 2 for _ in range(30))


def test_three_modes_and_none_of_a_constant():
    assert stability.modes(np.repeat([1.0, 2, 3], 50) + 0.01 * RNG.standard_normal(150)) == 3
    assert stability.modes(np.full(50, 3.0)) == 1


def test_too_few_iterations_say_nothing():
    for function in (stability.autocorrelation, stability.drift, stability.modes, stability.ljung_box_p):
        with pytest.raises(Absent, match="needs 10"):
            function(np.ones(9))
    with pytest.raises(Absent, match="equal"):
        stability.autocorrelation(np.ones(20))
