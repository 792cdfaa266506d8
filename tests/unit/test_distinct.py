"""core.distinct against numpy's unique."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.core import distinct

NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-2**63, 2**63 - 1))
COLUMNS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=40).map(
    lambda rows: np.array(rows, np.int64).reshape(-1, 3).T)


@given(COLUMNS)
def test_values_and_counts(columns):
    found, times = np.unique(columns[0], return_counts=True)
    assert distinct.values(columns[0]).tolist() == found.tolist()
    assert distinct.counts(columns[0]) == dict(zip(found.tolist(), times.tolist(), strict=True))


@given(COLUMNS)
def test_combinations(columns):
    """Fails when two columns are combined by a sum, or when the first row of a code is its last."""
    rows, place = distinct.combinations(*columns)
    assert [rows[at] for at in place] == [tuple(row) for row in columns.T.tolist()]
    assert len(set(rows)) == len(rows)
    assert rows == list(dict.fromkeys(tuple(row) for row in columns.T.tolist()))


@given(COLUMNS)
def test_ascending(columns):
    """Mutation: by first appearance."""
    code, rows = distinct.ascending(*columns)
    tuples = columns.T.tolist()
    assert [tuples[row] for row in rows.tolist()] == sorted(map(list, {*map(tuple, tuples)}))
    assert [tuples[row] for row in rows[code].tolist()] == tuples
