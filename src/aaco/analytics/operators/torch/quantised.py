"""Quantisation in PyTorch and vLLM in the terms of `operators.quantized`, and products with weights of few bits.

Source: native_functions.yaml of PyTorch; vllm-project/vllm csrc/torch_bindings.cpp. Scaling, rounding and two
saturations are 4 operations per element; a zero point adds one; finding the scale adds a magnitude and a maximum.
"""

from __future__ import annotations

from aaco.analytics.operators.quantized import DEQUANTIZE, QUANTIZE
from aaco.analytics.operators.terms import Call, TensorType
from aaco.analytics.operators.torch.arguments import Arguments, form, known


def given_scale(args: Arguments) -> Call:
    """static_scaled_fp8_quant (result, input, scale)."""
    return form((args.tensor(1), args.optional(2)), args.tensor(0), operations=QUANTIZE - 1)


def found_scale(args: Arguments) -> Call:
    """dynamic_scaled_fp8_quant (result, input, scale): the scale is a result too."""
    return form((args.tensor(1),), args.tensor(0), args.tensor(2), operations=QUANTIZE + 1)


def per_tensor(args: Arguments) -> Call:
    """quantize_per_tensor (input, scale, zero point, type of the result); a fake one has the input's type."""
    given = args.tensor(0)
    kind = {12: "int8", 13: "uint8", 14: "int32"}.get(args.integer(3, -1), given.dtype)
    fake = kind == given.dtype
    return form((given,), TensorType(kind, given.shape), operations=QUANTIZE + DEQUANTIZE * fake)


def dequantised(args: Arguments) -> Call:
    """dequantize (input)."""
    return form((args.tensor(0),), TensorType("float32", args.tensor(0).shape), operations=DEQUANTIZE)


def flops(call: Call) -> int:
    """The operations that the form says, per element."""
    return call.number("operations") * call.count()


def int4_weights(args: Arguments) -> Call:
    """_weight_int4pack_mm (input, packed weights, size of a group, scales and zeros of (groups, columns, 2))."""
    given, scales = args.tensor(0), args.tensor(3)
    return _packed(args, known(scales)[1], given, scales)


def int8_weights(args: Arguments) -> Call:
    """_weight_int8pack_mm (input, weights of (columns, depth), scales)."""
    return _packed(args, known(args.tensor(1))[0], args.tensor(0), args.tensor(2))


def _packed(args: Arguments, columns: int, given: TensorType, scales: TensorType) -> Call:
    made = TensorType(given.dtype, (*known(given)[:-1], columns))
    return form((given, args.tensor(1), scales), made, N=columns, K=known(given)[-1])
