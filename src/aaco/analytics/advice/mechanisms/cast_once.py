"""Weights that each step converts to another type, and scales, before a product reads them: kept in that type.

A weight is the second operand of a product of matrices; no first operand of one has its shape. In training weights
change with each step, so each step has to convert them; but whole numbers, which no gradient changes.
"""

from __future__ import annotations

import math

import numpy as np

from aaco.analytics.advice.action import INFERENCE, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.learnt import OPERANDS
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.mechanisms.product_before_gather import TRAINING
from aaco.analytics.advice.responses import not_again
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.core.advice import Step, fact_is_not
from aaco.core.arrays import Flags
from aaco.core.readings import Absent

WHOLE_NUMBERS = ("signedchar", "unsignedchar", "char", "short", "int")
CONVERTS = ("aten::copy_", "aten::_to_copy")


def _shape(operator: StepOperator, index: int) -> Shape | None:
    shapes = operator.shapes
    return shapes[index] if index < len(shapes) else None


def _weights(work: StepWork) -> set[Shape]:
    """Return the shapes of weights, as they are and transposed; none that an input of a product has."""
    products = [(operator, *OPERANDS[operator.name]) for operator, called in
                zip(work.operators, work.operator_calls.tolist(), strict=False)
                if called and operator.name in OPERANDS]
    inputs, weights = {_shape(operator, first) for operator, first, _ in products}, set[Shape]()
    for operator, _, second in products:
        if (shape := _shape(operator, second)) and len(shape) == 2:
            weights |= {shape, shape[::-1]}
    return weights - inputs


def _converts(operator: StepOperator, weights: set[Shape], only_whole: bool) -> bool:
    """Return whether an operator converts a weight; one of whole numbers, in groups too, or only_whole of them."""
    taken = operator.arguments
    if operator.name not in CONVERTS or taken is None or len(taken.types) < 2:
        return False
    to, of = taken.types[:2]
    whole = of in WHOLE_NUMBERS
    is_weight = _size(operator) in _sizes(weights) if whole else _shape(operator, 0) in weights
    return of != to and is_weight and (whole or not only_whole)


def _size(operator: StepOperator) -> int | None:
    shape = _shape(operator, 0)
    return math.prod(shape) if shape else None


def _sizes(shapes: set[Shape]) -> set[int]:
    return {math.prod(shape) for shape in shapes}


def _again(work: StepWork) -> Flags:
    """Return the conversions of weights, and what works on their results at once. Raise Absent if there are none."""
    weights, trains = _weights(work), any(operator.phase in TRAINING for operator in work.operators)
    converted = work.operated(lambda operator: _converts(operator, weights, trains))
    if not converted.any():
        raise Absent("a training step changes its weights, and converts none of whole numbers" if trains
                     else "no step converts weights to another type")
    order = work.lane_order
    sizes = _sizes(weights)
    scales = (work.of_families("elementwise") & work.operated(lambda operator: _size(operator) in sizes))[order]
    gone = converted[order]
    follows = np.r_[False, gone[:-1]]
    while (more := scales & follows & ~gone).any():  # passes over a weight, one after another
        gone = gone | more
        follows = np.r_[False, gone[:-1]]
    again = np.zeros(len(order), bool)
    again[order] = gone
    return again


CAST_ONCE = Mechanism("cast_once", "Convert weights once", "D - conversions of weights and passes over their results",
                      lambda work: without(work, work.once(_again)), respond=not_again(_again))
ACTIONS = (Action(
    "cast_once", "Convert weights once", of_targets("cast_once"), "kernels convert weights in each step", "low",
    (Step("weights in the type that products read: model.to(dtype) before the first step",
          (PYTORCH, OWN_CODE, INFERENCE)),
     Step("frozen weights of 8 and 4 bits: widened once before the first step, where memory holds them",
          (PYTORCH, OWN_CODE, fact_is_not("phase", "inference")))),
    "memory_limited_pct", applies_if=(PYTORCH,), memory="what wider weights take more",
    mechanism="cast_once"),)
