"""Rows that are gathered several times each and then multiplied with weights: the product first, once for each row.

A product, and what follows of it element by element, computes each row from that row, so both can come before the
gather, which then repeats results in place of inputs. The trace shows no data, so only a product counts that follows
the gather at once and takes a matrix of as many columns and WORTH times as many rows as what is gathered from; its
result is no wider. On the way back gathering adds rows up, which is another matter: training steps have no such floor.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.least import PRODUCTS, block_ns, fusible, own_time, row_gathers
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import product
from aaco.analytics.costs.torch.arguments import known
from aaco.core import distinct
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

GATHERS = ("aten::index", "aten::index_select", "aten::embedding")
WORTH = 2.0  # times as many rows after the gather
TRAINING = ("backward", "optimizer")


class Moved(Struct, frozen=True):
    """What can come before a gather: the gathers, and the rows of the work that shrink, each with what is left of it.
    """

    gathers: Flags
    after: Flags
    left: Reals


def _table(operator: StepOperator) -> tuple[int, int] | None:
    """Return rows and columns of the matrix that an operator gathers from; None of any other operator."""
    if operator.name not in GATHERS or operator.arguments is None:
        return None
    try:
        shape = known(operator.arguments.tensor(0))
    except UnknownShape:
        return None
    return (shape[0], shape[1]) if len(shape) == 2 and min(shape) > 0 else None


def _left(gather: StepOperator, taken: StepOperator) -> float | None:
    """Return what is left of a product that can come before a gather, as a part of its rows; None if it cannot."""
    table, shape = _table(gather), product(taken.name, taken.arguments)
    if table is None or shape is None or shape.batch != 1 or shape.depth != table[1] or shape.columns > shape.depth:
        return None
    return table[0] / shape.rows if shape.rows >= WORTH * table[0] else None


def _moved(work: StepWork) -> Moved:
    """Return what can come before a gather. Raise Absent if there is nothing."""
    gathers = np.array([*(_table(operator) is not None for operator in work.operators), False])[work.operator]
    if not gathers.any() or any(operator.phase in TRAINING for operator in work.operators):
        raise Absent("no product follows a gather that repeats rows")
    order = work.lane_order
    order = order[~work.copies("memset")[order]]
    operator, lane = work.operator[order], work.lane[order]
    same_lane = np.r_[lane[1:] == lane[:-1], False] if len(order) else np.zeros(0, bool)
    pair = operator.astype(np.int64) * (len(work.operators) + 1) + np.r_[operator[1:], -1]
    at = np.flatnonzero(gathers[order] & same_lane & (np.r_[operator[1:], -1] >= 0))
    left_of = {number: _left(*(work.operators[key] for key in divmod(number, len(work.operators) + 1)))
               for number in distinct.values(pair[at]).tolist()}
    at = at[[left_of[number] is not None for number in pair[at].tolist()]]
    if not len(at):
        raise Absent("no product follows a gather that repeats rows")
    return _with_what_follows(work, order, at, np.array([left_of[number] for number in pair[at].tolist()], float))


def _with_what_follows(work: StepWork, order: np.ndarray, at: np.ndarray, left: Reals) -> Moved:
    """Return the products that follow these gathers with the passes over their results, up to the next other kernel."""
    operator, lane = work.operator[order], work.lane[order]
    again = np.r_[False, (operator[1:] == operator[:-1]) & (operator[1:] >= 0)]  # the kernels of one call
    ends = np.flatnonzero(np.r_[~(fusible(work)[order] | again) | np.r_[True, lane[1:] != lane[:-1]], True])
    gathers, after, part = np.zeros(len(work.ns), bool), np.zeros(len(work.ns), bool), np.ones(len(work.ns))
    for place, of_product in zip(at.tolist(), left.tolist(), strict=True):
        rows = order[place + 1:ends[np.searchsorted(ends, place + 1, "right")]]
        gathers[order[place]] = after[rows] = True
        part[rows] = of_product
    return Moved(gathers, after, part)


def _least_ns(work: StepWork) -> Reals:
    """Return the times without what is moved, and with the gathers at the time that launching their blocks takes."""
    moved = _moved(work)
    gathered = np.where(row_gathers(work), block_ns(work, work.blocks), 0.0)
    return np.where(moved.after, 0.0, np.where(moved.gathers, gathered, own_time(work)))


def _of_one_matrix(operator: StepOperator) -> bool:
    """Return whether an operator takes one matrix, so that each row of the result needs one row."""
    shapes = operator.arguments.shapes if operator.arguments else ()
    return sum(isinstance(shape, (list, tuple)) and len(shape) > 1 for shape in shapes) == 1


def _first(work: StepWork, least: Reals) -> Response:
    """Return the step with the products, and the passes that need their results only, on as many rows as there are."""
    moved = _moved(work)
    alone = work.of_families("elementwise") & work.operated(_of_one_matrix)
    shrinks = moved.after & (work.of_families(*PRODUCTS) | alone)
    return Response(own_time(work) * np.where(shrinks, moved.left, 1.0), np.ones(len(least)), only_less=True)


PRODUCT_BEFORE_GATHER = Mechanism(
    "product_before_gather", "Multiply before rows are gathered", "D without the product and the passes over its "
    "result, and with the gather at the time that launching its blocks takes", _least_ns, respond=_first)
