"""16 bits in place of 32: products at the matrix units' rate of them, and half of the bytes for all else.

Copies from wide to narrow types go. Where tensors did not fit the last-level cache and their halves do, a kernel needs
the time of that cache's rate. Gathers of whole rows keep a block for each row, however short it is, or are done by
another kernel, which needs the time of their bytes. What is narrow already, and integers, stay.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import ENGINE, INFERENCE, NO_FRAMEWORK, ORT, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.action import NARROW as IS_NARROW
from aaco.analytics.advice.least import (
    PRODUCTS,
    block_ns,
    memory_roofs,
    own_time,
    product_names,
    product_roofs,
    row_gathers,
    widest_rate,
)
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.responses import FIXED_NS, HALF, retyped
from aaco.analytics.advice.work import AHEAD, BACKWARD, StepOperator, StepWork, WorkName
from aaco.core.advice import Step, fact_is, fact_is_not
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

WIDE = frozenset(("f64", "f32", "tf32"))
NARROW = frozenset(("f16", "bf16", "f8", "f6f4", "i8"))

PROMOTING = frozenset(("aten::mul", "aten::add", "aten::sub", "aten::div"))  # of two tensors
# Autocast computes distances in float32 (pytorch.org/docs/stable/amp.html). Of their parts and gradients nothing says
# so but the sizes of the tensors.
DISTANCES = ("aten::cosine_similarity", "aten::cosine_embedding_loss", "aten::cdist", "aten::pdist", "aten::dist")
# cuDNN's batch norm of float32 images channel by channel, in training. In 16 bits PyTorch takes kernels of its own
# there, which took 1.18, 1.19 and 1.70 times as long in three recorded programs.
BATCH_NORM, NARROW_BATCH_NORM = "_1C11_", 1.2
NARROW_BYTES, THREAD_BYTES = 2, 16  # of a number in 16 bits, and of what a thread reads of a row at once
CASTS = 2  # of a product in training, by autocast: its weights, and their gradient; its inputs may be narrow already


def _is_narrow_name(name: WorkName) -> bool:
    """Return whether a kernel's name says narrow types and no wide ones; accumulators of products may be wide."""
    return bool(NARROW & set(name.types)) and (name.family in PRODUCTS or not WIDE & set(name.types))


def _stays(operator: StepOperator) -> bool:
    return operator.integers or bool(operator.types and not WIDE & set(operator.types))


