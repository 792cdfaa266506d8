"""profiler.io.record_accounting and profiler.io.lookup"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import ranks
from aaco.profiler.io.lookup import Lookup, Reference
from aaco.profiler.io.record_accounting import ABSENT, LATEST_NS, RecordAccount, total

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
TIME = st.none() | st.integers(-5, 5) | st.integers(0, LATEST_NS + 5) | WHOLE


@given(st.lists(st.lists(st.tuples(TIME, TIME)), max_size=3))
def test_every_record_is_kept_or_left_out_and_so_is_its_time(batches):
    """Against plain integers. Fails when a difference that leaves 64 bits is taken in numpy."""
    account, kept = RecordAccount("kernel"), []
    for batch in batches:
        start, end = (pa.array([pair[side] for pair in batch], pa.int64()) for side in (0, 1))
        mask = account.timed("kernel", start, end)
        kept += [pair for pair, good in zip(batch, mask.tolist(), strict=True) if good]
    pairs = [pair for batch in batches for pair in batch]
    timed = [(a, b) for a, b in pairs if a not in (None, ABSENT) and b not in (None, ABSENT)]
    assert kept == [(a, b) for a, b in timed if 0 <= a <= b <= LATEST_NS and (a or b)]
    facts = account.facts("x")
    assert facts.kernels == Subtotal(len(pairs), sum(b - a for a, b in timed))
    assert facts.kernels.count == len(kept) + sum(part.count for part in facts.left_out.values())
    assert facts.kernels.ns == sum(b - a for a, b in kept) + sum(part.ns for part in facts.left_out.values())


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
