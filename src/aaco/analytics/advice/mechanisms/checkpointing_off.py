"""Activations kept for the way back: nothing is computed again."""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import without
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.operated(lambda operator: operator.phase == "recompute"))


CHECKPOINTING_OFF = Mechanism("checkpointing_off", "Keep activations instead of computing them again",
                              "D - kernels of recomputed operators", _least_ns)
