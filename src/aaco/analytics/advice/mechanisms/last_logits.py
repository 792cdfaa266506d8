"""Logits of the last position only: the product with the vocabulary for all other positions is work for nothing.

That product is the one with most columns of those whose columns no other product sums; what works on its result goes
too. It must read its weights once. One that a step calls for each word in turn has rows of several texts, the last
position of each: no logits too many, and no floor. So it is where each row is looked at: distances that are sorted are
no logits.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import kept_at_least
from aaco.analytics.advice.turn_flow import tensors_of
from aaco.analytics.advice.work import BACKWARD, StepOperator, StepWork
from aaco.analytics.costs.terms import TensorType
from aaco.analytics.costs.tiles import ProductShape
from aaco.analytics.costs.torch import call, product
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

LEAST_COLUMNS = 8192  # of a product with a vocabulary
WIDER = 4  # times as many columns as the sum is long: no layer of a model is
PICKS = tuple(f"aten::{name}" for name in ("sort", "argsort", "topk", "argmax", "argmin", "max", "min", "amax", "amin"))
ONCE = 1.5  # calls in a step, of which the first and the last may have been cut


def _of_vocabulary(operator: StepOperator) -> ProductShape | None:
    """Return the product with a vocabulary that an operator is; None for others, and for those of a single row."""
    shape = product(operator.name, operator.arguments)
    wide = shape is not None and shape.columns >= LEAST_COLUMNS and shape.columns >= WIDER * shape.depth
    return shape if wide and shape is not None and shape.rows > 1 else None


def _depths(work: StepWork) -> set[int]:
    """Return how many columns the inputs of products have: layers narrow again what they widen, logits are the end."""
    shapes = (product(operator.name, operator.arguments) for operator in work.operators)
    return {shape.depth for shape in shapes if shape is not None}


def _works_on(operator: StepOperator, columns: int) -> bool:
    """Return whether an operator takes logits: a tensor with rows and, as last dimension, the vocabulary."""
    formed = call(operator.name, operator.arguments)
    return formed is not None and any(_is_logits(tensor, columns) for tensor in formed.inputs)


def _is_logits(tensor: TensorType | None, columns: int) -> bool:
    shape = tensor.shape if tensor is not None else None
    return bool(shape and shape[-1] == columns and len(shape) > 1)


def _reads_each_row(work: StepWork, logits: ProductShape) -> bool:
    """Return whether an operator picks a column of each row of a product, so that none of them is work for nothing."""
    return any(shape[-1:] == (logits.columns,) and math.prod(shape) >= logits.rows * logits.columns
               for operator in work.operators if operator.name in PICKS for shape, _ in tensors_of(operator)[:1])


def _weights_ns(work: StepWork, operator: StepOperator, shape: ProductShape) -> float:
    """Return the least time of one call that reads only the weights."""
    formed = call(operator.name, operator.arguments)
    bits = next((tensor.bits for tensor in formed.inputs if tensor is not None), None) if formed else None
    return work.limits.memory_ns(shape.columns * shape.depth * (bits or 0) / 8)


def _least_ns(work: StepWork) -> Reals:
    if any(operator.phase == BACKWARD for operator in work.operators):
        raise Absent("a training step's loss takes the logits of every position")
    read_on = _depths(work)
    shapes = {number: shape for number in work.names_by_operator
              if (shape := _of_vocabulary(work.operators[number])) is not None and shape.columns not in read_on}
    if not shapes:
        raise Absent("no product with a vocabulary has more than one row")
    shapes = {number: shape for number, shape in shapes.items() if work.operator_calls[number] < ONCE * work.steps}
    if not shapes:
        raise Absent("the product with the vocabulary is called for one word after another")
    shapes = {number: shape for number, shape in shapes.items() if not _reads_each_row(work, shape)}
    if not shapes:
        raise Absent("each row of the widest product is looked at, as by a sort or an argmax")
    widest = max(shapes, key=lambda number: shapes[number].columns)
    columns = shapes[widest].columns
    least = np.where(work.operated(lambda operator: _works_on(operator, columns)), 0.0, own_time(work))
    operator = work.operators[widest]
    least[work.operator == widest] = _weights_ns(work, operator, shapes[widest]) / operator.kernels
    return least


def _fewer_rows(work: StepWork, least: Reals) -> Response:
    return replace(kept_at_least(work, least), only_less=True)


LAST_LOGITS = Mechanism("last_logits", "Compute logits of the last position only",
                        "D - the product with the vocabulary and what follows of it + its weights / bandwidth",
                        _least_ns, respond=_fewer_rows)
