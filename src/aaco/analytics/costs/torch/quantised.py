"""Quantisation in PyTorch and vLLM in the terms of `operators.quantized`, and products with weights of few bits.

Source: native_functions.yaml of PyTorch; vllm-project/vllm csrc/torch_bindings.cpp. Scaling, rounding and two
saturations are 4 operations per element; a zero point adds one; finding the scale adds a magnitude and a maximum.
"""

from __future__ import annotations

from aaco.analytics.costs.quantized import DEQUANTIZE, QUANTIZE
from aaco.analytics.costs.terms import OperatorCall, TensorType
from aaco.analytics.costs.torch.arguments import OperatorArguments, form, known


def given_scale(args: OperatorArguments) -> OperatorCall:
    """static_scaled_fp8_quant (result, input, scale)."""
    return form((args.tensor(1), args.optional(2)), args.tensor(0), operations=QUANTIZE - 1)


def found_scale(args: OperatorArguments) -> OperatorCall:
    """dynamic_scaled_fp8_quant (result, input, scale): the scale is a result too."""
    return form((args.tensor(1),), args.tensor(0), args.tensor(2), operations=QUANTIZE + 1)


def per_tensor(args: OperatorArguments) -> OperatorCall:
    """quantize_per_tensor (input, scale, zero point, type of the result); a fake one has the input's type."""
    operand = args.tensor(0)
    kind = {12: "int8", 13: "uint8", 14: "int32"}.get(args.integer(3, -1), operand.dtype)
    fake = kind == operand.dtype
    return form((operand,), TensorType(kind, operand.shape), operations=QUANTIZE + DEQUANTIZE * fake)


def dequantised(args: OperatorArguments) -> OperatorCall:
    """dequantize (input)."""
    return form((args.tensor(0),), TensorType("float32", args.tensor(0).shape), operations=DEQUANTIZE)


def flops(call: OperatorCall) -> int:
    """The operations that the form says, per element."""
    return call.number("operations") * call.count()


def int4_weights(args: OperatorArguments) -> OperatorCall:
    """_weight_int4pack_mm (input, packed weights, size of a group, scales and zeros of (groups, columns, 2))."""
    operand, scales = args.tensor(0), args.tensor(3)
    return _packed(args, known(scales)[1], operand, scales)


def int8_weights(args: OperatorArguments) -> OperatorCall:
    """_weight_int8pack_mm (input, weights of (columns, depth), scales)."""
    return _packed(args, known(args.tensor(1))[0], args.tensor(0), args.tensor(2))


def _packed(args: OperatorArguments, columns: int, operand: TensorType, scales: TensorType) -> OperatorCall:
    made = TensorType(operand.dtype, (*known(operand)[:-1], columns))
    return form((operand, args.tensor(1), scales), made, N=columns, K=known(operand)[-1])
