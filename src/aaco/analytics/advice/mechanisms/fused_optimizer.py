"""One kernel for the update of all parameters: at best nothing of the optimizer's is left on the device."""

from __future__ import annotations

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import without_phase
from aaco.analytics.advice.work import OPTIMIZER, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.operated(lambda operator: operator.phase == OPTIMIZER))


FUSED_OPTIMIZER = Mechanism("fused_optimizer", "Update all parameters in one kernel", "D - kernels of the optimizer",
                            _least_ns, respond=without_phase(OPTIMIZER))
ACTIONS = (Action(
    "fuse_optimizer", "Update all weights in one kernel", of_targets("fused_optimizer", "memory_limited_pct"),
    "kernels of the optimizer run", "low", (Step("fused=True for the optimizer", (PYTORCH, OWN_CODE)),),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("optimizer", "loop", "foreach")),
    already_done_if=(fact_is("optimizer", "fused"),), mechanism="fused_optimizer"),)
