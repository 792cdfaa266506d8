"""profiler.io.record_accounting and profiler.io.lookup"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.untimed import BACKWARDS, NEVER_RAN, NOT_TIMED, OUT_OF_RANGE, TOO_LONG
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import ranks
from aaco.profiler.io.lookup import Lookup, Reference
from aaco.profiler.io.record_accounting import ABSENT, DAY_NS, FAR_NS, LATEST_NS, LONGEST_NS, RecordAccount, total

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
TIME = st.none() | st.integers(-5, 5) | st.integers(0, LATEST_NS + 5) | WHOLE
AMID = 5 * 10**16
NEAR = st.integers(AMID - 1000, AMID + 1000)


@pytest.mark.parametrize("from_zero", [False, True])
@given(st.lists(st.lists(st.tuples(TIME | NEAR, TIME | NEAR)), max_size=3))
def test_every_record_is_a_row_or_left_out_for_a_reason(from_zero, batches):
    """Against plain integers, once a first batch told what time it is. Fails when a difference that leaves 64 bits is
    taken in numpy."""
    account, kept, whole = RecordAccount("call", from_zero), [], [[(AMID, AMID + 1)] * 3, *batches]
    for batch in whole:
        start, end = (pa.array([pair[side] for pair in batch], pa.int64()) for side in (0, 1))
        mask = account.timed("call", start, end)
        kept += [pair for pair, good in zip(batch, mask.tolist(), strict=True) if good]
    pairs = [pair for batch in whole for pair in batch if ABSENT not in pair and None not in pair]
    assert kept == [(a, b) for a, b in pairs if 0 <= a <= b < LATEST_NS and b - a <= LONGEST_NS
                    and abs(a - AMID) <= FAR_NS and (0 < b <= DAY_NS if from_zero and a == 0 else a and b)]
    facts = account.facts("x")
    assert facts.kernels == Subtotal(sum(map(len, whole)), sum(b - a for a, b in kept))
    assert facts.kernels.count == len(kept) + sum(part.count for part in facts.left_out.values())
    assert not any(part.ns for part in facts.left_out.values())


@given(st.lists(st.integers(0, 40), max_size=12))
def test_work_of_a_device_that_is_days_from_all_other_is_left_out(days):
    """Mutation: the neighbour on one side alone. Two that are near each other may be another node's."""
    starts = pa.array([1 + day * DAY_NS // 4 for day in days], pa.int64())
    fit = RecordAccount("kernel").timed("kernel", starts, starts)
    alone = [sum(abs(day - other) <= 4 for other in days) == 1 for day in days]
    assert fit.tolist() == [len(days) < 3 or not isolated for isolated in alone]
    assert RecordAccount("kernel").timed("call", starts, starts).all()


def test_each_reason_is_named():
    """Mutations: a bound of each rule moved, an instant at the zero of a clock that begins with the recording."""
    account = RecordAccount("kernel")
    pairs = [(None, 5), (0, 5), (5, 0), (9, 8), (5, 9), (5, 5 + LONGEST_NS + 1), (6, -1), (5 + 10**17, 6 + 10**17),
             (6 + 10**17, 7 + 10**17), (5, LATEST_NS), (5, 5), (5, 5), (5, 5)]
    fit = account.timed("kernel", *(pa.array([pair[side] for pair in pairs], pa.int64()) for side in (0, 1)))
    assert fit.tolist() == [False] * 4 + [True] + [False] * 2 + [True] + [False] * 2 + [True] * 3
    assert account.left == {f"kernel: {reason}": Subtotal(count, 0) for reason, count in (
        (NOT_TIMED, 1), (NEVER_RAN, 2), (BACKWARDS, 1), (TOO_LONG, 1), (OUT_OF_RANGE, 3))}
    relative, zero = RecordAccount(None, from_zero=True), np.array([0, 7])
    assert relative.placed("mark", zero, zero, instants=True).all()
    assert relative.placed("span", zero, zero).tolist() == [False, True]
    assert relative.placed("span", zero, zero + 1).all()
    assert relative.placed("other", zero, np.array([DAY_NS + 1, 9])).tolist() == [False, True]


@given(st.lists(WHOLE))
def test_a_sum_is_exact_at_any_size(values):
    assert total(np.array(values, np.int64)) == sum(values)


@given(st.lists(st.integers(-50, 50) | WHOLE), st.lists(st.integers(-60, 60) | WHOLE))
def test_rows_are_found_by_id(keys, ids):
    """Against list.index. Fails for ids that lie close together and for ids that lie far apart alike."""
    expected = [keys.index(one) if one in keys else -1 for one in ids]
    assert Lookup(keys).rows(np.array(ids, np.int64)).tolist() == expected


def test_a_reference_says_what_ids_stand_for_and_how_many_dangle():
    found, dangling = Reference([7, 9], [70, None]).of(pa.array([9, 7, None, 8], pa.int64()))
    assert (found.to_pylist(), dangling) == ([None, 70, None, None], 1)


@pytest.mark.parametrize(("environment", "told"), [
    ({}, (None, None)), ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)), ({"OMPI_COMM_WORLD_RANK": 2}, (2, None)),
    ({"RANK": "x", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, (1, 4)), ({"RANK": "9" * 5000}, (None, None))])
def test_ranks_as_launchers_tell_them(environment, told):
    assert ranks.of(environment) == told
