"""q-values against scipy's, and against the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from aaco.core.errors import UsageError
from aaco.governance.multiplicity import benjamini_hochberg

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(probabilities)
def test_agrees_with_scipy(p):
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p, method="bh"), abs=1e-12)


@given(probabilities, st.floats(0.001, 0.5))
def test_is_the_step_up_procedure(p, level):
    """Everything up to the largest i with p_(i) <= i a / m is called, and nothing else."""
    ordered = sorted(p)
    last = max((i for i in range(1, len(p) + 1) if ordered[i - 1] <= i * level / len(p) * (1 - 1e-12)), default=0)
    called = benjamini_hochberg(p) <= level
    assert called.sum() >= last and all(called[i] for i in range(len(p)) if last and p[i] <= ordered[last - 1])


def test_no_change_at_all_is_called_changed_no_more_often_than_the_level():
    rng = np.random.default_rng(1)
    wrong = sum((benjamini_hochberg(rng.random(50)) <= 0.05).any() for _ in range(4000))
    assert 0.035 < wrong / 4000 < 0.065


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(wrong):
    with pytest.raises(UsageError):
        benjamini_hochberg([0.5, wrong])
    assert len(benjamini_hochberg([])) == 0
