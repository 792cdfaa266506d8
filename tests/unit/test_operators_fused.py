"""Attention, recurrent and quantized operators against what they are made of."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from aaco.analytics.costs import TensorType, cost
from aaco.analytics.graph.graph import describe
from tests.costs import MICROSOFT, f32, flops, i8, i64, loop_matmul, model_of, moved

# Attention


def attention_graph(batch, heads, groups, queries, keys, width, width_v, mask):
    """The same attention in plain operators; keys and values already repeated for their query heads."""
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [width**-0.5])
    nodes = [helper.make_node("MatMul", ["q", "kt"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["t"])]
    if mask:
        nodes.append(helper.make_node("Add", ["t", "mask"], ["u"]))
    nodes += [helper.make_node("Softmax", ["u" if mask else "t"], ["p"], axis=-1),
              helper.make_node("MatMul", ["p", "v"], ["y"])]
    inputs = [("q", (batch, heads, queries, width)), ("kt", (batch, heads, width, keys)),
              ("v", (batch, heads, keys, width_v)), ("mask", (queries, keys))]
    return describe(model_of(nodes, inputs, ["y"], initializers=[scale])).meta["total_flops"]


@pytest.mark.parametrize(("heads", "groups", "past", "mask"), [(4, 4, 0, 0), (4, 2, 0, 1), (8, 1, 6, 1), (4, 4, 3, 0)])
def test_attention_is_its_decomposition(heads, groups, past, mask):
    expected = attention_graph(2, heads, groups, 5, 7 + past, 8, 6, mask)
    pasts = [f32(2, groups, past, 8), f32(2, groups, past, 6)] if past else []
    ins = [f32(2, heads, 5, 8), f32(2, groups, 7, 8), f32(2, groups, 7, 6), f32(5, 7 + past) if mask else None, *pasts]
    assert flops("Attention", ins, [f32(2, heads, 5, 6)]) == expected
    flat = [f32(2, 5, heads * 8), f32(2, 7, groups * 8), f32(2, 7, groups * 6), *ins[3:]]
    attributes = {"q_num_heads": heads, "kv_num_heads": groups}
    assert flops("Attention", flat, [f32(2, 5, heads * 6)], **attributes) == expected
    causal = flops("Attention", flat, [f32(2, 5, heads * 6)], is_causal=1, **attributes)
    assert causal == expected + 2 * heads * 5 * (7 + past)


def test_multi_head_attention_is_its_decomposition():
    expected = attention_graph(2, 4, 4, 5, 7, 8, 6, 1)
    ins = [f32(2, 5, 32), f32(2, 7, 32), f32(2, 7, 24), None, None, f32(1, 1, 5, 7)]
    assert flops("MultiHeadAttention", ins, [f32(2, 5, 24)], MICROSOFT, num_heads=4) == expected
    ins[3] = f32(32 + 32 + 24)
    bias = 2 * 5 * 32 + 2 * 7 * (32 + 24)
    assert flops("MultiHeadAttention", ins, [f32(2, 5, 24)], MICROSOFT, num_heads=4) == expected + bias


def test_multi_head_attention_packed_and_with_past():
    packed = flops("MultiHeadAttention", [f32(2, 5, 4, 3, 8)], [f32(2, 5, 32)], MICROSOFT, num_heads=4)
    assert packed == attention_graph(2, 4, 4, 5, 5, 8, 8, 0)
    past = [f32(2, 1, 32), f32(2, 1, 32), f32(2, 1, 32), None, None, None, f32(2, 4, 9, 8), f32(2, 4, 9, 8)]
    outs = [f32(2, 1, 32), f32(2, 4, 10, 8), f32(2, 4, 10, 8)]
    assert flops("MultiHeadAttention", past, outs, MICROSOFT, num_heads=4) == attention_graph(2, 4, 4, 1, 10, 8, 8, 0)


def test_a_shared_cache_hides_how_long_the_past_is():
    ins = [f32(1, 1, 32), f32(1, 1, 16), f32(1, 1, 16), f32(1, 2, 64, 8), f32(1, 2, 64, 8), i64(1), i64(1)]
    shared = [f32(1, 1, 32), f32(1, 2, 64, 8), f32(1, 2, 64, 8)]
    assert cost("GroupQueryAttention", MICROSOFT, {"num_heads": 4, "kv_num_heads": 2}, ins, shared) is None


def test_grouped_query_attention_with_rotation():
    past, outs = f32(2, 2, 9, 8), [f32(2, 3, 32), f32(2, 2, 12, 8), f32(2, 2, 12, 8)]
    ins = [f32(2, 3, 32), f32(2, 3, 16), f32(2, 3, 16), past, past, i64(2), i64(1), f32(100, 4), f32(100, 4)]
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    plain = attention_graph(2, 4, 2, 3, 12, 8, 8, 1)
    assert flops("GroupQueryAttention", ins, outs, MICROSOFT, **attributes) == plain
    turned = 3 * 2 * 3 * 8 * (4 + 2)
    assert flops("GroupQueryAttention", ins, outs, MICROSOFT, do_rotary=1, **attributes) == plain + turned
    tables = 2 * 4 * 6 * 4  # cosine and sine: a row per token, not the 100 there are
    fixed = sum(item.bytes for item in (*ins[:7], *outs))
    assert moved("GroupQueryAttention", ins, outs, MICROSOFT, **attributes) == fixed + tables


def test_attention_with_its_projection():
    ins = [f32(2, 5, 12), f32(12, 96), f32(96)]
    projection = flops("Gemm", [f32(10, 12), f32(12, 96), f32(96)], [f32(10, 96)])
    core = attention_graph(2, 4, 4, 5, 5, 8, 8, 0)
    assert flops("Attention", ins, [f32(2, 5, 32)], MICROSOFT, num_heads=4) == projection + core
    past = [*ins, None, f32(2, 2, 4, 6, 8)]
    assert flops("Attention", past, [f32(2, 5, 32), f32(2, 2, 4, 11, 8)], MICROSOFT, num_heads=4) == (
        projection + attention_graph(2, 4, 4, 5, 11, 8, 8, 0))
    quantized = [i8(2, 5, 12), i8(12, 96), f32(96), f32(), f32()]
    assert flops("QAttention", quantized, [f32(2, 5, 32)], MICROSOFT, num_heads=4) == projection + 10 * 96 + core


def test_rotary_embedding():
    assert flops("RotaryEmbedding", [f32(2, 4, 6, 8), f32(50, 4), f32(50, 4), i64(2, 6)], [f32(2, 4, 6, 8)]) == 3 * 384
    ins = [f32(2, 6, 32), i64(2, 6), f32(50, 2), f32(50, 2)]
    half = flops("RotaryEmbedding", ins, [f32(2, 6, 32)], MICROSOFT, rotary_embedding_dim=4, num_heads=4)
    assert half == 3 * 384 // 2
    assert moved("RotaryEmbedding", ins, [f32(2, 6, 32)], MICROSOFT) == 2 * 4 * 384 + 8 * 12 + 2 * 4 * 12 * 2


# Recurrent layers, by numbers that count what is done to them


class Tally:
    """A number that counts the operations made with it."""

    done = 0

    def _count(self, *_):
        Tally.done += 1
        return self

    __add__ = __sub__ = __mul__ = __truediv__ = __rsub__ = __radd__ = __rtruediv__ = __neg__ = _count
    exp = tanh = _count


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def affine(x, h, bias):
    """One gate's sum: products accumulated on the two biases, or on nothing."""
    total = Tally()
    for value in (*x, *h):
        total = total + value * Tally()
    return total + Tally() + Tally() if bias else total