def _is_wide(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    return not _stays(operator) and not any(_is_narrow_name(name) for name in names)


def _fits_then(work: StepWork) -> Flags:
    """Return which rows are of operators with tensors that the last-level cache holds only after they are halved."""
    size = work.limits.cache_bytes
    if size is None:
        return np.zeros(len(work.ns), bool)
    return work.operated(lambda operator: operator.bytes is not None and size < operator.bytes <= 4 * size)


def _least_ns(work: StepWork) -> Reals:
    rate = widest_rate(work.limits.rates.get(name) for name in ("matrix_f16", "matrix_bf16"))
    if rate is None:
        raise Absent("the device's peak of 16-bit types is not known")
    stays = work.operated(_stays) | work.named(_is_narrow_name)
    if stays.all():
        raise NothingToChange("everything computes in narrow types already")
    products = product_roofs(work, lambda operator, names: rate, HALF, is_meant=_is_wide)
    kept = np.where(stays, own_time(work), HALF * own_time(work))
    others, by_bytes = work.once(_by_another_kernel), None
    if others.any():
        by_bytes = np.minimum(kept, memory_roofs(work, others, HALF))[others]
    np.minimum(kept, memory_roofs(work, ~stays & _fits_then(work), HALF), out=kept)
    np.copyto(kept, products, where=products < work.sure_ns)
    del products  # as long as the work, and so is what comes
    if (gathers := row_gathers(work)).any():
        kept[gathers] = np.maximum(kept, block_ns(work, work.blocks_x))[gathers]
    if by_bytes is not None:
        kept[others] = by_bytes
    kept[work.operated(_narrows)] = 0.0
    return kept


def _by_another_kernel(work: StepWork) -> Flags:
    """Return which gathers another kernel than that with a block for each row does in 16 bits."""
    return row_gathers(work) & work.operated(_has_rows_of_odd_halves) & ~work.operated(_stays)


def _has_rows_of_odd_halves(operator: StepOperator) -> bool:
    """Return whether half of a row, of what an operator gathers rows of, is no whole number of what a thread of the
    kernel with a block for each row reads (ATen/native/cuda/IndexKernelUtils.cu, fast_gather_kernel_eligible).
    """
    table = (operator.shapes or (None,))[0]
    return table is not None and math.prod(table[1:]) * NARROW_BYTES % THREAD_BYTES != 0


def _narrows(operator: StepOperator) -> bool:
    """Return whether an operator makes a narrow copy of a wide tensor, as autocast does."""
    return operator.name == "aten::copy_" and bool(WIDE & set(operator.types)) and bool(NARROW & set(operator.types))


def _retyped(work: StepWork, least: Reals) -> Response:
    """Return the step in 16 bits. In training weights stay wide, and autocast makes narrow ones in each step, and none
    of what is gathered.
    """
    if not work.of_phase(BACKWARD).any():
        narrow, gone = retyped(work, least), work.operated(_narrows)
        device, others = narrow.device_ns, np.flatnonzero(work.once(_by_another_kernel))
        device[others] = np.minimum(own_time(work)[others], np.maximum(least[others], FIXED_NS))
        if gone.any():
            return replace(narrow, device_ns=np.where(gone, 0.0, device), left=np.where(gone, 0.0, narrow.left))
        return narrow
    products = product_names(work)
    calls = sum(work.operator_calls[number] for number, names in products.items()
                if work.operators[number].phase in AHEAD and _is_wide(work.operators[number], names))
    narrow, own = retyped(work, least), work.sure_ns
    device, norms = narrow.device_ns, work.named(lambda name: BATCH_NORM in name.name)
    wide = {size for operator in work.operators if operator.outermost in DISTANCES for size in _sizes(operator)[:1]}
    np.copyto(device, own, where=work.operated(
        lambda operator: _promotes(operator) or not wide.isdisjoint(_sizes(operator))))
    device[norms] = NARROW_BATCH_NORM * own[norms]
    return replace(narrow, more_calls=CASTS * float(calls) / work.steps)


def _promotes(operator: StepOperator) -> bool:
    """Return whether an operator takes tensors of several sizes one of which may be a wide weight, or wide data: then
    its result is wide, too, where autocast leaves the other ones wide.
    """
    return operator.name in PROMOTING and len(set(_sizes(operator))) > 1


def _sizes(operator: StepOperator) -> list[int]:
    """Return how many elements each tensor has that an operator takes, of known shapes."""
    return [math.prod(shape) for shape in operator.shapes if shape]


NARROWER_TYPES = Mechanism("narrower_types", "Compute in a narrower type",
                           "FLOPs of products / peak of 16 bits + half of the rest, at the rate of the cache where "
                           "only the halves fit it", _least_ns, respond=_retyped, host_stays=True, fewer_bytes=True,
                           other_kernels=True)
ACTIONS = (Action(
    "narrower_types", "Compute in a narrower type", of_targets("narrower_types", "compute_limited_pct"),
    "kernels compute or move 32 bits and more", "medium", (
        Step("model.to(torch.bfloat16), and inputs of that type: torch.autocast would convert the weights in each step",
             (PYTORCH, OWN_CODE, INFERENCE)),
        Step("torch.autocast(dtype=torch.bfloat16) for fp32", (PYTORCH, OWN_CODE, fact_is_not("phase", "inference"))),
        Step("--dtype bfloat16", (ENGINE,)),
        Step("ONNX Runtime: onnxconverter_common.float16.convert_float_to_float16", (ORT,)),
        Step("fp16 or bf16 operands for the matrix units", (NO_FRAMEWORK,))),
    "compute_limited_pct", applies_if=(fact_is("product_type", "fp32", "tf32"),),
    already_done_if=(IS_NARROW,), accuracy="8 (bf16) or 11 (fp16) bits of mantissa: check the outputs",
    mechanism="narrower_types", of_limit="arithmetic limits the device, and not all of it in narrow types",
    or_confirm=("memory_limited_pct",), surpasses="allow_tf32"),)
