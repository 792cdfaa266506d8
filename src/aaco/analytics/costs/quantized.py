"""FLOPs of quantization: a fused integer operator counts as its QDQ form.

QuantizeLinear is divide, round, two saturations (4) and the zero point (1); DequantizeLinear a multiplication and the
zero point. Integer multiply-adds count as floating-point ones do. Source: the ONNX operator specification; ONNX
Runtime's ContribOperators.md for the QLinear and block-quantized forms.
"""

from __future__ import annotations

import math

from aaco.analytics.costs import conv, linear
from aaco.analytics.costs.terms import Formula, OperatorCall

QUANTIZE, DEQUANTIZE = 5, 2  # per element, with a zero point


def quantize(call: OperatorCall) -> int:
    """QuantizeLinear."""
    return (QUANTIZE - 1 + call.has(2)) * call.made()


def dequantize(call: OperatorCall) -> int:
    """DequantizeLinear."""
    return (DEQUANTIZE - 1 + call.has(2)) * call.made()


def dynamic_quantize(call: OperatorCall) -> int:
    """DynamicQuantizeLinear: minimum and maximum, then QuantizeLinear; the few scalars are not counted."""
    return (2 + QUANTIZE) * call.count()


def qlinear(formula: Formula, *operands: int) -> Formula:
    """The float operator between the dequantization of `operands` (input positions) and quantization of the output."""
    return lambda call: (DEQUANTIZE * sum(map(call.count, operands)) + formula(call) + QUANTIZE * call.made())


def qlinear_conv(call: OperatorCall) -> int:
    """The float convolution inside QLinearConv: weight at input 3, bias at 8."""
    return conv.dot_products(call, weight=3) + call.has(8) * call.made()


def qgemm(call: OperatorCall) -> int:
    """QGemm: A at 0, B at 3, C at 6; the output stays float without the scale at 7."""
    depth = call.shape(0)[0 if call.number("transA", 0) else 1]
    after = call.scaled("alpha") + call.has(6) + QUANTIZE * call.has(7)
    return DEQUANTIZE * (call.count(0) + call.count(3)) + (2 * depth + after) * call.made()


def dynamic_matmul(call: OperatorCall) -> int:
    """DynamicQuantizeMatMul: quantize A as DynamicQuantizeLinear does, integer product, one scale, bias at 4."""
    zeros = call.count(0) + (call.count(1) if call.has(3) else 0)
    return dynamic_quantize(call) + linear.matmul(call) + zeros + (1 + call.has(4)) * call.made()


def gather_block_traffic(call: OperatorCall) -> int:
    """Bytes of GatherBlockQuantized: the chosen rows of data, scales and zero points, the indices, the output."""
    rows = call.shape(0)[call.number("gather_axis", 0)]
    tables = call.read(skip=1)
    return tables * min(rows, math.prod(call.shape(1))) // rows + call.size(1) + call.written()
