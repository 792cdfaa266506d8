"""analytics.marks against a dictionary."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming import id_bitmap as module
from aaco.analytics.streaming.id_bitmap import IdBitmap, holes

IDS = st.lists(st.integers(-40, 90) | st.integers(-2**62, 2**62), max_size=12)
STEPS = st.lists(st.tuples(IDS, st.sampled_from([1, 2, 4, 7])), max_size=8)


@pytest.fixture(autouse=True, scope="module")
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 2)
        patch.setattr(module, "PIECE", 16)
        yield


def array(ids):
    return np.array(ids, np.int64)


@given(STEPS, IDS)
def test_flags_add_up_however_far_apart_the_ids_lie(steps, asked):
    """Fails when a run is lost in a merge, or when room is made on one side only."""
    marks, known = IdBitmap(), {}
    for ids, flag in steps:
        marks.mark(array(ids), flag)
        for one in ids:
            known[one] = known.get(one, 0) | flag
    every = [*asked, *known]
    assert marks.of(array(every)).tolist() == [known.get(one, 0) for one in every]
    assert [(one, flag) for ids, flags in marks.pieces() for one, flag in zip(
        ids.tolist(), flags.tolist(), strict=True)] == sorted(known.items())


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 9))
def test_holes(ids, longest):
    marks = IdBitmap()
    marks.mark(array(ids), 2)
    marks.mark(array(ids[:5]), 1)
    found = sorted(set(ids))
    gaps = [after - before - 1 for before, after in pairwise(found)]
    assert holes(marks, 2, longest) == (sum(gap for gap in gaps if gap <= longest), len(found))
    assert holes(marks, 4, longest) == (0, 0)
