"""Pointwise kernels and norms fused into products, or into one kernel: at best nothing of their own is left."""

from __future__ import annotations

from aaco.analytics.advice.least import fusible, without
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import in_one_pass

POINTWISE_FUSION = Mechanism("pointwise_fusion", "Fuse kernels that only pass over memory",
                             "D - pointwise kernels, norms, reductions and copies on the device",
                             lambda work: without(work, fusible(work)),
                             respond=lambda work, least: in_one_pass(work, fusible(work)))
