"""Results of a network that a training step only reads, kept from epoch to epoch: no step computes them again.

It shows as products of which no gradient is recorded (phases.py). That its weights stay, a trace does not say; that
they follow those of the network that learns shows where weights are written without gradients, outside of the update.
"""

from __future__ import annotations

from collections.abc import Iterable

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.least import PRODUCTS, without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.mechanisms.cast_once import OPERANDS
from aaco.analytics.advice.responses import not_again
from aaco.analytics.advice.work import COLLECTIVE, NO_GRAD, OPTIMIZER, Shape, StepOperator, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags

# Of products the place of the weight among the arguments; the shape of one that is transposed is the other way round.
WEIGHTS = {**{name: OPERANDS[name][1] for name in ("aten::mm", "aten::addmm", "aten::linear")},
           **dict.fromkeys(("aten::cudnn_convolution", "aten::miopen_convolution", "aten::_convolution"), 1)}
AVERAGING = {f"aten::{of_lists}{name}_" for of_lists in ("", "_foreach_") for name in ("lerp", "add", "copy")}
NONE_FROZEN = "no network runs in a training step without gradients, or its weights change"


def _unrecorded(operator: StepOperator) -> bool:
    return operator.phase == NO_GRAD


def _frozen(work: StepWork) -> Flags:
    """Return the rows of networks without gradients. Raise NothingToChange if there are none, or their weights change.
    """
    rows = work.operated(_unrecorded) & ~work.of_families(COLLECTIVE)
    trains = any(operator.phase == OPTIMIZER for operator in work.operators)
    if not trains or not (rows & work.of_families(*PRODUCTS)).any() or _averages(work):
        raise NothingToChange(NONE_FROZEN)
    return rows


def _averages(work: StepWork) -> bool:
    """Return whether weights are written without gradients, as those of a network that follows another one."""
    weights = {_sizes(shape) for operator in work.operators if _unrecorded(operator)
               for shape in _weight(operator)}
    return any(_unrecorded(operator) and operator.name == operator.outermost and operator.name in AVERAGING
               and any(_sizes(shape) in weights for shape, _ in operator.each_tensor) for operator in work.operators)


def _weight(operator: StepOperator) -> list[Shape]:
    """Return the shape of a product's weight, none of other operators."""
    place = WEIGHTS.get(operator.name)
    return [] if place is None else [shape for shape in operator.shapes[place:place + 1] if shape]


def _sizes(shape: Iterable[int]) -> Shape:
    return tuple(sorted(shape))


FROZEN_NETWORK = Mechanism("frozen_network", "Keep what a frozen network computes", "D - operators of a training step "
                           "of which no gradient is recorded", lambda work: without(work, work.once(_frozen)),
                           respond=not_again(_frozen))
ACTIONS = (Action(
    "keep_frozen_results", "Keep what a frozen network computes", of_targets("frozen_network"),
    "kernels compute what no gradient is recorded of", "medium",
    (Step("if its weights and inputs are the same in every epoch: compute its results once and keep them with the data "
          "(latents, embeddings, scores of an older model)", (PYTORCH, OWN_CODE)),
     Step("a validation: at the end of an epoch, not in every step", (PYTORCH, OWN_CODE))),
    "compute_limited_pct", applies_if=(PYTORCH, TRAINING), memory="the results, on disk or in memory",
    mechanism="frozen_network", or_confirm=("memory_limited_pct",)),)
