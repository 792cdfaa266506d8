"""Gradients of weights that no optimizer updates, as of a frozen trunk below the head that learns: none is needed."""

from __future__ import annotations

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.learnt import unneeded_gradients
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.responses import not_again
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags


def _unneeded(work: StepWork) -> Flags:
    """Return the rows that end in such gradients. Raise NothingToChange without any."""
    rows = work.once(unneeded_gradients)
    if not rows.any():
        raise NothingToChange("no gradient is made of weights that stay, or what is updated is not known")
    return rows


UNNEEDED_GRADIENTS = Mechanism(
    "unneeded_gradients", "Make no gradients of weights that are not learnt",
    "D - the way back after the last gradient that the optimizer takes",
    lambda work: without(work, _unneeded(work)), respond=not_again(_unneeded))
ACTIONS = (Action(
    "stop_gradients", UNNEEDED_GRADIENTS.title, of_targets(UNNEEDED_GRADIENTS.name),
    "kernels make gradients that no optimizer takes", "low",
    (Step("requires_grad_(False) for the weights that the optimizer does not get; torch.no_grad() around a part of the "
          "model that holds no others, or .detach() of its result", (PYTORCH, OWN_CODE)),),
    "compute_limited_pct", applies_if=(PYTORCH, TRAINING), mechanism=UNNEEDED_GRADIENTS.name,
    or_confirm=("memory_limited_pct",)),)