def lstm_step(x, h, bias, peephole):
    for _ in h:
        i, o, f, c = (affine(x, h, bias) for _ in range(4))
        if peephole:
            i, o, f = (gate + Tally() * Tally() for gate in (i, o, f))
        cell = sigmoid(f) * Tally() + sigmoid(i) * c.tanh()
        _ = sigmoid(o) * cell.tanh()


def gru_step(x, h, bias):
    for _ in h:
        z, r = sigmoid(affine(x, h, bias)), sigmoid(affine(x, h, bias))
        _ = r * Tally()  # r applied to this unit's part of the recurrence
        new = affine(x, h, bias).tanh()
        _ = (1 - z) * new + z * Tally()


def rnn_step(x, h, bias):
    for _ in h:
        affine(x, h, bias).tanh()


@pytest.mark.parametrize(("op_type", "gates", "step"), [("LSTM", 4, lambda x, h, b: lstm_step(x, h, b, False)),
                                                        ("GRU", 3, gru_step), ("RNN", 1, rnn_step)])
@pytest.mark.parametrize(("bias", "directions"), [(True, 1), (False, 2)])
def test_recurrent_layers_do_what_is_counted(op_type, gates, step, bias, directions):
    steps, batch, width, hidden = 3, 2, 5, 4
    Tally.done = 0
    for _ in range(steps * batch * directions):
        step([Tally()] * width, [Tally()] * hidden, bias)
    ins = [f32(steps, batch, width), f32(directions, gates * hidden, width), f32(directions, gates * hidden, hidden),
           f32(directions, 2 * gates * hidden) if bias else None]
    assert flops(op_type, ins, [f32(steps, directions, batch, hidden)], hidden_size=hidden) == Tally.done


