"""Change points against a slow, obvious oracle: exact segmentation, least squares in matrices, symmetry, bad input."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import linalg

from aaco.core.readings import Absent
from aaco.governance.changepoints import changes, documents, drift, filters, forecast, hints, noise, segmentation, steps
from aaco.tracelake.history.history import Accepted, Key

ALPHABET = st.lists(st.integers(0, 3), min_size=4, max_size=10)
SERIES = st.lists(st.floats(0.5, 2.0), min_size=6, max_size=60)
ANYTHING = st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, -1.0, 1e300]),
                    max_size=40)


def scatter(values: np.ndarray, bandwidth: float) -> float:
    gram = np.exp(-0.5 * np.subtract.outer(values, values) ** 2 / bandwidth**2)
    return len(values) - gram.sum() / len(values)


def cost(values: np.ndarray, cuts: tuple[int, ...], bandwidth: float, penalty: float) -> float:
    spans = steps.segments(cuts, len(values))
    return sum(scatter(values[a:b], bandwidth) for a, b in spans) + penalty * len(cuts)


@given(ALPHABET, st.floats(0.2, 3), st.floats(0.1, 4))
@settings(max_examples=60, deadline=None)
def test_the_cuts_of_a_window_are_the_best_of_all(letters: list[int], bandwidth: float, penalty: float) -> None:
    values = np.array(letters, float)
    allowed = [cuts for size in range(len(values)) for cuts in itertools.combinations(range(1, len(values)), size)
               if all(b - a >= segmentation.LEAST for a, b in steps.segments(cuts, len(values)))]
    best = min(cost(values, cuts, bandwidth, penalty) for cuts in allowed)
    found = tuple(segmentation.windowed([(values, bandwidth)], penalty)[0].tolist())
    assert cost(values, found, bandwidth, penalty) == pytest.approx(best)


@given(st.integers(65, 400), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_windows_cover_the_series(count: int, seed: int) -> None:
    """A step anywhere is within a window that sees both of its sides."""
    rng = np.random.default_rng(seed)
    cut = int(rng.integers(8, count - 8))
    values = np.where(np.arange(count) < cut, 0.0, 10.0) + rng.normal(0, 0.1, count)
    assert cut in segmentation.windowed([(values, 0.2)])[0]


@given(st.integers(6, 40), st.integers(2, 38), st.floats(0, 0.9), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_a_steps_size_and_t_are_those_of_generalised_least_squares(count: int, at: int, rho: float, seed: int) -> None:
    at = min(at, count - 2)
    values = np.random.default_rng(seed).normal(0, 1, count)
    white = steps.Whitened(values, values, 0.5)
    white.rho = rho
    white.innovations = np.concatenate(([0.0], values[1:] - rho * values[:-1]))
    white._sum = np.concatenate(([0.0], np.cumsum(white.innovations)))
    size, t = white.step(0, at, count)
    inverse = linalg.inv(linalg.toeplitz(rho ** np.arange(count)) / (1 - rho**2))
    design = np.column_stack((np.ones(count), np.arange(count) >= at))
    covariance = linalg.inv(design.T @ inverse @ design)
    expected = covariance @ design.T @ inverse @ values
    assert size == pytest.approx(expected[1], abs=1e-8)
    assert t == pytest.approx(expected[1] / math.sqrt(covariance[1, 1]) / white._noise(0, count), abs=1e-8)


@given(ANYTHING)
@example([2.0, 2.0, 1.0, 1.0, 1.0, 1.0])
@example([1.0] * 20 + [math.e] * 20 + [math.e**2] * 20)
@settings(max_examples=150, deadline=None)
def test_any_values_get_an_answer_or_a_reason(values: list[float]) -> None:
    try:
        found = changes.course(values)
    except Absent as reason:
        assert str(reason)
        return
    for item in (*found.changes, *found.excursions):
        assert 0 < item.index < len(values)
        assert all(map(math.isfinite, (item.before, item.after, item.change_pct, item.p_value)))


EXTREMES = st.lists(st.sampled_from([1e-140, 1e140, 1.0, 1.0, 2.0, 1e-5]) | st.floats(1e-308, 1e308), max_size=50)


@given(EXTREMES, st.sampled_from([None, 1.0, 1e300]))
@settings(max_examples=150, deadline=None)
def test_whatever_is_said_of_a_series_is_a_finite_number(values: list[float], limit: float | None) -> None:
    names = tuple(f"s{place}" for place in range(len(values)))
    series = drift.Series(Key("b", "m", "", ""), "ms", "lower_is_better", np.array(values), names,
                          (None,) * len(values), (None,) * len(values), (Accepted("s3", "Ada", "meant", 1),))
    question = drift.Question(limit=limit)
    found = drift.examine([series], question)
    for document in (documents.drift_status(found, question, "1"), documents.change_points(found, question, "1")):
        assert json.dumps(document.model_dump(mode="json"), allow_nan=False)


@given(SERIES, st.floats(1e-6, 1e6))
@settings(max_examples=60, deadline=None)
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    one, other = changes.course(values), changes.course([factor * value for value in values])
    assert [item.index for item in one.changes] == [item.index for item in other.changes]


@given(st.integers(20, 120), st.integers(0, 2**31), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_clear_step_is_found_where_it_is(count: int, seed: int, upward: bool) -> None:
    rng = np.random.default_rng(seed)
    cut = int(rng.integers(8, count - 7))
    level = np.where(np.arange(count) < cut, 0.0, 0.5 if upward else -0.5)
    found = changes.course(np.exp(level + rng.normal(0, 0.01, count))).changes
    assert [item.index for item in found] == [cut]
    assert (found[0].change_pct > 0) == upward
    assert found[0].low_pct < found[0].change_pct < found[0].high_pct


@given(SERIES, st.sets(st.integers(1, 59), max_size=3))
@settings(max_examples=60, deadline=None)
def test_accepted_shifts_move_the_mean_and_keep_the_variance(values: list[float], cuts: set[int]) -> None:
    cuts = {cut for cut in cuts if cut < len(values)}
    found = filters.levelled(values, list(cuts))
    for begin, end in steps.segments(sorted(cuts), len(values)):
        ratio = found[begin:end] / np.array(values[begin:end])
        assert ratio == pytest.approx(ratio[0])
        assert np.median(found[begin:end]) == pytest.approx(np.median(values[max(cuts, default=0):]))


@given(st.lists(st.floats(-6, 6), max_size=80))
@example([-3.0, 6.0])  # a sum below 0 is forgotten
@settings(max_examples=60, deadline=None)
def test_cusum_is_the_largest_sum_of_any_run(residuals: list[float]) -> None:
    """Up to its first hint, CUSUM is the largest sum of value - slack over runs that end there (its definition)."""
    first = next(iter(hints.cusum(residuals)), None)
    for index in range(len(residuals) if first is None else first.index + 1):
        runs = [max(math.fsum(sign * value - hints.SLACK for value in residuals[begin:index + 1])
                    for begin in range(index + 1)) for sign in (1, -1)]
        beyond = max(runs) > hints.DECISION
        if abs(max(runs) - hints.DECISION) > 1e-9:
            assert beyond == (first is not None and index == first.index)


@given(st.integers(12, 80), st.floats(-0.02, 0.02), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_a_trend_has_its_interval_around_it(count: int, slope: float, seed: int) -> None:
    values = np.exp(slope * np.arange(count) + np.random.default_rng(seed).normal(0, 0.02, count))
    found = forecast.trend(values)
    assert found.low_pct < found.slope_pct < found.high_pct
    ahead = found.predict(1)
    assert ahead.low is not None and ahead.high is not None and ahead.low < ahead.value < ahead.high
    assert 0 <= found.p_value <= 1 and 0 <= found.rho <= noise.MOST_MEMORY
