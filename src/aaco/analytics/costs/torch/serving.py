"""Custom operators of vLLM, SGLang, AITER and FlashInfer in the terms of the formulas.

Source: vllm-project/vllm csrc/torch_bindings.cpp, sgl-project/sglang sgl-kernel/csrc/common_extension.cc, ROCm/aiter
aiter/ops. Most write their results into arguments, so the recorded arguments hold them; where the result is new, its
type is the one that the schema names. Positions that a version of the engine has otherwise give no cost, not a wrong
one: sizes that do not fit raise UnknownShape.
"""

from __future__ import annotations

from aaco.analytics.costs import norm
from aaco.analytics.costs.attention import ROTARY
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, form, known, unpacked

MISFIT = "operands of a product that do not fit"


def moved(read: tuple[int, ...], written: tuple[int, ...], operations: int = 0) -> Form:
    """An operator that reads and writes whole arguments, with so many operations per element of the first."""
    def made(args: OperatorArguments) -> OperatorCall:
        return form([args.tensor(read[0]), *(args.optional(at) for at in read[1:])],
                    *[tensor for at in written if (tensor := args.optional(at)) is not None], operations=operations)

    return made


def quantised_norm(weight: int, scales: tuple[int, ...], finds: bool, residual: int | None = None,
                   total: int | None = None, quantise: int = 4) -> Form:
    """RMS norm (result, input, ...) with a quantised result. residual: what is added before; total: where the sum is
    written, by default in its place. finds: whether the scales are results."""
    def made(args: OperatorArguments) -> OperatorCall:
        added = None if residual is None else args.optional(residual)
        kept = [tensor for at in scales if (tensor := args.optional(at)) is not None]
        sums = [] if added is None else [added if total is None else args.tensor(total)]
        first = (args.tensor(1), args.tensor(weight)) if added is None else (args.tensor(1), added, args.tensor(weight))
        padding = [None] * (5 - len(first))
        return form((*first, *padding, *([] if finds else kept)), args.tensor(0), *sums, *(kept if finds else ()),
                    axis=-1, added=added is not None, operations=quantise + 2 * finds)

    return made


def quantised_norm_flops(call: OperatorCall) -> int:
    """The norm, with or without an addition, and quantisation: scale, round, two saturations; 2 to find the scale."""
    normed = norm.skip_rms_norm(call) if call.attributes["added"] else norm.rms_norm(call)
    return normed + call.number("operations") * call.count()


def scaled_product(right: int = 1, scales: tuple[int, int] = (2, 3), *, out: int | None = None, bias: int | None = None,
                   dtype: int | None = None, columns: bool = False, packed: bool = False, left: int = 0) -> Form:
    """A product of scaled operands (input, weight, scales): the weight is (outputs, depth), of `columns` (depth,
    outputs). out: an argument that is the result if it has its shape, else a bias; dtype: where the type of a new
    result is, bfloat16 where it is left out. packed: bytes hold two numbers of 4 bits."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand, weight = unpacked(args, left, -1, packed), unpacked(args, right, 0 if columns else -1, packed)
        rows, sides = known(operand), known(weight)
        depth, width = (sides[0], sides[1]) if columns else (sides[1], sides[0])
        if len(sides) != 2 or rows[-1] != depth:
            raise UnknownShape(MISFIT)
        shape, written = (*rows[:-1], width), args.optional(out) if out is not None else None
        added = args.optional(bias) if bias is not None else None
        if written is not None and written.shape != shape:
            written, added = None, written
        product = written or TensorType("bfloat16" if dtype is None else args.dtype(dtype, "bfloat16"), shape)
        return form((operand, weight, *(args.optional(at) for at in scales), None, None, added), product)

    return made


def product_into(columns: bool = False, left: int = 1, right: int = 2, out: int | None = 0) -> Form:
    """A plain product (result, input, weight): the weight is (outputs, depth), of `columns` (depth, outputs)."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand, weight = args.tensor(left), args.tensor(right)
        depth, width = known(weight) if columns else known(weight)[::-1]
        if known(operand)[-1] != depth:
            raise UnknownShape(MISFIT)
        result = TensorType(operand.dtype, (*known(operand)[:-1], width))
        return form((operand, weight), args.tensor(out) if out is not None else result)

    return made


def packed_weights(scales: int, others: tuple[int, ...], columns_of: int) -> Form:
    """A product with integer weights of few bits (input, packed weights, ...); the last axis of one has the outputs."""
    def made(args: OperatorArguments) -> OperatorCall:
        return _few_bits(args, known(args.tensor(columns_of))[-1], (1, scales, *others))

    return made


def marlin(args: OperatorArguments) -> OperatorCall:
    """marlin_gemm: its positions change with its version; the sizes (m, n, k) are three numbers in a row, and all else
    that is a tensor is read, without the workspace after them."""
    rows, depth = known(args.tensor(0))
    at = _sizes(args, rows, depth)
    tensors = [index for index in range(1, at) if args.has(index)]
    return _few_bits(args, args.integer(at + 1), tuple(tensors[:-1]))


def marlin_experts(args: OperatorArguments) -> OperatorCall:
    """moe_wna16_marlin_gemm: each row goes through `top_k` experts; weights are those of experts that rows reach."""
    rows, depth = known(args.tensor(0))
    at = _sizes(args, rows, depth)
    weights = next((args.tensor(index) for index in range(1, at) if args.has(index)
                    and len(known(args.tensor(index))) == 3 and args.tensor(index).dtype == "int32"), None)
    if weights is None:
        raise UnknownShape("weights of the experts")
    expert_rows, outputs = rows * args.integer(at - 4), args.integer(at + 1)
    experts, *shape = known(weights)
    reached = TensorType(weights.dtype, (min(experts, expert_rows), *shape))
    return form((args.tensor(0), reached), TensorType(args.tensor(0).dtype, (expert_rows, outputs)),
                flops=2 * expert_rows * outputs * depth)


