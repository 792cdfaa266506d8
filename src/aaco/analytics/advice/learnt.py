"""What of a training step concerns weights that no optimizer updates, by the sizes of what operators take and make.

A way back goes from the loss to the inputs. What comes after the last operator that touches anything as large as what
the optimizer updates ends in gradients that it does not take. It counts only where gradients of other weights are
among it, and where everything that is updated shows on the way back: then sizes show what is needed. What runs ahead of
the first such operator is a frozen network then, with gradients that were not switched off.

Weights that stay may have the sizes of those that are updated. Their gradients are not cleared: PyTorch adds to them in
each step, where it takes over those that the optimizer cleared (torch/csrc/autograd/functions/accumulate_grad.h).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aaco.analytics.advice.turn_flow import result_shape
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import AHEAD, BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.core.arrays import Flags, Ints, Reals

# Of products the places of input and weight among the arguments, and of the weight alone, which may be transposed.
OPERANDS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::linear": (0, 1), "aten::addmv": (2, 1)}
WEIGHTS = {**{name: OPERANDS[name][1] for name in ("aten::mm", "aten::addmm", "aten::linear")},
           **dict.fromkeys(("aten::cudnn_convolution", "aten::miopen_convolution", "aten::_convolution"), 1)}
# Of the gradient of a convolution the places of its weight and of which gradients it makes (native_functions.yaml).
CONVOLUTION, WEIGHT, MADE = "aten::convolution_backward", 2, 10
NO_WEIGHT, NO_INPUT = "[True, False, False]", "[False"
LIST, ZEROED = "TensorList", ("aten::zero_", "aten::_foreach_zero_")
ACCUMULATION, HANDED_ON = "torch::autograd::AccumulateGrad", ("ToCopyBackward0", "ViewBackward0")


def unneeded_gradients(work: StepWork) -> Flags:
    """Return the rows of the way back that end in gradients of weights that stay."""
    updated, back = work.once(_updated), work.once(_back)
    if not updated or not back.any():
        return np.zeros(len(back), bool)
    called = [operator for operator, calls in zip(work.operators, work.operator_calls, strict=False) if calls]
    touched = {size for operator in called if operator.phase == BACKWARD for size in _touched(operator)}
    weights = {size for operator in called if operator.phase != BACKWARD for size in weight_sizes(operator)}
    rows = back & (np.arange(len(back)) > _needed(work, back & ~work.once(_added)[0], updated, last=True))
    made = rows & work.operated(lambda operator: not weights.isdisjoint(_gradients(operator)))
    return rows & (made.any() and {size for size in updated if len(size) > 1} <= touched)


def piled_up(work: StepWork) -> Reals:
    """Return the part of each row that makes a gradient which is added to those of earlier steps."""
    return work.once(_added)[1]


def may_pile_up(work: StepWork) -> Flags:
    """Return the rows of the way back that may lead to such gradients only."""
    updated = work.once(_updated)
    learns = work.operated(lambda operator: not updated.isdisjoint(_touched(operator))) & ~work.once(_added)[0]
    return work.once(_back) & ~learns & work.once(piled_up).any()


def ahead_of_learnt(work: StepWork) -> Flags:
    """Return the rows before the first that touches anything as large as what is updated, and as no weight that stays.
    """
    ahead, unneeded = work.of_phase(*AHEAD), work.once(unneeded_gradients)
    stay = {size for operator in set(work.operator[unneeded]) for size in _touched(work.operators[operator])}
    return ahead & (np.arange(len(ahead)) < _needed(work, ahead, work.once(_updated) - stay, last=False))


def weight_sizes(operator: StepOperator) -> set[Shape]:
    """Return the sizes of a product's weight; nothing of other operators."""
    place = WEIGHTS.get(operator.name)
    return set() if place is None else {sizes(shape) for shape in operator.shapes[place:place + 1] if shape}


def sizes(shape: Iterable[int]) -> Shape:
    """Return the sizes of a tensor's axes in any order, as of one that is transposed."""
    return tuple(sorted(shape))


