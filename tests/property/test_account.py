"""The account shared out over iterations, against a slow sum over every nanosecond."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.quality.self_accounting import _amounts, of_iterations
from aaco.core.tables import ACCOUNT, INFERENCE_ITERS


@given(st.lists(st.tuples(st.integers(1, 6), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=8),
       st.lists(st.tuples(st.integers(-3, 40), st.integers(1, 12)), min_size=1, max_size=6))
def test_amounts_are_what_a_sum_over_nanoseconds_gives(intervals, iterations):
    """Mutation: `np.maximum(first - 1, 0)` to `first`: an unknown interval at the beginning goes unnoticed."""
    at = np.cumsum([0, *(length for length, _ in intervals)])
    amounts = np.array([np.nan, *(np.nan if amount is None else amount for _, amount in intervals)])
    start = np.array([begin for begin, _ in iterations])
    end = start + [length for _, length in iterations]
    found = _amounts(at, amounts, start, end)
    for number, (first, last) in enumerate(zip(start, end, strict=True)):
        expected = sum((_of_moment(moment, at, amounts) for moment in range(first, last)), 0.0)
        np.testing.assert_allclose(found[number], expected, atol=1e-9)


def _of_moment(moment, at, amounts):
    """The amount of [moment, moment + 1)."""
    for place in range(1, len(at)):
        if at[place - 1] <= moment < at[place]:
            return amounts[place] / (at[place] - at[place - 1])
    return np.nan


def test_processes_keep_their_own_accounts():
    """Mutation: the readings of all processes in one."""
    table = INFERENCE_ITERS.build(iteration=[0, 0], phase=["measurement"] * 2, t_start_ns=[1, 1], t_end_ns=[9, 9],
                                  latency_ms=[1.0] * 2, process=[0, 1])
    account = ACCOUNT.build(process=[0, 0, 1, 1], t_ns=[0, 10, 0, 10], dur_ns=pa.array([None, 10, None, 10]),
                            run_queue_wait_ns=pa.array([None, 10, None, 20]))
    assert of_iterations(table, account)["run_queue_wait_ns"].to_pylist() == [8, 16]