def test_lstm_with_peepholes_and_other_activations():
    Tally.done = 0
    lstm_step([Tally()] * 5, [Tally()] * 4, True, True)
    ins = [f32(1, 1, 5), f32(1, 16, 5), f32(1, 16, 4), f32(1, 32), None, None, None, f32(1, 12)]
    assert flops("LSTM", ins, [f32(1, 1, 1, 4)], hidden_size=4) == Tally.done
    relu = flops("LSTM", ins, [f32(1, 1, 1, 4)], activations=["Relu", "Tanh", "Tanh"])
    assert relu == Tally.done - 3 * 3 * 4


# Quantization: a QLinear operator costs what it stands for


def quantized_graph(op_type, x, w, **attributes):
    """DequantizeLinear, the float operator, QuantizeLinear."""
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1])
    zero = helper.make_tensor("zero", TensorProto.INT8, [], [1])
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["xf"]),
             helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["wf"]),
             helper.make_node(op_type, ["xf", "wf"], ["yf"], **attributes),
             helper.make_node("QuantizeLinear", ["yf", "scale", "zero"], ["y"])]
    inputs = [("x", x, TensorProto.INT8), ("w", w, TensorProto.INT8)]
    return describe(model_of(nodes, inputs, ["y"], initializers=[scale, zero]))


@pytest.mark.parametrize(("float_type", "op_type", "domain", "x", "w"), [
    ("Conv", "QLinearConv", "", (1, 4, 6, 6), (8, 4, 3, 3)),
    ("Conv", "QLinearConv", MICROSOFT, (1, 4, 6, 6), (8, 4, 3, 3)),
    ("MatMul", "QLinearMatMul", "", (2, 3, 4), (4, 5)), ("Gemm", "QGemm", MICROSOFT, (3, 4), (4, 5)),
    ("Add", "QLinearAdd", MICROSOFT, (3, 4), (3, 4)), ("Mul", "QLinearMul", MICROSOFT, (3, 4), (1, 4))])
def test_qlinear_is_its_qdq_form(float_type, op_type, domain, x, w):
    graph = quantized_graph(float_type, x, w)
    out = i8(*graph.meta["outputs"][0]["shape"])
    triple = [f32(), i8()]
    middle = [None] if op_type == "QGemm" else []
    ins = [i8(*x), *triple, i8(*w), *triple, *middle, *triple]
    assert flops(op_type, ins, [out], domain) == graph.meta["total_flops"]


def test_quantization_by_hand():
    assert flops("QuantizeLinear", [f32(8), f32(), i8()], [i8(8)]) == 5 * 8
    assert flops("QuantizeLinear", [f32(8), f32()], [i8(8)]) == 4 * 8
    assert flops("DequantizeLinear", [i8(8), f32()], [f32(8)]) == 8
    assert flops("DynamicQuantizeLinear", [f32(8)], [i8(8), f32(), i8()]) == 7 * 8
    assert moved("DequantizeLinear", [TensorType("int4", (9,)), f32()], [f32(9)]) == 5 + 4 + 36


def test_integer_products_subtract_their_zero_points():
    product, _ = loop_matmul((3, 4), (4, 5))
    out = [TensorType("int32", (3, 5))]
    assert flops("MatMulInteger", [i8(3, 4), i8(4, 5)], out) == product
    assert flops("MatMulInteger", [i8(3, 4), i8(4, 5), i8(), i8()], out) == product + 12 + 20
    conv = flops("Conv", [f32(1, 2, 5, 5), f32(3, 2, 3, 3)], [f32(1, 3, 3, 3)])
    integer = flops("ConvInteger", [i8(1, 2, 5, 5), i8(3, 2, 3, 3), i8()], [TensorType("int32", (1, 3, 3, 3))])
    assert integer == conv + 50
    dynamic = flops("DynamicQuantizeMatMul", [f32(3, 4), i8(4, 5), f32(), i8()], [f32(3, 5)], MICROSOFT)
    assert dynamic == flops("DynamicQuantizeLinear", [f32(3, 4)], [i8(3, 4)]) + product + 12 + 20 + 15
    ins = [i8(3, 4), i8(4, 5), f32(), f32(), i8(), i8(), f32(5)]
    to_float = flops("MatMulIntegerToFloat", ins, [f32(3, 5)], MICROSOFT)
    assert to_float == product + 12 + 20 + 15 + 15
