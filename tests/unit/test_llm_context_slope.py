"""What the context adds to a token across loads: against numpy, and how often the interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from aaco.analytics.llm.context_slope import ONE, ContextPoint, slope_of
from aaco.core.readings import Estimate


def test_the_slope_is_that_of_least_squares():
    drawn = np.random.default_rng(2)
    contexts, times = drawn.uniform(10, 4000, 6), drawn.uniform(2, 9, 6)
    found = slope_of([ContextPoint(context, Estimate(ms)) for context, ms in zip(contexts, times, strict=True)])
    assert found.value == pytest.approx(np.polyfit(contexts / 1000, times, 1)[0])
    assert found.low is None and "no interval" not in found.caveat and found.caveat


def test_the_interval_of_two_contexts_is_that_of_a_difference():
    """By hand: 2 ms +- 0.3 and 5 ms +- 0.4 over 1,500 tokens. Mutation: the intervals are added up."""
    found = slope_of([ContextPoint(500, Estimate(2, 1.7, 2.3)), ContextPoint(2000, Estimate(5, 4.6, 5.4))])
    assert (found.value, found.low, found.high) == (pytest.approx(2), pytest.approx(2 - 0.5 / 1.5),
                                                    pytest.approx(2 + 0.5 / 1.5))
    lopsided = slope_of([ContextPoint(0, Estimate(2, 1.9, 3)), ContextPoint(1000, Estimate(5, 4.9, 7))])
    assert lopsided.high == pytest.approx(3 + np.hypot(2, 0.1)) and lopsided.low == pytest.approx(3 - np.hypot(0.1, 1))


def test_intervals_hold_the_truth():
    """Medians with their own errors, planted slope 1.5 ms. Mutation: half the interval."""
    drawn, held = np.random.default_rng(5), 0
    contexts, errors = np.array([100, 800, 1500, 4000]), np.array([0.1, 0.2, 0.1, 0.4])
    for _ in range(1000):
        times = 3 + 1.5 * contexts / 1000 + drawn.normal(0, errors)
        found = slope_of([ContextPoint(context, Estimate(ms, ms - 1.96 * error, ms + 1.96 * error))
                          for context, ms, error in zip(contexts, times, errors, strict=True)])
        held += found.low <= 1.5 <= found.high
    assert 930 <= held <= 970


def test_one_context_has_no_slope():
    point = ContextPoint(100, Estimate(2, 1, 3))
    assert slope_of([]).why_absent == slope_of([point, point]).why_absent == ONE
