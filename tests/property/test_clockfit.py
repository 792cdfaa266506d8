"""Clock fits: a planted offset and drift are found through noise and outliers, and the residual tells the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming.clockfit import SKEW_NS, fit
from aaco.core.readings import Absent

EPOCH = 1_700_000_000_000_000_000


@given(offset=st.integers(-10**15, 10**15), drift=st.floats(-50, 50), seed=st.integers(0, 1000),
       count=st.integers(10, 200), late=st.integers(0, 2))
def test_a_planted_line_is_found(offset, drift, seed, count, late):
    """Mutations: least squares without leaving outliers out; slope through floats of the epoch; sign of the drift."""
    generator = np.random.default_rng(seed)
    other = EPOCH + np.sort(generator.integers(0, 60_000_000_000, count))
    noise = np.rint(generator.normal(0, 2_000, count)).astype(np.int64)
    reference = other + offset + np.rint((other - other[0]) * drift / 1e6).astype(np.int64) + noise
    reference[generator.choice(count, late, replace=False)] += 5_000_000
    found = fit(reference, other)
    truth = other + offset + np.rint((other - other[0]) * drift / 1e6).astype(np.int64)
    assert np.abs(found.to_reference(other) - truth).max() < 12_000
    assert abs(found.drift_ppm - drift) < 1 and found.worst_ns <= SKEW_NS
    assert found.left_out >= late
    assert count < 50 or 1_000 < found.residual_ns < 4_000


@given(st.integers(-10**17, 10**17), st.lists(st.integers(0, 10**9 - 1), min_size=1, max_size=20))
def test_a_short_overlap_gives_an_offset_only_and_exactly(offset, moments):
    other = EPOCH + np.array(moments)
    found = fit(other + offset, other)
    assert (found.drift_ppm, found.worst_ns, found.residual_ns) == (0.0, 0, 0.0)
    assert (found.to_reference(other) == other + offset).all()


def test_clocks_that_follow_no_line_are_warned_about():
    other = np.arange(0, 20_000_000_000, 100_000_000)
    reference = other + np.rint(3_000_000 * np.sin(other / 3e9)).astype(np.int64)
    found = fit(reference, other)
    assert found.worst_ns > SKEW_NS
    assert found.skew_ns > SKEW_NS


def test_no_common_moment_is_absent():
    with pytest.raises(Absent, match="no moment in common"):
        fit(np.zeros(0, np.int64), np.zeros(0, np.int64))
