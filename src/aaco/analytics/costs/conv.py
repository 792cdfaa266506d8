"""FLOPs of convolution, pooling and resampling: windows that slide over space.

Convention: every tap of the window counts, padded ones included, as the published figures do (He et al. 2016 and
torchvision: ResNet-50 is 4.1 G multiply-adds, 2 FLOPs each). The weight's own shape carries groups, channel blocking
(ONNX Runtime's NCHWc) and layout: prod(weight.shape[1:]) is the length of one dot product in each. Strides, dilations
and padding only act through the output's shape. A bias and a residual (FusedConv's Z, NCHWc's Sum) add one operation
per output. Source: the ONNX operator specification; ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import math

from aaco.analytics.costs.elementwise import SILU, activation
from aaco.analytics.costs.linear import zero_points
from aaco.analytics.costs.terms import OperatorCall, UnknownShape

_TAPS = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}  # per axis


def conv(call: OperatorCall) -> int:
    """Conv and its fused forms: inputs X, W, bias, residual."""
    return dot_products(call, weight=1) + (call.has(2) + call.has(3)) * call.made() + activation(call, call.made())


def dot_products(call: OperatorCall, weight: int) -> int:
    """One dot product with a filter per output element; `weight` is the input that holds the filters."""
    return 2 * call.made() * math.prod(call.shape(weight)[1:])


def conv_integer(call: OperatorCall) -> int:
    """ConvInteger: the convolution, and a subtraction per element of an operand that has a zero point."""
    return dot_products(call, weight=1) + zero_points(call)


def causal_conv(call: OperatorCall) -> int:
    """CausalConvWithState: depthwise over time; input 2 is the bias, input 3 the carried state."""
    after = call.has(2) + (SILU if call.attributes.get("activation", "none") in ("silu", "swish") else 0)
    return dot_products(call, weight=1) + after * call.made()


def conv_transpose(call: OperatorCall) -> int:
    """ConvTranspose: every input element meets every tap of its group's filters, also what is cropped later."""
    return 2 * call.count(0) * math.prod(call.shape(1)[1:]) + call.has(2) * call.made()


def conv_transpose_dynamic(call: OperatorCall) -> int:
    """ConvTransposeWithDynamicPads: the same with the bias as input 3."""
    return 2 * call.count(0) * math.prod(call.shape(1)[1:]) + call.has(3) * call.made()


def deform_conv(call: OperatorCall) -> int:
    """DeformConv: the convolution, over samples interpolated from 2 corners per axis, each perhaps times a mask."""
    _, channels, *_ = call.shape(0)
    batch, _, *places = call.result()
    kernel = call.shape(1)[2:]
    samples = batch * channels * math.prod(places) * math.prod(kernel)
    return dot_products(call, weight=1) + ((2 << len(kernel)) + call.has(4)) * samples + call.has(3) * call.made()


def max_pool(call: OperatorCall) -> int:
    """MaxPool: taps - 1 comparisons per output."""
    return (_window(call) - 1) * call.made()


def average_pool(call: OperatorCall) -> int:
    """AveragePool: taps - 1 additions and a division per output."""
    return _window(call) * call.made()


def lp_pool(call: OperatorCall) -> int:
    """LpPool: a power per tap, their sum, a root."""
    return 2 * _window(call) * call.made()


def resize(call: OperatorCall) -> int:
    """Resize and Upsample: a multiply-add per neighbour; 2 or 4 neighbours per axis that changes, none for nearest."""
    changed = sum(before != after for before, after in zip(call.shape(0), call.result(), strict=True))
    return _interpolation(call, "nearest", changed)


def grid_sample(call: OperatorCall) -> int:
    """GridSample: as Resize, over all spatial axes; finding the neighbours is not counted."""
    return _interpolation(call, "linear", len(call.shape(0)) - 2)


def roi_align(call: OperatorCall) -> int:
    """RoiAlign: per output sampling_ratio^2 samples of 4 multiply-adds, and their average or maximum.

    Raise UnknownShape for the adaptive ratio 0, which depends on the boxes.
    """
    ratio = call.number("sampling_ratio", 0)
    if not ratio:
        raise UnknownShape("sampling_ratio 0 depends on the boxes")
    return 9 * ratio**2 * call.made()


def _interpolation(call: OperatorCall, default: str, axes: int) -> int:
    taps = _TAPS[call.attributes.get("mode", default)]
    neighbours = math.prod([taps] * axes) if taps and axes else 0
    return 2 * neighbours * call.made()


def _window(call: OperatorCall) -> int:
    return math.prod(map(int, call.attributes["kernel_shape"]))