def _updated(work: StepWork) -> set[Shape]:
    """Return the sizes of what is updated. PyTorch records none of long lists: then of all that may be weights, if what
    is added to gradients shows which of them stay.
    """
    updates = [operator for operator in work.operators if operator.phase == OPTIMIZER]
    if not any(operator.arguments and operator.arguments.shapes[:1] == [[]] and LIST in operator.arguments.types[:1]
               for operator in updates):
        return {size for operator in updates for size in _taken(operator)}
    weights = {size for operator in work.operators if operator.phase in AHEAD for size in weight_sizes(operator)}
    touched = {size for operator in work.operators if operator.phase == BACKWARD for size in _touched(operator)}
    return {size for size in touched if len(size) == 1 or size in weights} if work.once(_clears_learnt) else set()


def _clears_learnt(work: StepWork) -> bool:
    """Return whether each update follows one way back that takes over gradients which were cleared, not zeros."""
    back = work.once(_back)
    ways = np.cumsum(work.of_phase(*AHEAD))[back]
    return (np.unique(ways).size <= np.unique(work.once(update_of)[back]).size
            and not any(operator.name in ZEROED and operator.phase != BACKWARD for operator in work.operators)
            and any(operator.name == "aten::detach" and operator.outermost.endswith(ACCUMULATION)
                    for operator in work.operators))


def _added(work: StepWork) -> tuple[Flags, Reals]:
    """Return the rows of the way back that make gradients of weights, all added at once to those of earlier steps; and
    the part of each row that makes such a gradient: of a convolution half, where it hands another one on.
    """
    added, parts, updated = np.zeros(len(work.ns), bool), np.zeros(len(work.ns)), work.once(_updated)
    made, before, back = dict[int, set[Shape]](), list[StepOperator](), work.once(_back)
    for row in np.flatnonzero(back & (work.once(_clears_learnt) and bool(updated))).tolist():
        operator = work.operators[work.operator[row]]
        if operator.outermost.endswith(ACCUMULATION):
            made = {maker: left - _taken(operator) for maker, left in made.items()}
            added[[row, *(maker for maker, left in made.items() if not left)]] = True
            for maker in (row, *made):
                maker_of = work.operators[work.operator[maker]]
                if not _taken(operator).isdisjoint(_gradients(maker_of)):
                    parts[maker] = 0.5 if maker_of.name == CONVOLUTION and NO_INPUT not in _mask(maker_of) else 1.0
        else:
            if before and operator != before[-1] and (before[-1].outermost != operator.outermost or operator in before):
                made, before = made if operator.outermost.endswith(HANDED_ON) else {}, []
            made[row] = updated & _touched(operator)
        before.append(operator)
    return added, parts


def _back(work: StepWork) -> Flags:
    return work.of_phase(BACKWARD)


def update_of(work: StepWork) -> Ints:
    """Return for each row how many updates began before it, or with it."""
    updates = work.of_phase(OPTIMIZER)
    return np.cumsum(np.diff(updates.astype(np.int8), prepend=0) > 0)


def _needed(work: StepWork, rows: Flags, updated: set[Shape], last: bool) -> Ints:
    """Return for each row the last, or first, of these that touches what is updated, before the next update. Where none
    does, it is beyond all rows on the side that leaves none.
    """
    count, update = len(rows), work.once(update_of)
    needed = np.flatnonzero(rows & work.operated(lambda operator: not updated.isdisjoint(_touched(operator))))
    ends = np.full(int(update.max(initial=0)) + 1, count if last else -1)
    order = needed if last else needed[::-1]
    ends[update[order]] = order
    return ends[update]


def _taken(operator: StepOperator) -> set[Shape]:
    return {sizes(shape) for shape, _ in operator.each_tensor if shape and all(shape)}


def _touched(operator: StepOperator) -> set[Shape]:
    """Return the sizes of the tensors that an operator takes and makes."""
    return _taken(operator) | _result(operator)


def _gradients(operator: StepOperator) -> set[Shape]:
    """Return the sizes of what an operator makes: of a convolution's gradient that of the weight, where it makes it."""
    if operator.name != CONVOLUTION:
        return _result(operator)
    return {sizes(shape) for shape in operator.shapes[WEIGHT:WEIGHT + 1] if shape and NO_WEIGHT not in _mask(operator)}


def _mask(operator: StepOperator) -> str:
    """Return which gradients a convolution makes, as PyTorch writes it."""
    return "".join(((operator.arguments.values if operator.arguments else None) or ())[MADE:])


def _result(operator: StepOperator) -> set[Shape]:
    return {sizes(shape)} if (shape := result_shape(operator)) else set()
