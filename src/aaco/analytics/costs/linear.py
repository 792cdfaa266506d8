"""FLOPs of matrix products: a dot product of K terms is K multiply-adds, 2K operations.

Source: the ONNX operator specification (MatMul, Gemm, Einsum) and ONNX Runtime's ContribOperators.md (the fused ones).
Batched and broadcast products need no case of their own: each output element is one dot product. A bias adds one
operation per output element; a fused activation counts as if it were separate; block-quantized weights are dequantized
once. Scaling counts where alpha or beta is not 1. Traffic of a mixture of experts is that of the experts it can reach.
"""

from __future__ import annotations

import math

from aaco.analytics.costs.elementwise import ACTIVATIONS, GELU_TANH, SILU, activation
from aaco.analytics.costs.terms import OperatorCall

_EXPERT = {"relu": 1, "gelu": ACTIVATIONS["Gelu"], "silu": SILU, "swiglu": ACTIVATIONS["SwiGLU"], "identity": 0}


def matmul(call: OperatorCall) -> int:
    """MatMul: 2 x outputs x K, as numpy.matmul broadcasts."""
    return 2 * call.made() * call.shape(0)[-1]


def fused_matmul(call: OperatorCall) -> int:
    """FusedMatMul: MatMul of operands that may be transposed, in the matrix or with the batch, times alpha."""
    shape = call.shape(0)
    depth = shape[-1]
    if call.number("transA", 0) and len(shape) > 1:
        depth = shape[0] if call.number("transBatchA", 0) else shape[-2]
    return (2 * depth + call.scaled("alpha")) * call.made() + activation(call, call.made())


def gemm(call: OperatorCall) -> int:
    """Gemm, FusedGemm, GemmFloat8: alpha A'B' + beta C, then the activation."""
    depth = call.shape(0)[-2 if call.number("transA", 0) else -1]
    bias = call.made() + call.scaled("beta") * call.count(2) if call.has(2) else 0
    return (2 * depth + call.scaled("alpha")) * call.made() + bias + activation(call, call.made())


def gemm_fast_gelu(call: OperatorCall) -> int:
    """GemmFastGelu: X W, plus bias, FastGelu."""
    return matmul(call) + (GELU_TANH + call.has(2)) * call.made()


def matmul_integer(call: OperatorCall) -> int:
    """MatMulInteger: the product, and a subtraction per element of an operand that has a zero point."""
    return matmul(call) + zero_points(call)


def zero_points(call: OperatorCall) -> int:
    """Subtractions of the zero points at inputs 2 and 3 from the operands at 0 and 1."""
    return (call.count(0) if call.has(2) else 0) + (call.count(1) if call.has(3) else 0)


def matmul_integer_to_float(call: OperatorCall) -> int:
    """MatMulIntegerToFloat: the product, two zero points, one scale and the bias."""
    zeros = (call.count(0) if call.has(4) else 0) + (call.count(1) if call.has(5) else 0)
    return matmul(call) + zeros + (1 + call.has(6)) * call.made()


def matmul_nbits(call: OperatorCall) -> int:
    """MatMulNBits: each weight is (q - zero point) x scale once, then A B' with A of K columns, then the bias."""
    columns, depth = call.number("N"), call.number("K")
    return 2 * call.count(0) * columns + 2 * columns * depth + call.has(5) * call.made()


def matmul_bnb4(call: OperatorCall) -> int:
    """MatMulBnb4: each weight is a table entry x absmax once, then A B'."""
    columns, depth = call.number("N"), call.number("K")
    return 2 * call.count(0) * columns + columns * depth


def mixture_of_experts(call: OperatorCall) -> int:
    """MoE: each token goes through k experts, two or three matrices each; the routing is not counted."""
    tokens = call.count(0) // call.shape(0)[-1] * call.number("k", 1)
    matrices = sum(math.prod(call.shape(index)[1:]) for index in (2, 4, 6) if call.has(index))
    biases = sum(call.shape(index)[-1] for index in (3, 5, 7) if call.has(index))
    inner = call.shape(4)[-1] * _EXPERT[call.attributes.get("activation_type", "relu")]
    return tokens * (2 * matrices + biases + inner)


def mixture_traffic(call: OperatorCall) -> int:
    """Bytes of MoE: tokens and outputs, and the weights of at most tokens x k distinct experts."""
    tokens = call.count(0) // call.shape(0)[-1] * call.number("k", 1)
    experts = call.shape(2)[0]
    weights = sum(call.size(index) for index in range(2, len(call.inputs)) if call.has(index))
    return call.size(0) + call.size(1) + weights * min(tokens, experts) // experts + call.written()


def einsum(call: OperatorCall) -> int:
    """Einsum, contracted two operands at a time from left to right, as numpy does without a path.

    Each step visits every combination of the labels of its two operands: a multiplication, and an addition where a
    label is summed away. One operand: an addition per element summed away.
    """
    terms, result = _labels(call)
    sizes: dict[str, int] = {}
    for index, term in enumerate(terms):
        for label, size in zip(term, call.shape(index), strict=True):
            sizes[label] = max(size, sizes.get(label, 0))  # an ellipsis broadcasts a 1
    held, total = terms[0], 0
    for position, term in enumerate(terms[1:], 1):
        needed = {*result}.union(*terms[position + 1:])
        visited = {*held, *term}
        held = [label for label in dict.fromkeys([*held, *term]) if label in needed]
        total += (1 + (len(held) < len(visited))) * _size(visited, sizes)
    if len(terms) == 1:
        total = _size({*held}, sizes) - _size({*result}, sizes)
    return total


def _size(labels: set[str], sizes: dict[str, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _labels(call: OperatorCall) -> tuple[list[list[str]], list[str]]:
    """Labels per operand and of the result, an ellipsis spelled out as "0", "1", ... from the right."""
    left, arrow, right = call.attributes["equation"].replace(" ", "").partition("->")
    sides = left.split(",")
    hidden = [len(call.shape(index)) - len(side.replace("...", "")) for index, side in enumerate(sides)]
    terms = [_spell(side, count) for side, count in zip(sides, hidden, strict=True)]
    if arrow:
        return terms, _spell(right, max(hidden))
    once = sorted(label for label in set(left) - {",", "."} if left.count(label) == 1)
    return terms, _spell("..." if "..." in left else "", max(hidden)) + once


def _spell(side: str, hidden: int) -> list[str]:
    before, dots, after = side.partition("...")
    return [*before, *(str(index) for index in range(hidden - 1, -1, -1) if dots), *after]
