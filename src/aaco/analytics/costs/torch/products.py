"""Matrix products of PyTorch, vLLM and AITER in the terms of the formulas in `operators.linear`.

Source: aten/src/ATen/native/native_functions.yaml of PyTorch for aten; vllm-project/vllm csrc/torch_bindings.cpp for
_C, _moe_C and vllm; ROCm/aiter aiter/ops for aiter. A weight of a linear layer is (columns, depth): the formulas only
read depth from the first operand, so it needs no transposition.
"""

from __future__ import annotations

import math

from aaco.analytics.costs.elementwise import SILU
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import OperatorArguments, broadcast, form, known, unpacked

REDUCED = ("int8", "uint8", "float8")


def matmul(args: OperatorArguments) -> OperatorCall:
    """mm, bmm, matmul, mv, dot: the two operands, as numpy.matmul combines them."""
    left, right = args.tensor(0), args.tensor(1)
    return form((left, right), TensorType(left.dtype, product_shape(known(left), known(right))))


def int_matmul(args: OperatorArguments) -> OperatorCall:
    """_int_mm: 8-bit operands, 32-bit result."""
    left, right = args.tensor(0), args.tensor(1)
    return form((left, right), TensorType("int32", product_shape(known(left), known(right))))


def addmm(args: OperatorArguments) -> OperatorCall:
    """addmm, baddbmm, addmv (input, A, B, beta, alpha): alpha A B + beta input; without beta the input is not read."""
    left, right = args.tensor(1), args.tensor(2)
    beta, alpha = args.number(3, 1), args.number(4, 1)
    made = TensorType(left.dtype, product_shape(known(left), known(right)))
    return form((left, right, args.tensor(0) if beta else None), made, alpha=alpha, beta=beta)


def linear_layer(args: OperatorArguments) -> OperatorCall:
    """linear (input, weight, bias) and what has its arguments: input times the weight turned, plus bias."""
    return _layer(args.tensor(0), args.tensor(1), args.optional(2))


def aiter_gemm(args: OperatorArguments) -> OperatorCall:
    """AITER's gemm_a16w16 (input, weight, bias, type of the result, ...)."""
    left = args.tensor(0)
    return _layer(left, args.tensor(1), args.optional(2), args.dtype(3, left.dtype))


def scaled_mm(args: OperatorArguments) -> OperatorCall:
    """_scaled_mm (A, B, scale of A, of B, bias, scale of the result, its type): in the positions of
    MatMulIntegerToFloat."""
    left, right = unpacked(args, 0, -1), unpacked(args, 1, -2)
    made = TensorType(args.dtype(6, left.dtype), product_shape(known(left), known(right)))
    return form((left, right, args.tensor(2), args.tensor(3), None, None, args.optional(4)), made)


def vllm_scaled_mm(args: OperatorArguments) -> OperatorCall:
    """_C::cutlass_scaled_mm (out, A, B, scale of A, of B, bias): the result is the first argument."""
    inputs = (args.tensor(1), args.tensor(2), args.tensor(3), args.tensor(4), None, None, args.optional(5))
    return form(inputs, args.tensor(0))


def aiter_scaled_mm(args: OperatorArguments) -> OperatorCall:
    """AITER's gemm_a8w8 (A, weight, scale of A, of the weight, out): the weight is (columns, depth)."""
    left, right = args.tensor(0), args.tensor(1)
    inputs = (left, right, args.optional(2), args.optional(3), None, None, None)
    return form(inputs, _out(args, 4, (*known(left)[:-1], known(right)[0])))


def grouped_mm(args: OperatorArguments) -> OperatorCall:
    """_grouped_mm (rows of all groups, matrices of all groups, ends of the groups): each row meets one matrix."""
    left, right = args.tensor(0), args.tensor(1)
    a, b = known(left), known(right)
    if len(a) == 2 and len(b) == 3:
        made: tuple[int, ...] = (a[0], b[2])
    elif len(a) == 3 and len(b) == 2:
        made = (a[1], b[1])
    elif len(a) == 2 and len(b) == 2 and args.has(2):
        made = (known(args.tensor(2))[0], a[0], b[1])  # the depth is what is cut into groups
    else:
        made = product_shape(a, b)
    return form((left, right, args.optional(2)), TensorType(left.dtype, made), cut_depth=len(a) == len(b) == 2)


def grouped_flops(call: OperatorCall) -> int:
    """One dot product per element; where the groups cut the depth, each product only has its group's part of it."""
    made = math.prod(call.result()[1:]) if call.attributes["cut_depth"] else call.made()
    return 2 * made * call.shape(0)[-1]


def fused_experts(args: OperatorArguments) -> OperatorCall:
    """fused_experts (tokens, gate and up, down, weights of the chosen experts, the chosen). Several weights may share
    one element, as 4-bit ones in bytes: the first matrix is then narrower than the tokens."""
    operands = [args.tensor(index) for index in range(5)]
    tokens, first, second, ids = (known(operands[index]) for index in (0, 1, 2, 4))
    if (len(tokens), len(first), len(second), len(ids)) != (2, 3, 3, 2) or tokens[1] % first[2]:
        raise UnknownShape("shapes of experts that do not fit their tokens")
    return form(operands, operands[0], k=ids[-1], packed=tokens[1] // first[2])


def fused_experts_flops(call: OperatorCall) -> int:
    """Per token and chosen expert both matrices, SiLU(gate) x up, and the weighted sum of the experts' results."""
    tokens, width = call.shape(0)
    matrices = call.number("packed") * sum(math.prod(call.shape(index)[1:]) for index in (1, 2))
    inner = call.number("packed") * call.shape(2)[-1]
    return tokens * call.number("k") * (2 * matrices + (SILU + 1) * inner + 2 * width)


def fused_experts_traffic(call: OperatorCall) -> int:
    """The weights of no more experts than the tokens can reach, all else whole."""
    experts, reached = call.shape(1)[0], call.shape()[0] * call.number("k")
    weights = call.size(1) + call.size(2)
    return call.read() - weights + weights * min(reached, experts) // experts + call.written()


def product_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a matrix product; a vector is a row on the left, a column on the right. Raise UnknownShape."""
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
        raise UnknownShape("operands of a product that do not fit")
    batch = broadcast(TensorType("", left[:-2]), TensorType("", right[:-2]))
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _layer(left: TensorType, weight: TensorType, bias: TensorType | None, dtype: str = "") -> OperatorCall:
    depth, columns = known(left)[-1], known(weight)[0]
    if len(known(weight)) != 2 or depth != known(weight)[1]:
        raise UnknownShape("a weight that does not fit its input")
    return form((left, weight, bias), TensorType(dtype or left.dtype, (*known(left)[:-1], columns)))


def _out(args: OperatorArguments, index: int, shape: tuple[int, ...]) -> TensorType:
    """The given output; of a reduced type nothing says what the result is made in."""
    if args.has(index):
        return args.tensor(index)
    if args.tensor(0).dtype.startswith(REDUCED):
        raise UnknownShape("element type of the result")
    return TensorType(args.tensor(0).dtype, shape)
