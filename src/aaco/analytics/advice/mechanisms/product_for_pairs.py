"""Tensors of all pairs of rows, column by column, that end in sums: products of matrices in their place.

Sums of (a - b)^2 over the columns are a a + b b - 2 a b, so distances, cosines and forces of n and m rows need matrices
of n x m, and no tensor of n x m x columns. Differences and products, powers of them and their multiples are such sums;
a tensor that anything else reads, as an absolute value or a network, must stay. A view of it is not looked for.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from aaco.analytics.advice.least import own_time, without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.turn_flow import tensors_of
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.core import distinct
from aaco.core.arrays import Reals

COMBINES = ("aten::sub", "aten::mul")
SUMS = ("aten::sum", "aten::mean")
KEEPS_SUMS = frozenset((*COMBINES, *SUMS, "aten::rsub", "aten::pow", "aten::square", "aten::neg"))
LEAST_ROWS = 64  # on both sides: a tensor of fewer pairs is no longer than what it is made of


def _pairs(operator: StepOperator) -> Shape | None:
    """Return the shape of the tensor of all pairs of rows that an operator makes; None of any other."""
    shapes = [shape for shape, _ in tensors_of(operator)[:2]] if operator.name in COMBINES else []
    rank = max(map(len, shapes), default=0)
    if len(shapes) != 2 or rank < 3:
        return None
    one, other = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    if not one[-1] == other[-1] > 1:
        return None
    is_crossed = any(min(first[-3], second[-2]) >= LEAST_ROWS and first[-2] == second[-3] == 1
                     for first, second in ((one, other), (other, one)))
    return tuple(map(max, one, other)) if is_crossed else None


def _columns(work: StepWork) -> Reals:
    """Return of each row how many columns the tensor of all pairs has that it makes or reads; 1 of others.

    Raise NothingToChange if all rows are others.
    """
    readers, made = defaultdict[Shape, set[str]](set), set[Shape]()
    for number in distinct.numbers(work.operator[work.operator >= 0]).tolist():
        operator = work.operators[number]
        made |= {shape for shape in [_pairs(operator)] if shape}
        for shape, _ in tensors_of(operator):
            readers[shape].add(operator.name)
    kept = {shape for shape in made if readers[shape] <= KEEPS_SUMS and readers[shape] & {*SUMS}}
    if not kept:
        raise NothingToChange("no tensor of all pairs of rows is only multiplied and summed")
    columns = [max((shape[-1] for shape in (_pairs(operator), *(shape for shape, _ in tensors_of(operator)))
                    if shape in kept), default=1) for operator in work.operators]
    return np.array([*columns, 1], float)[work.operator]


def _multiplied(work: StepWork, least: Reals) -> Response:
    """Return the step with passes over matrices of the pairs in place of passes over their columns."""
    return Response(own_time(work) / work.once(_columns), np.ones(len(least)), only_less=True)


PRODUCT_FOR_PAIRS = Mechanism(
    "product_for_pairs", "Compare all pairs of rows by a product of matrices", "D without the passes over tensors of "
    "all pairs", lambda work: without(work, work.once(_columns) > 1), respond=_multiplied)
