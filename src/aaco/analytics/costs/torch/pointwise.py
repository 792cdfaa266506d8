"""PyTorch operators that compute each element by itself: arithmetic, activations, optimisers.

Operations per element follow `operators.elementwise`: each arithmetic operation, comparison, selection or elementary
function counts 1, a composite what its formula writes. Source: native_functions.yaml and torch.nn's documentation;
Kingma and Ba, Adam (2014); Loshchilov and Hutter, AdamW (2017).
"""

from __future__ import annotations

import math

from aaco.analytics.costs.elementwise import GELU, GELU_TANH, PER_ELEMENT, SILU
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, broadcast, form, known, promoted

# PyTorch's name of an operator that ONNX has too.
AS_ONNX = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "bitwise_not": "BitwiseNot", "ceil": "Ceil", "celu": "Celu", "cos": "Cos", "cosh": "Cosh", "elu": "Elu",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "hardsigmoid": "HardSigmoid", "hardswish": "HardSwish",
    "leaky_relu": "LeakyRelu", "log": "Log", "mish": "Mish", "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu",
    "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus",
    "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}
UNARY = {f"aten::{name}": PER_ELEMENT[onnx] for name, onnx in AS_ONNX.items()} | {
    "aten::erfc": 2, "aten::exp2": 1, "aten::expm1": 2, "aten::frac": 2, "aten::hardtanh": 2, "aten::log10": 1,
    "aten::log1p": 2, "aten::log2": 1, "aten::log_sigmoid_forward": 5, "aten::logit": 3, "aten::nan_to_num": 3,
    "aten::relu6": 2, "aten::rsqrt": 2, "aten::selu": PER_ELEMENT["Selu"], "aten::silu": SILU, "aten::square": 1,
    "aten::trunc": 1, "aten::sgn": 1, "aten::erfinv": 1, "aten::lgamma": 1, "aten::digamma": 1, "aten::i0": 1,
    "aten::sinc": 3, "aten::softshrink": 6, "aten::hardshrink": 3,
}
TO_FLAGS = {f"aten::{name}": 1 for name in ("eq", "ge", "gt", "le", "lt", "ne", "logical_and", "logical_or",
                                            "logical_xor")}
TESTS = {f"aten::{name}": 1 for name in ("isfinite", "isinf", "isnan", "isneginf", "isposinf", "logical_not",
                                         "signbit")}
BINARY = {
    "aten::atan2": 1, "aten::bitwise_and": 1, "aten::bitwise_or": 1, "aten::bitwise_xor": 1, "aten::__and__": 1,
    "aten::__or__": 1, "aten::bitwise_left_shift": 1, "aten::bitwise_right_shift": 1, "aten::floor_divide": 2,
    "aten::fmod": 1, "aten::maximum": 1, "aten::minimum": 1, "aten::mul": 1, "aten::multiply": 1, "aten::pow": 1,
    "aten::remainder": 1, "aten::hypot": 4, "aten::xlogy": 2, "aten::copysign": 1, "aten::fmax": 1,
    "aten::fmin": 1, "aten::logaddexp": 4, "aten::linalg_cross": 3, "aten::_prelu_kernel": PER_ELEMENT["PRelu"],
}
# Gradients by their derivative: so many operations on the gradient and what the forward pass kept.
BACKWARD = {
    "aten::hardtanh_backward": 3, "aten::leaky_relu_backward": 3, "aten::sigmoid_backward": 3,
    "aten::silu_backward": SILU + 4, "aten::tanh_backward": 3, "aten::threshold_backward": 2,
    "aten::native_dropout_backward": 2, "aten::softplus_backward": 5, "aten::log_sigmoid_backward": 6,
    "aten::hardsigmoid_backward": 4, "aten::hardswish_backward": 7, "aten::mish_backward": 14,
}
ELU_BACKWARD = 4
# g (P + x p): the normal distribution P(x) by erf (4), its density p(x) (4); by tanh as PyTorch writes it out.
GELU_BACKWARD, GELU_TANH_BACKWARD = 11, 18
# Updates per element. Adam: its two running means (3 and 4), root, correction and offset (3), the step (3).
ADAM, SGD = 13, 2


