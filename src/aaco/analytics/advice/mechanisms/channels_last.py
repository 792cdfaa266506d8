"""Tensors of images in the order that convolutions want: no conversions, and what reads such tensors at its roof.

Vectorised pointwise kernels stay as they are: they run only over tensors that all have one order already (ATen,
CUDALoops.cuh), and the order makes no difference to them. Products of matrices stay, too.

PyTorch gives MIOpen images in this order only where PYTORCH_MIOPEN_SUGGEST_NHWC is 1 (ATen, native/ConvUtils.h,
miopen_conv_use_channels_last), and batch norms where PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM is (pytorch/pytorch#160529);
from ROCm 7.0 on it does so by default (#170947). Without, it converts them back for each convolution.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import AMD, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import (
    LOCAL_COPIES,
    is_convolution,
    memory_roofs,
    own_rate,
    own_time,
    product_roofs,
)
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import CONVERSIONS, REACH_CONVOLUTION, roofs_now
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is, fact_is_not
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

PLACED = ("aten::cat", "aten::flip", "aten::roll")  # values have another place afterwards, not only another order
READERS = ("norm", "pooling", "elementwise", "reduction", "softmax")
CHANNELWISE = ("norm", "pooling")
GROUP_NORM = "group_norm"  # ATen's takes images as NCHW only, and converts others (native/group_norm.cpp: contiguous)
LAYER_NORM = "aten::native_layer_norm"  # its rows are one behind another in either order (native/layer_norm.cpp)
REACH_MEMORY = 0.3  # norms of images in this order: .14 to .30 of their least time's rate; they pass more than once
VECTORISED = "vectorized_elementwise_kernel"
# ATen's own kernel of depthwise convolutions takes images as NCHW only; in the other order it calls cuDNN's
# (native/Convolution.cpp, use_cudnn_depthwise).
DEPTHWISE = "conv_depthwise"
FOR_MIOPEN = ("before ROCm 7.0 only with PYTORCH_MIOPEN_SUGGEST_NHWC=1 and PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM=1 in "
              "the program's environment")


def _least_ns(work: StepWork) -> Reals:
    if not any(is_convolution(work.operators[number], names) for number, names in work.names_by_operator.items()):
        raise Absent("nothing convolves")
    gone = _of_order(work)
    reads = (work.of_families(*READERS) & ~work.named(lambda name: VECTORISED in name.name)
             | work.of_families(*CONVERSIONS) & ~gone)
    roofs = np.minimum(product_roofs(work, own_rate(work), is_meant=is_convolution), memory_roofs(work, reads))
    return np.where(gone, 0.0, np.minimum(roofs, own_time(work)))


def _of_order(work: StepWork) -> Flags:
    """Return which rows may only change the order of images: copies, but for those from one type to another."""
    between_types = work.operated(lambda operator: len(operator.types) > 1)
    return work.of_families(*CONVERSIONS) & ~between_types | work.copies(*LOCAL_COPIES)


def _reordered(work: StepWork, least: Reals) -> Response:
    """Return the step without conversions between orders of images, with norms and pooling at the rate that they reach.

    Convolutions keep their time, but depthwise ones reach what those of cuDNN do. Between group norms images are
    converted in either order.
    """
    if work.operated(lambda operator: GROUP_NORM in operator.name).any():
        return Response(own_time(work), np.ones(len(least)))
    placed = work.operated(lambda operator: operator.name in PLACED)
    gone = work.of_families(*CONVERSIONS) & ~placed | work.copies(*LOCAL_COPIES)
    rows = work.operated(lambda operator: operator.name == LAYER_NORM)
    channelwise = work.of_families(*CHANNELWISE) & (least > 0) & ~rows
    device = np.where(channelwise, np.minimum(own_time(work), least / REACH_MEMORY), depthwise_by_library(work))
    return Response(np.where(gone, 0.0, device), np.where(gone, 0.0, 1.0))


def depthwise_by_library(work: StepWork) -> Reals:
    """Return the times with ATen's depthwise convolutions at the share of their roof that cuDNN's reach.

    A filter that one channel has for itself is no matrix: each multiplication is the vector units'.
    """
    own, own_kernels = own_time(work), work.named(lambda name: DEPTHWISE in name.name)
    if not own_kernels.any():
        return own
    rate = work.limits.rates.get("vector_f32")
    multiplied = work.of_calls_ns(own_kernels, lambda operator: 1e9 * (operator.flops or 0) / rate if rate else 0.0)
    return np.where(own_kernels, np.minimum(own, np.maximum(roofs_now(work), multiplied) / REACH_CONVOLUTION), own)


CHANNELS_LAST = Mechanism("channels_last", "Keep images in channels_last order", "D - conversions and copies, with "
                          "convolutions, norms, pooling and pointwise kernels at their roof", _least_ns,
                          respond=_reordered, host_stays=True, other_kernels=True)
ACTIONS = (Action(
    "channels_last", "Keep images in channels_last order", of_targets("channels_last"),
    "kernels convert images or read them in NCHW order", "low",
    (Step("model.to(memory_format=torch.channels_last), and the inputs too",
          (PYTORCH, OWN_CODE, fact_is_not("vendor", "amd"))),
     Step("model.to(memory_format=torch.channels_last), and the inputs too; " + FOR_MIOPEN,
          (PYTORCH, OWN_CODE, AMD))),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("layout", "nchw")),
    already_done_if=(fact_is("layout", "nhwc"),), mechanism="channels_last"),)
