"""Loops in a step: the same few operators again and again, and then one that stacks what they made.

The layers of a model repeat as well, but nothing stacks what each of them makes. Where a turn may need the result of
the one before, as over time, one operator cannot take the place of all turns: such loops are left out. A trace does not
say which tensor an operator reads, so a result that has the shape of something which an earlier operator of the turn
reads, and which nothing in the turn has made by then, may be what that operator reads in the next turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import call
from aaco.core.arrays import Ints

TURNS = 8  # fewer are no loop
LONGEST_TURN = 16  # operators; a longer turn is a model's
STACKS = ("aten::stack", "aten::cat")
LOOKUPS = ("embedding", "index", "gather")  # what they read next may be what was chosen last
MOST_STACKS = 1000  # of a step that are looked at
Shape = tuple[int, ...]


def has_stacked_loop(work: StepWork) -> bool:
    """Return whether a loop of TURNS turns and more ends in a stack of its results, none of which a turn can need."""
    stacks = np.array([*(operator.outermost in STACKS for operator in work.operators), False])
    if not stacks.any():
        return False
    calls = _calls(work)
    for end in np.flatnonzero(stacks[calls])[:MOST_STACKS].tolist():
        turn = _turn_before(calls[:end])
        if len(turn) and not _may_need_the_one_before([work.operators[number] for number in turn]):
            return True
    return False


def _calls(work: StepWork) -> Ints:
    """Return the operators in the order of their kernels, one for all kernels that follow each other."""
    known = work.operator[work.operator >= 0]
    return known[np.diff(known, prepend=-1) != 0]


def _turn_before(calls: Ints) -> list[int]:
    """Return the operators of a turn of the loop that these calls end in; none if they end in no loop."""
    for length in range(2, LONGEST_TURN + 1):
        last = calls[-TURNS * length:]
        if len(last) == TURNS * length and (last.reshape(TURNS, length) == last[-length:]).all():
            return last[-length:].tolist()
    return []


def _may_need_the_one_before(turn: Sequence[StepOperator]) -> bool:
    if any(word in operator.name for operator in turn for word in LOOKUPS):
        return True
    results = [_result(operator) for operator in turn]
    for number, operator in enumerate(turn):
        open_shapes = _shapes_read(operator) - set(results[:number])
        if open_shapes & set(results[number:]):
            return True
    return False


def _result(operator: StepOperator) -> Shape | None:
    """Return the shape of what an operator makes; None where it is not known."""
    try:
        formed = call(operator.name, operator.arguments)
        return tuple(formed.result()) if formed else None
    except (UnknownShape, ValueError, LookupError, TypeError):
        return None


def _shapes_read(operator: StepOperator) -> set[Shape | None]:
    """Return the shapes of the tensors that an operator reads; with a factor of 0 it does not read what it adds to."""
    taken = operator.arguments
    if taken is None:
        return set()
    unread = operator.name == "aten::addmv_" and taken.values is not None and "0" in taken.values[3:4]
    return {tuple(taken.shapes[index]) for index in range(len(taken))
            if taken.has(index) and taken.shapes[index] and not (unread and index == 0)}