# _foreach operators: operations per element, and how many of their arguments are lists.
FOREACH = (
    *((f"aten::_foreach_{name}", 1, 1) for name in ("abs", "exp", "log", "neg", "reciprocal", "round", "sqrt",
                                                      "tanh")),
    ("aten::_foreach_sigmoid", PER_ELEMENT["Sigmoid"], 1),
    ("aten::_amp_foreach_non_finite_check_and_unscale", 2, 1),
    *((f"aten::_foreach_{name}", 1, 2) for name in ("maximum", "minimum")),
    ("aten::_foreach_addcdiv", 3, 3), ("aten::_foreach_addcmul", 3, 3), ("aten::_foreach_lerp", 3, 2),
    ("aten::_foreach_copy", 0, 2), ("aten::_foreach_zero", 0, 1),
    *((f"aten::_foreach_{name}", 1, 0) for name in ("add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max")),
)


def unary(operations: int, args: OperatorArguments) -> OperatorCall:
    """One tensor in, one of its shape out; whole numbers become single precision where a function has fractions."""
    return form((args.tensor(0),), args.tensor(0), operations=operations)


def per_element(call: OperatorCall) -> int:
    """The operations that the form says, per element of the result."""
    return call.number("operations") * call.made()


def each(operations: int) -> Form:
    """The form of a unary operator."""
    return lambda args: unary(operations, args)


def combined(operations: int, dtype: str = "", operands: int = 2) -> Form:
    """The form of an operator on as many operands, of which some may be numbers: their broadcast shape."""
    def made(args: OperatorArguments) -> OperatorCall:
        tensors = [args.tensor(index) for index in range(min(operands, len(args))) if args.has(index)]
        if not tensors:
            raise UnknownShape("no operand is a tensor")
        return form(tensors, TensorType(dtype or promoted(*tensors), broadcast(*tensors)), operations=operations)

    return made


def scaled_sum(args: OperatorArguments) -> OperatorCall:
    """add, sub (input, other, alpha): an operation, and one more where alpha is not 1."""
    return combined(1 + (args.number(2, 1) != 1 if _has_values(args, 2) else 0))(args)


def where(args: OperatorArguments) -> OperatorCall:
    """where (condition, this, that): the type is that of the two."""
    values = [args.tensor(index) for index in (1, 2) if args.has(index)]
    return combined(1, promoted(*values), operands=3)(args)


def quotient(args: OperatorArguments) -> OperatorCall:
    """div: of whole numbers the result is single precision."""
    whole = all("int" in args.tensor(index).dtype for index in (0, 1) if args.has(index))
    return combined(1, "float32" if whole else "")(args)


def gelu(args: OperatorArguments) -> OperatorCall:
    """gelu (input, approximation)."""
    return unary(GELU_TANH if args.value(1) == "tanh" else GELU, args)


def clamp(args: OperatorArguments) -> OperatorCall:
    """clamp (input, lower, upper): a comparison per bound that is given."""
    bounds = sum(args.has(index) or bool(args.value(index)) for index in (1, 2))
    return combined(bounds, operands=3)(args)


def gradient(operations: int, kept: int = 1) -> Form:
    """A gradient (of the result, ..., at `kept` what forward kept): two tensors in, one out."""
    def made(args: OperatorArguments) -> OperatorCall:
        operands = [args.tensor(index) for index in (0, kept)]
        return form(operands, TensorType(operands[0].dtype, broadcast(*operands)), operations=operations)

    return made


def cast(args: OperatorArguments) -> OperatorCall:
    """to, _to_copy (input, type, ...): no arithmetic, another type perhaps."""
    operand = args.tensor(0)
    return form((operand,), TensorType(args.dtype(1, operand.dtype), operand.shape), operations=0)


def gated(operations: int) -> Form:
    """silu_and_mul and its kind (result, gate and up side by side)."""
    return lambda args: form((args.tensor(1),), args.tensor(0), operations=operations)


