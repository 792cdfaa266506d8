"""Eight bits in place of sixteen: products at the matrix units' rate of eight bits, half of the bytes for all else."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import ENGINE, NO_FRAMEWORK, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import block_ns, own_time, product_roofs, row_gathers, widest_rate
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import FIXED_NS, HALF, unchanged
from aaco.analytics.advice.work import StepOperator, StepWork, WorkName
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

EIGHT_BITS = frozenset(("f8", "f6f4", "i8"))


def _rest(work: StepWork) -> Reals:
    """Return what is left of work that moves bytes: half of sixteen bits, a quarter of what may be wider."""
    return own_time(work) * np.where(work.named(lambda name: bool({"f16", "bf16"} & set(name.types))), HALF, HALF / 2)


def _is_wider(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    return not operator.integers and not any(EIGHT_BITS & set(name.types) for name in names)


def _least_ns(work: StepWork) -> Reals:
    rate = widest_rate(work.limits.rates.get(name) for name in ("matrix_f8", "matrix_i8"))
    if rate is None:
        raise Absent("the device's peak of eight bits is not known, or it has none")
    products = product_roofs(work, lambda operator, names: rate, HALF, is_meant=_is_wider)
    if not (products < work.sure_ns).any():
        raise Absent("no product computes in more than eight bits")
    gathers = np.where(row_gathers(work), block_ns(work, work.blocks_x), 0.0)
    return np.maximum(np.where(products < work.sure_ns, products, _rest(work)), gathers)


def _quantized(work: StepWork, least: Reals) -> Response:
    """Return the step with products of matrices in half of their time, but for the fixed part of a kernel; libraries
    keep all else in sixteen bits.
    """
    own = own_time(work)
    faster = work.of_families("gemm") & (least < own)
    return replace(unchanged(work), device_ns=np.where(faster, np.maximum(HALF * own, np.minimum(own, FIXED_NS)), own))


EIGHT_BIT_TYPES = Mechanism("eight_bit_types", "Compute in eight bits",
                            "FLOPs of products / peak of eight bits + a quarter to half of the rest", _least_ns,
                            respond=_quantized, host_stays=True, fewer_bytes=True, other_kernels=True)
ACTIONS = (Action(
    "eight_bit_types", "Compute in eight bits", of_targets("eight_bit_types", "compute_limited_pct"),
    "kernels compute or move 16 bits", "high", (
        Step("torchao's float8 for linear layers", (PYTORCH, OWN_CODE, fact_is("product_kind", "gemm"))),
        Step("--quantization fp8", (ENGINE,)),
        Step("fp8 operands for the matrix units", (NO_FRAMEWORK,))),
    "compute_limited_pct", applies_if=(fact_is("eight_bit_units", "yes"), fact_is("product_type", "fp16", "bf16")),
    already_done_if=(fact_is("product_type", "fp8", "fp4", "int8", "int4"),),
    accuracy="3 or 2 bits of mantissa, with scales: check the outputs", mechanism="eight_bit_types",
    of_limit="arithmetic limits the device, and products compute in 16 bits", or_confirm=("memory_limited_pct",)),)
