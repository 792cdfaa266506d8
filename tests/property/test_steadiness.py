"""The end of a warm-up, on planted ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.readings import Absent
from aaco.core.settling import BATCH, settled_at


@given(st.integers(0, 8), st.floats(1.5, 10), st.integers(0, 2**32 - 1))
def test_a_planted_warm_up_is_found_to_within_one_five(fives, factor, seed):
    rng = np.random.default_rng(seed)
    steady = rng.uniform(0.95, 1.05, 100 + BATCH * fives)
    steady[: BATCH * fives] *= factor
    assert BATCH * fives <= settled_at(steady) <= BATCH * (fives + 3)


@given(st.floats(0.001, 1000), st.integers(0, 2**32 - 1))
def test_the_unit_does_not_matter(scale, seed):
    series = np.random.default_rng(seed).lognormal(0, 0.3, 60)
    assert outcome(series) == outcome(series * scale)


def outcome(series):
    try:
        return settled_at(series)
    except Absent:
        return None