def dropout(args: OperatorArguments) -> OperatorCall:
    """native_dropout, _fused_dropout (input, share, training): a comparison, a selection, a scale; and which stay."""
    operand = args.tensor(0)
    return form((operand,), operand, TensorType("bool", operand.shape), operations=3)


def foreach(operations: int, lists: int = 0) -> Form:
    """A _foreach operator on as many lists of tensors (0: as there are), of which the first is the result's shape."""
    def made(args: OperatorArguments) -> OperatorCall:
        operands = [args.tensors(index) for index in range(lists or len(args)) if lists or args.listed(index)]
        if any(len(tensors) != len(operands[0]) for tensors in operands):
            raise UnknownShape("lists of different lengths")
        return OperatorCall({"operations": operations}, [tensor for tensors in operands for tensor in tensors],
                            operands[0])

    return made


def foreach_flops(call: OperatorCall) -> int:
    """The operations per element of each tensor of the first list."""
    return call.number("operations") * sum(math.prod(call.result(index)) for index in range(len(call.outputs)))


def foreach_norm(args: OperatorArguments) -> OperatorCall:
    """_foreach_norm (tensors, norm, type): a number per tensor."""
    operands = args.tensors(0)
    return OperatorCall({}, operands, [TensorType("", ())] * len(operands))


def foreach_norm_flops(call: OperatorCall) -> int:
    """As linalg_vector_norm: two operations per element."""
    return 2 * sum(call.count(index) for index in range(len(call.inputs)))


def adam(args: OperatorArguments) -> OperatorCall:
    """_fused_adam_ (parameters, gradients, two lists of means, maxima, steps, rate, two betas, decay, ...)."""
    return _adam(args, ADAM + 2 * (args.number(9) != 0))


def adamw(args: OperatorArguments) -> OperatorCall:
    """_fused_adamw_; its decay scales the parameter itself."""
    return _adam(args, ADAM + (args.number(9) != 0))


def adam_flops(call: OperatorCall) -> int:
    """The operations per parameter; the results hold each three times: itself and its two means."""
    return foreach_flops(call) // 3


def magnitude(args: OperatorArguments) -> OperatorCall:
    """abs, angle (input): of complex numbers a real one, by two squares, their sum and a function of it."""
    operand = args.tensor(0)
    if not operand.dtype.startswith("complex"):
        return unary(1, args)
    return form((operand,), TensorType(f"float{(operand.bits or 0) // 2}", operand.shape), operations=4)


def glu(args: OperatorArguments) -> OperatorCall:
    """glu (input, axis): one half times the sigmoid of the other."""
    operand, axis = args.tensor(0), args.integer(1, -1)
    shape = list(known(operand))
    shape[axis] //= 2
    return form((operand,), TensorType(operand.dtype, tuple(shape)), operations=PER_ELEMENT["Sigmoid"] + 1)


def glu_backward(args: OperatorArguments) -> OperatorCall:
    """glu_backward (gradient, input, axis): for the halves a and b, with the sigmoid s (4) of b, g s (1) and g s a
    (1 - s) (3)."""
    return form((args.tensor(0), args.tensor(1)), args.tensor(1), operations=(PER_ELEMENT["Sigmoid"] + 4) // 2)


def prelu_backward(args: OperatorArguments) -> OperatorCall:
    """_prelu_kernel_backward (gradient, input, weight): a comparison, and two products that it selects or not."""
    operand = args.tensor(1)
    return form([args.tensor(index) for index in range(3)], operand, operand, operations=5)


def gelu_backward(args: OperatorArguments) -> OperatorCall:
    """gelu_backward (gradient, input, approximation)."""
    return gradient(GELU_TANH_BACKWARD if args.value(2) == "tanh" else GELU_BACKWARD)(args)


def _adam(args: OperatorArguments, operations: int) -> OperatorCall:
    """All lists but the gradients' are rewritten."""
    lists = [args.tensors(index) for index in range(4)]
    whole = [tensor for tensors in lists for tensor in tensors]
    return OperatorCall({"operations": operations}, whole, [*lists[0], *lists[2], *lists[3]])


def _has_values(args: OperatorArguments, index: int) -> bool:
    return index < len(args) and not args.has(index)
