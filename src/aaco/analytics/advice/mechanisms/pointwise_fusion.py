"""Pointwise kernels and norms fused into products, or into one kernel: at best nothing of their own is left."""

from __future__ import annotations

from aaco.analytics.advice.least import fusible, without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import in_one_pass
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    return without(work, fusible(work))


def _fused(work: StepWork, least: Reals) -> Response:
    return in_one_pass(work, fusible(work))


POINTWISE_FUSION = Mechanism("pointwise_fusion", "Fuse kernels that only pass over memory",
                             "D - pointwise kernels, norms, reductions and copies on the device", _least_ns,
                             respond=_fused)
