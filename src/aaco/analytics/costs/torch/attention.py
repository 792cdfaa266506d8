"""Attention of PyTorch and flash-attn, forward and backward, in the terms of `operators.attention`.

Kernels made for attention skip what a causal rule hides, so only the pairs of query and key that it leaves count: the
first key belongs to the first query in PyTorch, the last key to the last query in flash-attn. (The ONNX operators count
the whole square, as the equivalent plain operators compute it.) How long the sequences of a packed batch are, and how
many keys a cache holds, are values that the profiler does not record: there is no cost without them. Source:
native_functions.yaml of PyTorch; Dao, FlashAttention-2 (2023), section 3; Dao-AILab/flash-attention.
"""

from __future__ import annotations

from aaco.analytics.costs.attention import ROTARY, SCALE, core
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, form, known

PACKED = "how long the sequences of the packed batch are is a value that the capture does not record"
CACHED = ("how many keys the cache holds is not among the recorded arguments; the annotation of a step sums them: an "
          "import with --model-config config.json gives the attention of whole steps, in serving_steps")
# Backward, per pair: the score again and its scale, exp(score - log of the sum), the gradient of the weight times
# value, less the row's sum, times the weight, and its scale.
AGAIN, SLOPE = SCALE + 2, 2 + SCALE


def dot_product(causal: int, mask: int | None = None, heads: int = 1, last: bool = False,
                packed: tuple[int, ...] = ()) -> Form:
    """Attention (query, key, value, ...). `causal` and `mask` are positions; `heads` the axis of the heads, 1 or 2.

    last: the causal rule leaves the last query all keys. packed: positions of what separates packed sequences.
    """
    def made(args: OperatorArguments) -> OperatorCall:
        if any(args.has(index) for index in packed):
            raise UnknownShape(PACKED)
        query, key, value = args.tensor(0), args.tensor(1), args.tensor(2)
        bias = None if mask is None else args.optional(mask)
        batch, count, queries, width = _laid(query, heads)
        keys, out = _laid(key, heads)[2], _laid(value, heads)[3]
        shape = (batch, count, queries, out) if heads == 1 else (batch, queries, count, out)
        return form((query, key, value, bias), TensorType(query.dtype, shape), rows=batch * count * queries,
                    pairs=batch * count * _pairs(args, causal, queries, keys, last), widths=(width, out))

    return made


def flops(call: OperatorCall) -> int:
    """Scores, softmax and result of the pairs that count; an addition per pair for a mask."""
    return core(call.attributes["rows"], call.attributes["pairs"], call.attributes["widths"], call.has(3))


def dot_product_backward(causal: int, heads: int = 1, bias: int | None = None, packed: tuple[int, ...] = ()) -> Form:
    """Backward of attention (gradient, query, key, value, ..., out and log of the sums among the others)."""
    def made(args: OperatorArguments) -> OperatorCall:
        if any(args.has(index) for index in packed):
            raise UnknownShape(PACKED)
        gradient, query, key, value = (args.tensor(index) for index in range(4))
        added = None if bias is None else args.optional(bias)
        batch, count, queries, width = _laid(query, heads)
        keys, out = _laid(key, heads)[2], _laid(value, heads)[3]
        sums = TensorType("float32", (batch, count, queries))
        return form((gradient, query, key, value, gradient, sums, added), query, key, value,
                    rows=batch * count * queries, widths=(width, out),
                    pairs=batch * count * _pairs(args, causal, queries, keys, False))

    return made


def backward_flops(call: OperatorCall) -> int:
    """Five products per pair, where forward has two: the scores again, and the gradients of the weights, of values,
    queries and keys; and per row the sum of result x gradient."""
    width, out = call.attributes["widths"]
    per_pair = 2 * (3 * width + 2 * out) + AGAIN + SLOPE + call.has(6)
    return call.attributes["pairs"] * per_pair + call.attributes["rows"] * (2 * out - 1)


def pairs(queries: int, keys: int, causal: bool, last: bool) -> int:
    """The pairs of query and key of one head that attention computes."""
    if not causal:
        return queries * keys
    if last:  # query i sees keys up to i + keys - queries
        hidden = max(0, queries - keys)
        seeing = queries - hidden
        return seeing * (keys - seeing) + seeing * (seeing + 1) // 2
    seen = min(queries, keys)
    return seen * (seen + 1) // 2 + (queries - seen) * keys


def rotary(args: OperatorArguments) -> OperatorCall:
    """rotary_embedding of vLLM and SGLang (positions, queries, keys, width of a head, table, ...), in place."""
    positions, query, table = args.tensor(0), args.tensor(1), args.tensor(4)
    key = args.optional(2)
    turned = known(table)[-1]
    made = [tensor for tensor in (query, key) if tensor is not None]
    tokens = positions.elements or 0
    rows = TensorType(table.dtype, (min(tokens, known(table)[0]), turned))
    return form((positions, *made, rows), *made, turned=turned, width=args.integer(3))


def rotary_flops(call: OperatorCall) -> int:
    """x cos - y sin per element that is turned; a head may have a part that is not."""
    elements = sum(call.count(index) for index in range(1, len(call.inputs) - 1))
    return ROTARY * elements * call.number("turned") // call.number("width")


def store_cache(args: OperatorArguments) -> OperatorCall:
    """Keys and values written into a cache (keys, values, cache of keys, of values, slots): as many as are given."""
    key, value, keys, values = (args.tensor(index) for index in range(4))
    return form((key, value, args.tensor(4)), TensorType(keys.dtype, key.shape), TensorType(values.dtype, value.shape))


def _pairs(args: OperatorArguments, causal: int, queries: int, keys: int, last: bool) -> int:
    """Return how many pairs count. The causal rule is a truth value, or of efficient attention none (0), first (1),
    last (2)."""
    rule = args.integer(causal, 0)
    return pairs(queries, keys, bool(rule), last or rule == 2)


def _laid(tensor: TensorType, heads: int) -> tuple[int, int, int, int]:
    """(batch, heads, length, width)."""
    shape = known(tensor)
    if len(shape) != 4:
        raise UnknownShape("an operand of attention that is not 4-dimensional")
    return (shape[0], shape[heads], shape[3 - heads], shape[3])


def heads(args: OperatorArguments) -> OperatorCall:
    """_transform_bias_rescale_qkv (queries, keys and values side by side, bias, heads): each by its heads."""
    packed, bias, count = args.tensor(0), args.tensor(1), args.integer(2)
    batch, tokens, width = known(packed)
    part = TensorType(packed.dtype, (batch, count, tokens, width // (3 * count)))
    return form((packed, bias), part, part, part)


def heads_flops(call: OperatorCall) -> int:
    """The bias of all, the scale of the queries."""
    return 4 * call.made()
