"""FLOPs of operators that compute each output element from its own few inputs, and of reductions.

Convention: each arithmetic operation, comparison, selection or elementary function (exp, log, erf, tanh, sqrt, pow, a
trigonometric function) of the formula counts 1 per element. Composite activations count what the ONNX specification
writes as their function body (github.com/onnx/onnx, docs/Operators.md); Sigmoid is 1 / (1 + exp(-x)), so 4. A type
conversion is not arithmetic and counts 0.
"""

from __future__ import annotations

from aaco.analytics.costs.terms import Formula, OperatorCall

_ONE = """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos
    Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Mod Mul Neg Not Or Pow
    Reciprocal Relu Round Sign Sin Sinh Sqrt Sub Tan Tanh Where Xor"""
PER_ELEMENT = dict.fromkeys(_ONE.split(), 1) | {
    "Cast": 0, "Celu": 7, "Elu": 5, "HardSigmoid": 4, "HardSwish": 5, "LeakyRelu": 3, "Mish": 5, "PRelu": 3, "Selu": 7,
    "Shrink": 6, "Sigmoid": 4, "Softplus": 3, "Softsign": 3, "SwiGLU": 7, "Swish": 6, "ThresholdedRelu": 2,
}
GELU, GELU_TANH, SILU = 5, 8, 5
# What can follow inside a recurrent cell or a fused node; Affine and ScaledTanh exist only there.
ACTIVATIONS = PER_ELEMENT | {"Affine": 2, "ScaledTanh": 3, "Clip": 2, "Gelu": GELU, "FastGelu": GELU_TANH}

# Operations per input element and per output element: a sum of n numbers takes n - 1 additions, a mean n operations.
REDUCTIONS = {
    "ReduceSum": (1, -1), "ReduceMax": (1, -1), "ReduceMin": (1, -1), "ReduceProd": (1, -1), "ReduceMean": (1, 0),
    "ReduceL1": (2, -1), "ReduceL2": (2, 0), "ReduceSumSquare": (2, -1), "ReduceLogSum": (1, 0),
    "ReduceLogSumExp": (2, 0), "ArgMax": (1, -1), "ArgMin": (1, -1), "CumSum": (1, 0), "CumProd": (1, 0),
}


def per_output(operations: int) -> Formula:
    """That many operations per output element."""
    return lambda call: operations * call.made()


def reduction(per_input: int, per_output: int) -> Formula:
    """So many operations per input element, and per output element."""
    return lambda call: per_input * call.count() + per_output * call.made()


def fold(call: OperatorCall) -> int:
    """Sum, Min, Max (and BiasAdd: input, bias, skip) over k tensors: k - 1 operations per output element."""
    return (len(call.inputs) - 1) * call.made()


def mean(call: OperatorCall) -> int:
    """Mean over k tensors: k - 1 additions and a division."""
    return len(call.inputs) * call.made()


def clip(call: OperatorCall) -> int:
    """One comparison per bound that is given, as an input or (before opset 11) as an attribute."""
    bounds = call.has(1) + call.has(2) + ("min" in call.attributes) + ("max" in call.attributes)
    return bounds * call.made()


def gelu(call: OperatorCall) -> int:
    """Gelu by erf (5) or by its tanh approximation (8)."""
    return (GELU_TANH if call.attributes.get("approximate") == "tanh" else GELU) * call.made()


def fast_gelu(call: OperatorCall) -> int:
    """ONNX Runtime's FastGelu: the tanh approximation, after an optional bias."""
    return (GELU_TANH + call.has(1)) * call.made()


def bias_gelu(call: OperatorCall) -> int:
    """ONNX Runtime's BiasGelu: an addition, then Gelu."""
    return (GELU + 1) * call.made()


def split_gelu(call: OperatorCall) -> int:
    """ONNX Runtime's BiasSplitGelu: add the bias, halve the last axis, left x Gelu(right)."""
    return call.count() + (GELU + 1) * call.made()


def scatter(call: OperatorCall) -> int:
    """ScatterElements and ScatterND: an operation per update with a reduction, else a copy."""
    return call.count(2) if call.attributes.get("reduction", "none") != "none" else 0


def activation(call: OperatorCall, elements: int) -> int:
    """The activation a fused node ends with, from its `activation` attribute; 0 without one.

    Raise KeyError for an activation that has no count.
    """
    name = call.attributes.get("activation", "")
    return ACTIVATIONS[name] * elements if name else 0
