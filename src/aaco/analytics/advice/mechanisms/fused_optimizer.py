"""One kernel for the update of all parameters: at best nothing of the optimizer's is left on the device."""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import without
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals

OPTIMIZER = "optimizer"


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.operated(lambda operator: operator.phase == OPTIMIZER))


FUSED_OPTIMIZER = Mechanism("fused_optimizer", "Update all parameters in one kernel", "D - kernels of the optimizer",
                            _least_ns)