def stated_flops(call: OperatorCall) -> int:
    """What the form counted."""
    return call.number("flops")


def scaled_groups(args: OperatorArguments) -> OperatorCall:
    """_scaled_grouped_mm (rows of all groups, matrices of all groups, scales, ends, ..., type): a matrix per row."""
    rows, matrices = known(args.tensor(0)), known(args.tensor(1))
    if len(rows) != 2 or len(matrices) != 3 or rows[1] != matrices[1]:
        raise UnknownShape(MISFIT)
    operands = [args.tensor(0), args.tensor(1), *(args.optional(at) for at in (2, 3, 4))]
    return form(operands, TensorType(args.dtype(7, "bfloat16"), (rows[0], matrices[2])),
                flops=2 * rows[0] * rows[1] * matrices[2])


def latent_cache(args: OperatorArguments) -> OperatorCall:
    """concat_and_cache_mla (compressed keys and values, rotated keys, cache, slots)."""
    latent, rotated = args.tensor(0), args.tensor(1)
    width = known(latent)[-1] + known(rotated)[-1]
    return form((latent, rotated, args.tensor(3)), TensorType(args.tensor(2).dtype, (known(latent)[0], width)))


def rotary_into(args: OperatorArguments) -> OperatorCall:
    """apply_rope_pos_ids_cos_sin_cache (queries, keys, rotated queries, rotated keys, table, positions)."""
    tensors = [args.tensor(at) for at in range(6)]
    tokens = known(tensors[5])[0]
    turned = known(tensors[4])[-1]
    rows = TensorType(tensors[4].dtype, (min(tokens, known(tensors[4])[0]), turned))
    elements = sum(_turned(tensor, turned) for tensor in tensors[:2])
    return form((tensors[0], tensors[1], rows, tensors[5]), tensors[2], tensors[3], flops=ROTARY * elements)


def norm_and_rotary(args: OperatorArguments) -> OperatorCall:
    """fused_qk_norm_rope (queries, keys and values, heads of each, width, eps, weights, table, order, positions):
    queries and keys are normalised and turned in place."""
    packed, width = args.tensor(0), args.integer(4)
    heads = args.integer(1) + args.integer(2)
    tokens = known(packed)[0]
    part = TensorType(packed.dtype, (tokens, heads * width))
    table = args.tensor(8)
    rows = TensorType(table.dtype, (min(tokens, known(table)[0]), known(table)[-1]))
    turned = tokens * heads * min(width, known(table)[-1])
    return form((part, args.tensor(6), args.tensor(7), rows, args.tensor(10)), part,
                flops=4 * tokens * heads * width + 2 * tokens * heads + ROTARY * turned)


def summed(args: OperatorArguments) -> OperatorCall:
    """moe_sum (results of the experts, sum over them)."""
    operand, result = args.tensor(0), args.tensor(1)
    return form((operand,), result, flops=max(0, (operand.elements or 0) - (result.elements or 0)))


def scattered_part(args: OperatorArguments) -> OperatorCall:
    """vllm::reduce_scatter (message, axis, ranks): a part of the sum."""
    operand, shape = args.tensor(0), list(known(args.tensor(0)))
    shape[args.integer(1)] //= args.integer(2)
    return form((operand,), TensorType(operand.dtype, tuple(shape)))


def expert_choice(args: OperatorArguments) -> OperatorCall:
    """topk_softmax of SGLang (weights, ids, scores)."""
    return form((args.tensor(2),), args.tensor(0), args.tensor(1), axis=-1)


def counting(args: OperatorArguments) -> OperatorCall:
    """arange (end), (start, end), (start, end, step), then four settings, the first of them the type; or a result."""
    written = next((at for at in range(len(args)) if args.has(at)), None)
    if written is not None:
        return form((), args.tensor(written))
    bounds = [args.number(at) for at in range(len(args) - 4)]
    if not 1 <= len(bounds) <= 3:
        raise UnknownShape("bounds of a range")
    start, end, step = (0.0, bounds[0], 1.0) if len(bounds) == 1 else (*bounds, 1.0)[:3]
    whole = all(number == int(number) for number in bounds)
    dtype = args.dtype(len(bounds), "int64" if whole else "float32")
    return form((), TensorType(dtype, (max(0, int(-((start - end) // step))),)))


def drawn(args: OperatorArguments) -> OperatorCall:
    """multinomial (probabilities, how many)."""
    operand = args.tensor(0)
    return form((operand,), TensorType("int64", (*known(operand)[:-1], args.integer(1))))


def _turned(tensor: TensorType, width: int) -> int:
    return (tensor.elements or 0) * min(width, known(tensor)[-1]) // known(tensor)[-1]


def _few_bits(args: OperatorArguments, outputs: int, others: tuple[int, ...]) -> OperatorCall:
    operand = args.tensor(0)
    made = TensorType(operand.dtype, (*known(operand)[:-1], outputs))
    tensors = [tensor for at in others if (tensor := args.optional(at)) is not None]
    padded = [*tensors, *([None] * (5 - len(tensors)))]
    return form((operand, *padded[:4], None, *padded[4:]), made, N=outputs, K=known(operand)[-1])


def _sizes(args: OperatorArguments, rows: int, depth: int) -> int:
    """Return the position of the sizes m, n, k of a product among the arguments."""
    for at in range(1, len(args) - 2):
        first, outputs, last = (args.value(at + offset) for offset in range(3))
        if (first, last) == (str(rows), str(depth)) and outputs.isascii() and outputs.isdecimal():
            return at
    raise UnknownShape("sizes of the product")
