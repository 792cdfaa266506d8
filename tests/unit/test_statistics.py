"""core.statistics against scipy and numpy."""

import math

import numpy as np
import pytest
from scipy import stats

from aaco.core import statistics
from aaco.core.readings import Absent

RNG = np.random.default_rng(7)


def test_quantile_is_numpys_linear_quantile():
    sample = RNG.lognormal(size=501)
    for q in (0.01, 0.25, 0.5, 0.9, 0.99):
        assert statistics.quantile(sample, q).value == pytest.approx(np.quantile(sample, q, method="linear"), rel=1e-15)


@pytest.mark.parametrize("count", [5, 6, 20, 99, 1000, 20000])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_interval_ranks_are_the_tightest_that_cover(count, q):
    ranks = statistics.interval_ranks(count, q, 0.95)
    binomial = stats.binom(count, q)
    low = int(binomial.ppf(0.025))  # independent: scipy's quantile function
    low -= binomial.cdf(low) > 0.025
    high = int(binomial.ppf(0.975))
    if low < 0 or high >= count:
        assert ranks is None
        return
    assert ranks == (low, high)
    assert binomial.cdf(high) - binomial.cdf(low) >= 0.95 - 1e-9


def test_interval_of_the_median_covers_at_its_level():
    hits = 0
    for _ in range(2000):
        estimate = statistics.quantile(RNG.exponential(size=31), 0.5)
        hits += estimate.low <= math.log(2) <= estimate.high
    assert 0.95 - 0.015 <= hits / 2000 <= 0.985


def test_a_quantile_the_sample_cannot_support_is_absent_with_the_reason():
    with pytest.raises(Absent, match="p99 needs at least 100 iterations, there are 99"):
        statistics.quantile(np.ones(99), 0.99)
    assert statistics.quantile(np.ones(100), 0.99).value == 1


def test_the_mean_of_positive_values_has_a_positive_interval():
    """Near Student's where the spread is small. Mutation: Student's alone, which begins below 0."""
    wide = statistics.mean_interval([1.0, 1.0, 50.0])
    assert 0 < wide.low < wide.value < wide.high
    sample = RNG.normal(10, 0.1, size=30)
    low, high = stats.t.interval(0.95, 29, loc=sample.mean(), scale=stats.sem(sample))
    estimate = statistics.mean_interval(sample)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-4)
    hits = 0
    for _ in range(1000):
        found = statistics.mean_interval(RNG.lognormal(0, 0.5, size=20))
        hits += found.low <= math.exp(0.125) <= found.high
    assert 910 <= hits <= 970


def test_mean_interval_is_students():
    sample = RNG.normal(0, 2, size=12)
    estimate = statistics.mean_interval(sample)
    low, high = stats.t.interval(0.95, 11, loc=sample.mean(), scale=stats.sem(sample))
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
    assert statistics.mean_interval([3.0]).low is None


def test_mad_is_scaled_to_sigma():
    sample = RNG.normal(0, 3, size=200_001)
    assert statistics.mad_sigma(sample) == pytest.approx(stats.median_abs_deviation(sample, scale="normal"), rel=1e-4)


@pytest.mark.parametrize("degrees", [1, 2.5, 8, 300])
def test_student_t(degrees):
    assert statistics.t_cdf(1.3, degrees) == pytest.approx(stats.t.cdf(1.3, degrees))
    assert statistics.t_quantile(0.975, degrees) == pytest.approx(stats.t.ppf(0.975, degrees))
