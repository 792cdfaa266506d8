"""Gradients of weights that no optimizer updates, as of a frozen trunk below the head that learns: nobody needs them.

A way back goes from the loss to the inputs. What comes after the last operator that touches anything as large as what
the optimizer updates ends in gradients that it does not take. It counts only where gradients of other weights are
among it, and where everything that is updated shows on the way back: then sizes tell what is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.mechanisms.frozen_network import WEIGHTS
from aaco.analytics.advice.responses import not_again
from aaco.analytics.advice.turn_flow import result_shape
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, Shape, StepOperator, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags

# Of the gradient of a convolution the places of its weight and of which gradients it makes (native_functions.yaml).
CONVOLUTION, WEIGHT, MADE = "aten::convolution_backward", 2, 10
NO_WEIGHT = "[True, False, False]"
ALL_NEEDED = "no gradient is made of weights that stay, or what is updated is not known"


def _unneeded(work: StepWork) -> Flags:
    """Return the rows of the way back that end in gradients of weights that stay. Raise NothingToChange without any.
    """
    called = [operator for operator, calls in zip(work.operators, work.operator_calls, strict=False) if calls]
    updated = {size for operator in called if operator.phase == OPTIMIZER for size in _taken(operator)}
    touched = {size for operator in called if operator.phase == BACKWARD for size in _touched(operator)}
    weights = {size for operator in called if operator.phase != BACKWARD for size in _weight(operator)}
    if not {size for size in updated if len(size) > 1} <= touched:
        raise NothingToChange(ALL_NEEDED)
    back = work.operated(lambda operator: operator.phase == BACKWARD)
    needed = back & work.operated(lambda operator: not updated.isdisjoint(_touched(operator)))
    rows = back & (np.arange(len(back)) > _last_before_update(work, needed))
    if not (rows & work.operated(lambda operator: not weights.isdisjoint(_gradients(operator)))).any():
        raise NothingToChange(ALL_NEEDED)
    return rows


def _last_before_update(work: StepWork, needed: Flags) -> np.ndarray:
    """Return for each row the last that is needed before the next update; of an update that needs none, the last row.
    """
    updates = work.operated(lambda operator: operator.phase == OPTIMIZER)
    update = np.cumsum(np.diff(updates.astype(np.int8), prepend=0) > 0)
    last = np.full(int(update.max(initial=0)) + 1, -1)
    last[update[needed]] = np.flatnonzero(needed)
    return np.where(last < 0, len(needed), last)[update]


def _taken(operator: StepOperator) -> set[Shape]:
    return {_sizes(shape) for shape, _ in operator.each_tensor if shape}


def _touched(operator: StepOperator) -> set[Shape]:
    """Return the sizes of the tensors that an operator takes and makes."""
    return _taken(operator) | _result(operator)


def _gradients(operator: StepOperator) -> set[Shape]:
    """Return the sizes of what an operator makes: of a convolution's gradient that of the weight, where it makes it."""
    if operator.name != CONVOLUTION:
        return _result(operator)
    values = (operator.arguments.values if operator.arguments else None) or ()
    return {_sizes(shape) for shape in operator.shapes[WEIGHT:WEIGHT + 1] if shape and NO_WEIGHT not in values[MADE:]}


def _result(operator: StepOperator) -> set[Shape]:
    shape = result_shape(operator)
    return {_sizes(shape)} if shape else set()


def _weight(operator: StepOperator) -> set[Shape]:
    """Return the sizes of a product's weight."""
    place = WEIGHTS.get(operator.name)
    return set() if place is None else {_sizes(shape) for shape in operator.shapes[place:place + 1] if shape}


def _sizes(shape: Iterable[int]) -> Shape:
    return tuple(sorted(shape))


UNNEEDED_GRADIENTS = Mechanism(
    "unneeded_gradients", "Make no gradients of weights that are not learnt",
    "D - the way back after the last gradient that the optimizer takes",
    lambda work: without(work, work.once(_unneeded)), respond=not_again(_unneeded))
ACTIONS = (Action(
    "stop_gradients", UNNEEDED_GRADIENTS.title, of_targets(UNNEEDED_GRADIENTS.name),
    "kernels make gradients that no optimizer takes", "low",
    (Step("requires_grad_(False) for the weights that the optimizer does not get; torch.no_grad() around a part of the "
          "model that holds no others, or .detach() of its result", (PYTORCH, OWN_CODE)),),
    "compute_limited_pct", applies_if=(PYTORCH, TRAINING), mechanism=UNNEEDED_GRADIENTS.name,
    or_confirm=("memory_limited_pct",)),)
