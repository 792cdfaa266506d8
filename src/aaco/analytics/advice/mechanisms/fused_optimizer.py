"""One kernel for the update of all parameters: at best nothing of the optimizer's is left on the device.

The host saves the calls of a loop over parameters. Calls for lists of them it saves for another that walks the same
lists.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import without_phase
from aaco.analytics.advice.work import OPTIMIZER, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

FOR_LISTS = "_foreach_"


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.operated(lambda operator: operator.phase == OPTIMIZER))


def _fused(work: StepWork, least: Reals) -> Response:
    response = without_phase(OPTIMIZER)(work, least)
    walks_lists = work.operated(lambda operator: operator.phase == OPTIMIZER and FOR_LISTS in operator.name)
    return replace(response, left=np.where(walks_lists, 1.0, response.left))


FUSED_OPTIMIZER = Mechanism("fused_optimizer", "Update all parameters in one kernel", "D - kernels of the optimizer",
                            _least_ns, respond=_fused)
ACTIONS = (Action(
    "fuse_optimizer", "Update all weights in one kernel", of_targets("fused_optimizer", "memory_limited_pct"),
    "kernels of the optimizer run", "low", (Step("fused=True for the optimizer", (PYTORCH, OWN_CODE)),),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("optimizer", "loop", "foreach")),
    already_done_if=(fact_is("optimizer", "fused"),), mechanism="fused_optimizer"),)
