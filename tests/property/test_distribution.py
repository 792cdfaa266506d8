"""Quantiles read from bins are within a bin of numpy's over the values themselves; count, sum and ends are exact.

Mutation that these tests caught: `(2 * fraction - 1)` -> `fraction`.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming.distribution import Distribution, bins, lower_edge, upper_edge

VALUES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 10**12)), min_size=1, max_size=300)


@given(VALUES, st.integers(0, 300))
def test_a_distribution_says_what_its_values_say(values, cut):
    found = Distribution()
    for part in (values[:cut], values[cut:]):
        found.add(np.array(part, np.int64))
    summary = found.summary()
    assert (summary.count, summary.sum_ns, summary.min_ns, summary.max_ns) == (
        len(values), sum(values), min(values), max(values))
    for q, quantile in ((0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)):
        if quantile is not None:
            exact = float(np.quantile(values, q, method="nearest"))
            neighbours = np.sort(values)[max(0, round(q * (len(values) - 1)) - 1):][:3]
            assert min(neighbours) * 0.99 - 1 <= quantile.value_ns <= max(neighbours) * 1.01 + 1
            assert quantile.ci_low_ns is None or quantile.ci_low_ns <= quantile.value_ns <= quantile.ci_high_ns
            assert exact >= 0
    if summary.fence_ns is not None:
        assert summary.beyond == sum(value >= summary.fence_ns for value in values)


@given(st.integers(0, 2**61), st.sampled_from([2, 7]))
def test_a_value_lies_between_the_edges_of_its_bin(value, bits):
    number = int(bins(np.array([value]), bits)[0])
    assert lower_edge(number, bits) * (1 - 1e-12) <= value <= upper_edge(number, bits) * (1 + 1e-12)
    assert upper_edge(number, bits) - lower_edge(number, bits) <= max(1, value / 2**bits * (1 + 1e-9))


def test_an_empty_one_has_no_summary_and_a_small_one_no_p99():
    found = Distribution()
    assert found.summary() is None
    found.add(np.array([-5, 7], np.int64))
    summary = found.summary()
    assert (summary.p99, summary.negative, summary.min_ns) == (None, 1, -5)
