"""Which rows of a batch a step takes one by one, by the arguments of PyTorch's views."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from aaco.core.session import Session
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS
from aaco.steps.findings import single_rows
from aaco.tracelake import store

VIEW = "aten::narrow"


def arguments(shape, *numbers):
    """What the profiler writes of a view of a tensor."""
    return json.dumps({"Input Dims": [shape, *([[]] * len(numbers))],
                       "Concrete Inputs": ["", *map(str, numbers)]}, indent=1)


def rows(*calls, name=VIEW, names=None, captures=None, until=1000):
    """Return the rows of a session with these arguments of calls, one each microsecond, before a moment."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session.create(Path(folder), {"kind": "import"}, "", "0")
        ids, start = range(len(calls)), [1000 * number for number in range(len(calls))]
        store.write(session, API_CALLS, API_CALLS.build(
            call_id=ids, name=names or [name] * len(calls), t_start_ns=start, t_end_ns=start,
            capture=captures or [0] * len(calls)))
        store.write(session, CALL_ARGUMENTS, CALL_ARGUMENTS.build(call_id=ids, arguments=list(calls)))
        return single_rows.read(session, 0, 0, 1000 * until)


def taken(count, shape=(9, 4), dimension=0, length=1):
    """The views of so many first rows."""
    return [arguments(list(shape), dimension, row, length) for row in range(count)]


def test_a_batch_of_which_each_row_is_taken_has_so_many():
    assert rows(*taken(9)) == 9 and rows(*taken(9), *taken(9)) == 9
    assert rows(*taken(9), *taken(12, (12, 3, 3))) == 12


def test_rows_that_are_left_out_other_axes_and_longer_parts_are_none():
    assert rows(*taken(8)) == 0 and rows(*taken(9, dimension=1)) == 0 and rows(*taken(9, length=2)) == 0
    assert rows(*taken(9), name="aten::slice") == 0


def test_calls_without_a_name_are_no_views():
    assert rows(*taken(9), names=[VIEW] * 8 + [None]) == 0 and rows(*taken(9), "", names=[VIEW] * 9 + [None]) == 9


def test_views_of_other_captures_and_moments_do_not_count():
    assert rows(*taken(9), until=8) == 0 and rows(*taken(9), captures=[0] * 8 + [1]) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Concrete Inputs": ["", "0", "0", "1"]}',
                                  '{"Concrete Inputs": ["", "0", "0", "1"], "Input Dims": [[]]}',
                                  '{"Concrete Inputs": ["", "0", "0", "1"], "Input Dims": [[1e400]]}',
                                  '{"Concrete Inputs": ["", "0", "0", "1"], "Input Dims": ' + 9999 * "[",
                                  '{"Concrete Inputs": ["", "0", "0", "1"], "Input Dims": [5]}'])
def test_arguments_that_say_something_else_are_no_rows(text):
    assert rows(text) == 0 and rows(*taken(9), text) == 9
