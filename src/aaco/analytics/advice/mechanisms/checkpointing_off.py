"""Activations kept for the way back: nothing is computed again."""

from __future__ import annotations

from msgspec.structs import replace

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.computed_again import RECOMPUTE, computed_again
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import not_again
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.once(computed_again))


def _kept(work: StepWork, least: Reals) -> Response:
    """Return the step without what is computed again, and without what the host does for it: to note what each operator
    needs on the way back, and to begin the layer again there, takes it about as long again in recorded changes.
    """
    again = work.call_shares[work.of_phase(RECOMPUTE)].sum() / work.steps
    return replace(not_again(computed_again)(work, least), more_calls=-float(again))


CHECKPOINTING_OFF = Mechanism("checkpointing_off", "Keep activations instead of computing them again",
                              "D - kernels of recomputed operators, or of what runs with gradients later", _least_ns,
                              respond=_kept)
ACTIONS = (Action(
    "keep_activations", "Keep activations instead of computing them again", of_targets("checkpointing_off"),
    "kernels compute activations again", "low",
    (Step("no torch.utils.checkpoint where memory allows; else every second layer", (PYTORCH, OWN_CODE)),
     Step("a loss of many parts: run each once, with gradients, in as few as memory allows", (PYTORCH, OWN_CODE))),
    "recomputed_pct", applies_if=(PYTORCH, TRAINING),
    memory="activations of all layers stay until the backward pass", mechanism="checkpointing_off"),)
