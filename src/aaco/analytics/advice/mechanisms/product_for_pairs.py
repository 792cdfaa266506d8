"""Tensors of all pairs of rows, column by column, that end in sums: products of matrices in their place.

Sums of (a - b)^2 over the columns are a a + b b - 2 a b, so distances, cosines and forces of n and m rows need matrices
of n x m, and no tensor of n x m x columns. Differences and products, powers of them and their multiples are such sums;
a tensor that anything else reads, as an absolute value or a network, must stay. A view of it is not looked for.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.least import own_time, without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.core import distinct
from aaco.core.arrays import Reals

COMBINES = ("aten::sub", "aten::mul")
SUMS = ("aten::sum", "aten::mean")
KEEPS_SUMS = frozenset((*COMBINES, *SUMS, "aten::rsub", "aten::pow", "aten::square", "aten::neg"))
LEAST_ROWS = 64  # on both sides: a tensor of fewer pairs is no longer than what it is made of
Shape = tuple[int, ...]


def _shapes(operator: StepOperator) -> list[Shape]:
    """Return the shapes of an operator's tensors that are known."""
    shapes = operator.arguments.shapes if operator.arguments else ()
    return [tuple(shape) for shape in shapes
            if isinstance(shape, (list, tuple)) and shape and all(isinstance(size, int) for size in shape)]


def _pairs(operator: StepOperator) -> Shape | None:
    """Return the shape of the tensor of all pairs of rows that an operator makes; None of any other."""
    if operator.name not in COMBINES or len(shapes := _shapes(operator)) != 2:
        return None
    rank = max(map(len, shapes))
    one, other = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    if rank < 3 or not one[-1] == other[-1] > 1:
        return None
    is_crossed = any(min(first[-3], second[-2]) >= LEAST_ROWS and first[-2] == second[-3] == 1
                     for first, second in ((one, other), (other, one)))
    return tuple(map(max, one, other)) if is_crossed else None


def _columns(work: StepWork) -> Reals:
    """Return of each row how many columns the tensor of all pairs has that it makes or reads; 1 of others.

    Raise NothingToChange if all rows are others.
    """
    used = [work.operators[number] for number in distinct.numbers(work.operator[work.operator >= 0]).tolist()]
    kept = set[Shape]()
    for shape in filter(None, map(_pairs, used)):
        readers = {operator.name for operator in used if shape in _shapes(operator)}
        if readers <= KEEPS_SUMS and readers & {*SUMS}:
            kept.add(shape)
    if not kept:
        raise NothingToChange("no tensor of all pairs of rows is only multiplied and summed")
    columns = [max([1, *(shape[-1] for shape in (*_shapes(operator), _pairs(operator)) if shape in kept)])
                   for operator in work.operators]
    return np.array([*columns, 1], float)[work.operator]


def _multiplied(work: StepWork, least: Reals) -> Response:
    """Return the step with passes over matrices of the pairs in place of passes over their columns."""
    return Response(own_time(work) / _columns(work), np.ones(len(least)), only_less=True)


PRODUCT_FOR_PAIRS = Mechanism(
    "product_for_pairs", "Compare all pairs of rows by a product of matrices", "D without the passes over tensors of "
    "all pairs", lambda work: without(work, _columns(work) > 1), respond=_multiplied)
