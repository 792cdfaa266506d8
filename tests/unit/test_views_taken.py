"""Which views of tensors a step takes, by the arguments of PyTorch's calls."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from aaco.analytics.advice.views import NO_VIEWS, ViewKind
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS
from aaco.steps.findings import views_taken
from aaco.tracelake import store

SELECT, SLICE = "aten::select", "aten::slice"


def arguments(shape, *numbers, kind="float"):
    """What the profiler writes of a view of a tensor."""
    return json.dumps({"Concrete Inputs": ["", *map(str, numbers)], "Input type": [kind, *["Scalar"] * len(numbers)],
                       "Input Strides": [[1] * len(shape)], "Input Dims": [list(shape), *([[]] * len(numbers))]})


def views(*calls, asked=(500, 1500, 9500), since=0, rows=range(9), captures=None):
    """Return the views of a session with these calls, (name, arguments), one each microsecond.

    asked: when the host asked for work, ns.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = Session.create(Path(folder), {"kind": "import"}, "", "0")
        ids, start = range(len(calls)), [1000 * number for number in range(len(calls))]
        store.write(session, API_CALLS, API_CALLS.build(
            call_id=ids, name=[name for name, _ in calls], t_start_ns=start, t_end_ns=start,
            capture=captures or [0] * len(calls)))
        store.write(session, CALL_ARGUMENTS, CALL_ARGUMENTS.build(call_id=ids, arguments=[said for _, said in calls]))
        return views_taken.read(session, 0, since, np.array(asked), np.array(rows))


def only(name, *said, **more):
    """Return the shape of the part, and the start, of one view."""
    found = views((name, arguments(*said, **more)))
    return found.kinds[found.kind[0]].part, int(found.start[0])


def test_a_view_says_which_part_of_which_tensor():
    found = views((SELECT, arguments((4, 8, 2), 1, 5)), (SLICE, arguments((4, 8), 0, 1, 3, 1, kind="long int")))
    assert found.kinds == (ViewKind((4, 8, 2), 1, (4, 2), True), ViewKind((4, 8), 0, (2, 8), False))
    assert found.kind.tolist() == [0, 1] and found.start.tolist() == [5, 1]


def test_a_view_lies_before_the_work_that_is_asked_for_next():
    taken = [(SELECT, arguments((9, 2), 0, place)) for place in range(4)]
    assert views(*taken).row.tolist() == [0, 1, 2, 2] and views(*taken, rows=[3, 4, 7]).row.tolist() == [3, 4, 7, 7]


def test_places_may_be_counted_from_the_end_and_steps_leave_some_out():
    assert only(SELECT, (4, 8), -1, -2) == ((4,), 6) and only(SELECT, (7,), 0, 3) == ((), 3)
    assert only(SLICE, (4, 8), 1, -3, 9223372036854775807, 1) == ((4, 3), 5)
    assert only(SLICE, (4, 8), 1, 1, -1, 2) == ((4, 3), 1) and only(SLICE, (4, 8), 0, "", 3, 1) == ((3, 8), 0)
    assert only(SLICE, (4, 8), 1, 6, 2, 1) == ((4, 0), 6)


def test_the_end_of_a_slice_is_a_number():
    assert views((SLICE, arguments((4, 8), 1, 0, "-", 1))) is NO_VIEWS


def test_views_of_other_moments_captures_and_other_operators_do_not_count():
    taken = [(SELECT, arguments((9, 2), 0, place)) for place in range(4)]
    assert views(*taken, since=1000).start.tolist() == [1, 2, 3] and views(*taken, asked=(0, 2500)).start.tolist() == [
        0, 1, 2]
    assert views(*taken, captures=[0, 1, 0, 0]).start.tolist() == [0, 2, 3]
    assert views(("aten::narrow", arguments((9, 2), 0, 1, 1)), (None, arguments((9, 2), 0, 1))) is NO_VIEWS
    assert views(*taken, asked=()) is NO_VIEWS


def test_no_more_views_are_looked_at_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(views_taken, "MOST_VIEWS", 2)
    assert views(*((SELECT, arguments((9, 2), 0, place)) for place in range(4))).start.tolist() == [0, 1]


def test_no_more_kinds_are_kept_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(views_taken, "MOST_KINDS", 2)
    found = views(*((SELECT, arguments((9, size), 0, 1)) for size in (2, 3, 4, 2)))
    assert found.kind.tolist() == [0, 1, 0] and len(found.kinds) == 2


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"Concrete Inputs": ["", "0", "0"]}', arguments((), 0, 0), arguments((4,), 1, 0),
    arguments((4,), -2, 0), arguments((4,), "x", 0), arguments((4,), 0, 10 ** 40), arguments((10 ** 99,), 0, 0),
    arguments((4,), 0, 0).replace("[4]", "[[4]]"), arguments((4,), 0, 0).replace('"float"', "7"),
    arguments((4,), 0, 0, 2, 1), arguments((4,), 0, "-"), arguments((2 ** 62, 2), 0, -1)])
def test_arguments_that_say_something_else_are_no_views(text):
    good = arguments((4,), 0, 1)
    assert views((SELECT, text)) is NO_VIEWS and views((SELECT, text), (SELECT, good)).start.tolist() == [1]
