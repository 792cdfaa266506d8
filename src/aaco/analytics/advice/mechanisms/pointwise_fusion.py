"""Pointwise kernels and norms fused into products, or into one kernel: at best nothing of their own is left."""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import LOCAL_COPIES, POINTWISE, without
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.of_families(*POINTWISE) | work.copies(*LOCAL_COPIES))


POINTWISE_FUSION = Mechanism("pointwise_fusion", "Fuse kernels that only pass over memory",
                             "D - pointwise kernels, norms, reductions and copies on the device", _least_ns)
