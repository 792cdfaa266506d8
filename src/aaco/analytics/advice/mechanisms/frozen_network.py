"""Results of a network that a training step only reads, kept from epoch to epoch: no step computes them again.

It shows as products of which no gradient is recorded (phases.py), or whose gradients no optimizer takes (learnt.py).
That its weights stay, a trace does not say; that they follow those of the network that learns shows where weights are
written without gradients, outside of the update.
"""

from __future__ import annotations

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.computed_again import computed_again
from aaco.analytics.advice.learnt import ahead_of_learnt, sizes, unneeded_gradients, weight_sizes
from aaco.analytics.advice.least import PRODUCTS, without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.responses import not_again
from aaco.analytics.advice.work import COLLECTIVE, NO_GRAD, OPTIMIZER, StepOperator, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags

AVERAGING = {f"aten::{of_lists}{name}_" for of_lists in ("", "_foreach_") for name in ("lerp", "add", "copy")}
NONE_FROZEN = "no network runs in a training step without gradients, or its weights change"


def _unrecorded(operator: StepOperator) -> bool:
    return operator.phase == NO_GRAD


def _frozen(work: StepWork) -> Flags:
    """Return the rows of networks without gradients. Raise NothingToChange if there are none, or their weights change.
    """
    rows = work.operated(_unrecorded)
    if (unneeded := work.once(unneeded_gradients)).any():
        rows |= ahead_of_learnt(work) | unneeded
    rows &= ~(work.of_families(COLLECTIVE) | work.once(computed_again))
    trains = any(operator.phase == OPTIMIZER for operator in work.operators)
    if not trains or not (rows & work.of_families(*PRODUCTS)).any() or _averages(work):
        raise NothingToChange(NONE_FROZEN)
    return rows


def _averages(work: StepWork) -> bool:
    """Return whether weights are written without gradients, as those of a network that follows another one."""
    weights = {size for operator in work.operators if _unrecorded(operator) for size in weight_sizes(operator)}
    return any(_unrecorded(operator) and operator.name == operator.outermost and operator.name in AVERAGING
               and any(sizes(shape) in weights for shape, _ in operator.each_tensor) for operator in work.operators)


FROZEN_NETWORK = Mechanism("frozen_network", "Keep what a frozen network computes", "D - operators of a training step "
                           "of which no gradient is recorded, or taken", lambda work: without(work, work.once(_frozen)),
                           respond=not_again(_frozen))
ACTIONS = (Action(
    "keep_frozen_results", "Keep what a frozen network computes", of_targets("frozen_network"),
    "kernels compute what no gradient is recorded of", "medium",
    (Step("if its weights and inputs are the same in every epoch: compute its results once and keep them with the data "
          "(latents, embeddings, scores of an older model)", (PYTORCH, OWN_CODE)),
     Step("a validation: at the end of an epoch, not in every step", (PYTORCH, OWN_CODE))),
    "compute_limited_pct", applies_if=(PYTORCH, TRAINING), memory="the results, on disk or in memory",
    mechanism="frozen_network", or_confirm=("memory_limited_pct",)),)
