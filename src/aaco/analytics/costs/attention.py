"""FLOPs of attention: scores Q K', their scale, mask and softmax, then P V.

Per query head, query and key: 2 d_k for the score, 1 for the scale, 1 per mask (an additive bias, a padding mask, the
causal rule), 3 for a soft cap (divide, tanh, multiply), 5 for the softmax (maximum, subtract, exp, sum, divide; less
2 per row) and 2 d_v for its part of the output. The square is counted whole under a causal mask, as the same attention
written in plain operators is; kernels that skip the masked half do less. Grouped queries share keys and values: fewer
bytes, not fewer FLOPs. Keys are those of the past and the new ones. Source: the ONNX operator specification
(Attention-23); ONNX Runtime's ContribOperators.md; Vaswani et al. 2017.
"""

from __future__ import annotations

import math

from aaco.analytics.costs.terms import Formula, OperatorCall, UnknownShape

SCALE, SOFTMAX, SOFTCAP = 1, 5, 3
ROTARY = 3  # x cos - y sin, per element


def attention(call: OperatorCall) -> int:
    """ai.onnx Attention: Q, K, V (3-D with head counts, or 4-D), mask, past key, past value."""
    query, key, value = (_heads(call, index, name) for index, name in enumerate(("q", "kv", "kv")))
    keys = key[2] + (call.shape(4)[2] if call.has(4) else 0)
    masks = call.has(3) + call.number("is_causal", 0)
    return _core(call, (query[0] * query[1], query[2], keys), (query[3], value[3]), masks)


def multi_head(call: OperatorCall) -> int:
    """com.microsoft MultiHeadAttention: query (or packed QKV), key (or packed KV, or the past), value, biases, past."""
    heads = call.number("num_heads")
    shape = call.shape(0)
    batch, queries = shape[:2]
    width = shape[-1] if len(shape) == 5 else shape[2] // heads
    fresh = queries if not call.has(1) else call.shape(1)[2 if len(call.shape(1)) == 4 else 1]
    keys = fresh + (call.shape(6)[2] if call.has(6) else 0)
    _refuse_shared_buffer(call, past=6)
    hidden = heads * width
    bias = batch * (queries * hidden + fresh * (call.count(3) - hidden)) if call.has(3) else 0
    masks = call.has(4) + call.has(5) + call.number("unidirectional", 0)
    return _core(call, (batch * heads, queries, keys), (width, call.result()[2] // heads), masks) + bias


def grouped_query(call: OperatorCall) -> int:
    """com.microsoft GroupQueryAttention: query (or packed QKV), key, value, past; rotary embedding inside.

    Raise UnknownShape if past and present share one buffer: how much of it is filled is a value, not a shape.
    """
    heads, groups = call.number("num_heads"), call.number("kv_num_heads")
    batch, queries, _ = call.shape(0)
    width = call.result()[2] // heads
    fresh = call.shape(1)[1] if call.has(1) else queries
    _refuse_shared_buffer(call, past=3)
    keys = fresh + (call.shape(3)[2] if call.has(3) else 0)
    turned = call.number("do_rotary", 0) * ROTARY * batch * width * (heads * queries + groups * fresh)
    return _core(call, (batch * heads, queries, keys), (width, width), 1 + call.has(10)) + turned


def projected(call: OperatorCall) -> int:
    """com.microsoft Attention: X W + b to Q, K and V, then attention; the weight is (inputs, q + k + v)."""
    batch, queries, _ = call.shape(0)
    return _projection(call) + _self_attention(call, (batch, queries), past=4, masks=call.has(3) + call.has(5))


def quantized(call: OperatorCall) -> int:
    """com.microsoft QAttention: int8 projection, the rescaling of its result, then attention in float."""
    batch, queries, _ = call.shape(0)
    scaled = batch * queries * call.shape(1)[1]
    return _projection(call) + scaled + _self_attention(call, (batch, queries), past=8, masks=call.has(5))


def rotary(call: OperatorCall) -> int:
    """RotaryEmbedding: 3 operations per rotated element; `rotary_embedding_dim` may leave a part unturned."""
    shape, turned = call.shape(0), call.number("rotary_embedding_dim", 0)
    heads = call.number("num_heads", 0)
    width = shape[-1] if len(shape) == 4 else shape[-1] // heads if heads else 0
    return ROTARY * (call.count() * turned // width if turned else call.count())


def with_tables(*positions: int) -> Formula:
    """Bytes: everything, but of the tables at these inputs (cosines, sines) at most one row per token."""
    def traffic(call: OperatorCall) -> int:
        shape = call.shape(0)
        tokens = shape[0] * (shape[2] if len(shape) == 4 else shape[1])
        tables = [(call.size(index), math.prod(call.shape(index)[:-1])) for index in positions if call.has(index)]
        unread = sum(size - size * min(tokens, rows) // rows for size, rows in tables)
        return call.read() + call.written() - unread

    return traffic


def core(rows: int, pairs: int, widths: tuple[int, int], after: int) -> int:
    """Attention of so many queries and pairs of query and key, heads included; `widths` of a key and of a value.

    after: operations on each score between scale and softmax.
    """
    return pairs * (2 * sum(widths) + SCALE + SOFTMAX + after) - 2 * rows


def _core(call: OperatorCall, square: tuple[int, int, int], widths: tuple[int, int], masks: int) -> int:
    """`square` is (batch x query heads, queries, keys)."""
    heads, queries, keys = square
    capped = SOFTCAP if call.attributes.get("softcap", 0.0) else 0
    return core(heads * queries, heads * queries * keys, widths, masks + capped)


def _heads(call: OperatorCall, index: int, side: str) -> tuple[int, int, int, int]:
    """(batch, heads, length, width) of Q, K or V."""
    shape = call.shape(index)
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    batch, length, width = shape
    heads = call.number(f"{side}_num_heads")
    return batch, heads, length, width // heads


def _projection(call: OperatorCall) -> int:
    batch, queries, depth = call.shape(0)
    return batch * queries * call.shape(1)[1] * (2 * depth + call.has(2))


def _self_attention(call: OperatorCall, tokens: tuple[int, int], past: int, masks: int) -> int:
    """Attention over the columns of the merged weight; `past` is the input (2, batch, heads, length, width)."""
    heads = call.number("num_heads")
    columns = call.shape(1)[1]
    query, key, value = call.attributes.get("qkv_hidden_sizes") or (columns // 3,) * 3
    if call.number("past_present_share_buffer", 0):
        raise UnknownShape("how much of the shared past is filled")
    keys = tokens[1] + (call.shape(past)[3] if call.has(past) else 0)
    square = (tokens[0] * heads, tokens[1], keys)
    turned = call.number("do_rotary", 0) * ROTARY * math.prod(tokens) * (query + key)
    return turned + _core(call, square, (query // heads, value // heads), masks + call.number("unidirectional", 0))


def _refuse_shared_buffer(call: OperatorCall, past: int) -> None:
    """Raise UnknownShape if a present is as long as the past: one buffer, and only a value says how much of it is
    filled."""
    has_present = len(call.outputs) > 1 and call.outputs[1] is not None
    if call.has(past) and has_present and call.result(1) == call.shape(past):
        raise UnknownShape("how much of the shared past is filled")
