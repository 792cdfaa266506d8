"""analytics.lanes against what sorting everything gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming import stream_ids


@given(st.lists(st.sampled_from([0, 1, 2, 2**63 - 1, -2**63])), st.integers(1, 5))
def test_the_largest_are_the_first_of_all_sorted(values, count):
    """Mutations: `>=` -> `>` (ties at the border are lost); `~` -> `-` (the least integer has no opposite)."""
    wanted = sorted(range(len(values)), key=lambda row: (-values[row], row))[:count]
    assert stream_ids.largest(np.array(values, np.int64), count).tolist() == wanted


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(0, 70_000))))
def test_lanes_come_one_after_the_other_each_in_its_order(lane):
    """Mutations: no stable sort; 16 bits whatever the number of lanes."""
    assert stream_ids.rows_by_stream(np.array(lane, np.int64)).tolist() == sorted(range(len(lane)),
                                                                                  key=lane.__getitem__)


@given(st.lists(st.integers(1, 150), min_size=1, max_size=4), st.integers(0, 9))
def test_reach_of_lanes_of_few_and_of_many_rows(sizes, seed):
    """Mutations: the carried end is not kept; it is the last end, not the latest."""
    chance = np.random.default_rng(seed)
    carried = np.array([stream_ids.NONE, *chance.integers(0, 99, len(sizes))])[:len(sizes)]
    lane = np.repeat(np.arange(len(sizes)), sizes)
    end = chance.integers(0, 100, len(lane))
    latest, wanted = carried.tolist(), []
    for own, until in zip(lane.tolist(), end.tolist(), strict=True):
        wanted.append(latest[own])
        latest[own] = max(latest[own], until)
    assert stream_ids.latest_end_before(lane, end, carried).tolist() == wanted
    assert carried.tolist() == latest
