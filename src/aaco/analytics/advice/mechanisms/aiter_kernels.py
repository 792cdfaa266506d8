"""AITER, AMD's kernels for language models, in place of an engine's own: attention, experts, norms, quantised products.

An engine's switch changes whole groups of kernels, those of Triton too, and AITER fuses passes over memory with norms
and products. So of passes nothing need stay, and of products their time at the roof.

vLLM has it off by default (vllm/envs.py, VLLM_ROCM_USE_AITER, the switch before all others of its kind; to turn it on
was proposed in vllm-project/vllm#48890 and is open), and takes it on CDNA 3 and later. SGLang has it off, too
(python/sglang/srt/environ.py, SGLANG_USE_AITER), but its images for ROCm set it (docker/rocm.Dockerfile).
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import AMD, ENGINE, SGLANG, VLLM, Action, of_targets
from aaco.analytics.advice.least import fusible, own_rate, product_roofs
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.mechanisms.product_tuning import TENSILE
from aaco.analytics.advice.work import StepWork, WorkName
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals

FAMILIES = ("attention", "norm", "quantize", "sort")
FUSED_TOO = ("sort", "embedding")  # the choice of experts, and writing into the cache of keys and values


def _has_its_own(name: WorkName) -> bool:
    """Return whether AITER has kernels for what this one does. Products of hipBLASLt stay there, but for some of eight
    bits, and of 16 bits on gfx950 (vllm/_aiter_ops.py, is_tgemm_enabled).
    """
    if name.family != "gemm":
        return name.family in FAMILIES
    return name.library != TENSILE


def _replaced(work: StepWork) -> Flags:
    return work.named(_has_its_own)


def _least_ns(work: StepWork) -> Reals:
    passes = fusible(work) | work.of_families(*FUSED_TOO)
    return np.where(passes, 0.0, product_roofs(work, own_rate(work)))


AITER_KERNELS = Mechanism("aiter_kernels", "Use AITER's kernels", "D with products at their roof, without passes over "
                          "memory", _least_ns, acts_on=_replaced, named=_replaced)
ACTIONS = (Action(
    "aiter_kernels", "Use AITER's kernels", of_targets("aiter_kernels"),
    "kernels compute attention, norms, experts or products that AITER has kernels for", "low", (
        Step("VLLM_ROCM_USE_AITER=1 in the environment of vLLM's server", (VLLM,)),
        Step("SGLANG_USE_AITER=1 in the environment of SGLang's server", (SGLANG,))),
    "memory_limited_pct", applies_if=(AMD, ENGINE, fact_is("aiter", "unused")),
    already_done_if=(fact_is("aiter", "used"),),
    accuracy="sums in another order: check the outputs",
    mechanism="aiter_kernels", ceiling_takes="takes all products at their roof and no passes over memory",
    or_confirm=("compute_limited_pct",)),)
