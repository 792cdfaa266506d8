"""Gradients of weights that no optimizer updates, as of a frozen trunk below the head that learns: none is needed."""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.learnt import may_pile_up, piled_up, unneeded_gradients
from aaco.analytics.advice.least import own_time, without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals


def _unneeded(work: StepWork) -> Reals:
    """Return the part of each row that ends in such gradients. Raise NothingToChange without any."""
    parts = np.maximum(work.once(unneeded_gradients), work.once(piled_up))
    if not parts.any():
        raise NothingToChange("no gradient is made of weights that stay, or what is updated is not known")
    return parts


def _least_ns(work: StepWork) -> Reals:
    return without(work, (work.once(_unneeded) > 0) | work.once(may_pile_up))


def _not_made(work: StepWork, least: Reals) -> Response:
    """Return the step without those gradients. Those of inputs stay: the work does not show which of them lead nowhere.
    """
    left = 1 - work.once(_unneeded)
    return Response(own_time(work) * left, left, whole_calls=True, only_less=True)


UNNEEDED_GRADIENTS = Mechanism(
    "unneeded_gradients", "Make no gradients of weights that are not learnt",
    "D - the way back after the last gradient that the optimizer takes, or where gradients pile up", _least_ns,
    respond=_not_made)
ACTIONS = (Action(
    "stop_gradients", UNNEEDED_GRADIENTS.title, of_targets(UNNEEDED_GRADIENTS.name),
    "kernels make gradients that no optimizer takes", "low",
    (Step("requires_grad_(False) for the weights that the optimizer does not get; torch.no_grad() around a part of the "
          "model that holds no others, or .detach() of its result", (PYTORCH, OWN_CODE)),),
    "compute_limited_pct", applies_if=(PYTORCH, TRAINING), mechanism=UNNEEDED_GRADIENTS.name,
    or_confirm=("memory_limited_pct",)),)
