"""A sort of long rows of which only a few places are read: the few alone.

A view of a sorted row is no work, so what shows it is that nothing takes a tensor of the sorted one's shape before
another of that shape is made. A row that is sorted to be looked up, summed up or put back is taken whole.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.least import own_time, without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.turn_flow import result_shape
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.core import distinct
from aaco.core.arrays import Flags, Reals

SORTS = ("aten::sort", "aten::argsort")
LEAST_COLUMNS = 1024  # shorter rows are sorted in one block
LEFT = 0.2  # of a sort's time: topk took 12 ps for each of 77 million numbers on an H200, a sort 68
MOST_SORTS = 32  # with shapes of their own, that are looked at
MAKES, TAKES, SORTED = 1, 2, 3


def _sorts(operator: StepOperator) -> list[int] | None:
    """Return the shape of the long rows that an operator sorts; None of others."""
    taken = operator.arguments.shapes[:1] if operator.name in SORTS and operator.arguments else ()
    return next((shape for shape in taken if isinstance(shape, list) and len(shape) > 1
                 and isinstance(shape[-1], int) and shape[-1] >= LEAST_COLUMNS), None)


def _part(operator: StepOperator, shape: list[int]) -> int:
    """Return what an operator has to do with tensors of a shape; 0 if nothing."""
    if operator.name in SORTS or operator.outermost in SORTS:
        return SORTED
    if operator.arguments is not None and shape in operator.arguments.shapes:
        return TAKES
    return MAKES * (result_shape(operator) == tuple(shape))


def _is_whole(work: StepWork, shape: list[int]) -> bool:
    """Return whether something takes a tensor of this shape after a sort, before another is made."""
    parts = np.array([*(_part(operator, shape) for operator in work.operators), 0])[work.operator[work.lane_order]]
    parts = parts[parts > 0]
    return bool(((parts[:-1] == SORTED) & (parts[1:] == TAKES)).any())


def _needless(work: StepWork) -> Flags:
    """Return the rows of sorts of which only a few places are read. Raise NothingToChange if there are none."""
    used = distinct.numbers(work.operator[work.operator >= 0]).tolist()
    shapes = {number: shape for number in used if (shape := _sorts(work.operators[number])) is not None}
    needless = [number for number, shape in [*shapes.items()][:MOST_SORTS] if not _is_whole(work, shape)]
    if not needless:
        raise NothingToChange("no long rows are sorted of which only a few places are read")
    return np.isin(work.operator, needless)


def _picked(work: StepWork, least: Reals) -> Response:
    return Response(own_time(work) * np.where(work.once(_needless), LEFT, 1.0), np.ones(len(least)), only_less=True)


TOPK_FOR_SORT = Mechanism("topk_for_sort", "Pick the first few in place of a sort", "D without the sorts",
                          lambda work: without(work, work.once(_needless)), respond=_picked)
