"""A compiler for the model: pointwise work and conversions of layout gone, products at the roof of their type.

Attention that is one kernel already stays as it is: the compiler calls the same library for it.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import NVIDIA, ORT, OWN_CODE, PYTORCH, Action, of_metric
from aaco.analytics.advice.least import LOCAL_COPIES, PRODUCTS, fusible, own_rate, own_time, product_roofs
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.channels_last import depthwise_by_library
from aaco.analytics.advice.responses import FIXED_NS, in_one_pass, room_for_blocks, streamed_ns
from aaco.analytics.advice.work import BACKWARD, COLLECTIVE, COPY, OPTIMIZER, StepOperator, StepWork, WorkName
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals

READS = ("aten::index", "aten::index_select", "aten::embedding", "aten::gather")
KEPT = (*PRODUCTS, COLLECTIVE, COPY)


def _is_compiled(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    return not any(name.family == "attention" for name in names)


def _least_ns(work: StepWork) -> Reals:
    """Return the times of what a compiler calls libraries for, a kernel for each call, and of what it leaves."""
    kept = work.of_families(*KEPT) & ~work.copies(*LOCAL_COPIES)
    shortest = np.minimum(work.sure_ns, work.limits.shortest_ns or 0.0) * work.call_shares
    products = np.maximum(product_roofs(work, own_rate(work), is_meant=_is_compiled), shortest)
    optimizer = work.of_phase(OPTIMIZER)
    return np.where(optimizer, own_time(work), np.where(kept, products, 0.0))


def _gathers(operator: StepOperator) -> bool:
    """Return whether an operator gathers on the way ahead; back it adds up, which is another kernel."""
    return operator.name in READS and operator.phase != BACKWARD


def _reorders(work: StepWork) -> Flags:
    """Return which rows only bring images from one order into another; none where nothing convolves."""
    if not work.of_families("conv").any():
        return np.zeros(len(work.ns), bool)
    copies = work.operated(lambda operator: operator.name == "aten::copy_" and len(operator.types) < 2)
    return work.of_families("copy") & copies | work.of_families("transpose")


def _compiled(work: StepWork, least: Reals) -> Response:
    """Return the step with its model compiled: the optimizer is not part of it. A pass reads by index what it needs.

    Inductor keeps images in channels_last order (torch/_inductor/graph.py, decide_layout_opt), with cuDNN's depthwise
    convolutions. Sums with fewer results than the device has compute units it splits (torch/_inductor/ir.py,
    Reduction.num_splits), so that all units work on them.
    """
    optimizer = work.of_phase(OPTIMIZER)
    fused = in_one_pass(work, (fusible(work) | work.operated(_gathers)) & ~optimizer, _reorders(work))
    sums = work.of_families("norm", "reduction") & ~optimizer
    split = np.where(sums, np.minimum(fused.device_ns, _split(work, sums)), fused.device_ns)
    return replace(fused, device_ns=np.minimum(split, depthwise_by_library(work)))


def _split(work: StepWork, sums: Flags) -> Reals:
    """Return the times of sums that leave compute units idle with blocks for all: no less than their bytes need."""
    own = own_time(work)
    fixed = np.minimum(own, FIXED_NS)
    return np.maximum(streamed_ns(work, sums), fixed + (own - fixed) / room_for_blocks(work))


COMPILE = Mechanism("compile", "Compile the model", "products at their roof + fused attention + collectives + copies "
                    "from and to the host", _least_ns, named=fusible, respond=_compiled)
ACTIONS = (Action(
    "fusion", "Fuse kernels that only pass over memory", of_metric("pointwise_pct"),
    "kernels only pass over memory", "low", (
        Step("torch.compile(model)", (PYTORCH, OWN_CODE), (fact_is("execution", "compiled", "partly_compiled"),)),
        Step("torch.compile of the whole model: only a part of it is compiled",
             (PYTORCH, OWN_CODE, fact_is("execution", "partly_compiled"))),
        Step("F.gelu, F.silu, F.softmax and fused losses in place of formulas that are written out",
             (PYTORCH, OWN_CODE, fact_is("execution", "eager"))),
        Step("ONNX Runtime: onnxruntime.transformers.optimizer", (ORT,)),
        Step("the CUDA provider's fuse_conv_bias=1", (ORT, NVIDIA)),
        Step("the CUDA provider's prefer_nhwc=1", (ORT, NVIDIA, fact_is("layout", "nchw")))),
    "memory_limited_pct", accuracy="sums in another order: last digits differ", mechanism="compile",
    ceiling_takes="takes products at their roof", surpasses="fuse_norms"),)
