"""The cost model over random shapes: products and convolutions against loops that count; no shape breaks it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from aaco.analytics.costs import TABLE, Cost, TensorType, cost, modelled
from aaco.analytics.costs.inference import graph_types

SIZE = st.integers(1, 4)
MODELLED = sorted(key for key in TABLE if modelled(key[1], key[0]))
VALUES = {"kernel_shape": [2, 2], "num_heads": 2, "kv_num_heads": 1, "q_num_heads": 2, "N": 3, "K": 4, "axis": -1,
          "size": 3, "num_groups": 2, "groups": 2, "mode": "linear", "equation": "ij,jk->ik", "sampling_ratio": 2,
          "transA": 1, "activation": "Relu", "axes": [0, 2], "perm": [1, 0], "do_rotary": 1, "rotary_embedding_dim": 2}


def f32(shape):
    return TensorType("float32", tuple(shape))


def inferred(op_type, shapes, **attributes):
    """The output shape by ONNX's own inference; None when the operator refuses these inputs."""
    names = [f"x{index}" for index in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in zip(names, shapes, strict=True)]
    graph = helper.make_graph([helper.make_node(op_type, names, ["y"], **attributes)], "g", inputs,
                              [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return graph_types(onnx.shape_inference.infer_shapes(model).graph)["y"].shape


@st.composite
def matmul_shapes(draw):
    batch = draw(st.lists(SIZE, max_size=2))
    m, k, n = draw(SIZE), draw(SIZE), draw(SIZE)
    left = [draw(st.sampled_from([size, 1])) for size in batch]
    right = batch[draw(st.integers(0, len(batch))):]
    return [*left, m, k], [*right, k, n]


@given(matmul_shapes())
def test_matmul_is_its_loops(shapes):
    a, b = (np.zeros(shape) for shape in shapes)
    out = np.matmul(a, b)
    count = 0
    for _ in np.ndindex(out.shape):
        for _ in range(a.shape[-1]):
            count += 2  # multiply, add
    expected = Cost(count, 4 * (a.size + b.size + out.size))
    assert cost("MatMul", "", {}, [f32(a.shape), f32(b.shape)], [f32(out.shape)]) == expected


@given(SIZE, SIZE, SIZE, st.booleans(), st.booleans(), st.booleans())
def test_gemm_is_its_loops(m, k, n, turn_a, turn_b, bias):
    a, b = np.zeros((k, m) if turn_a else (m, k)), np.zeros((n, k) if turn_b else (k, n))
    out = (a.T if turn_a else a) @ (b.T if turn_b else b)
    count = 0
    for _ in np.ndindex(out.shape):
        count += bias
        for _ in range(k):
            count += 2
    ins = [f32(a.shape), f32(b.shape), *([f32((n,))] if bias else [])]
    found = cost("Gemm", "", {"transA": int(turn_a), "transB": int(turn_b)}, ins, [f32(out.shape)])
    assert found == Cost(count, 4 * (a.size + b.size + out.size + n * bias))


@st.composite
def convolutions(draw):
    rank, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    each = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    x = [draw(st.integers(1, 2)), group * draw(st.integers(1, 2)), *(draw(st.integers(5, 7)) for _ in range(rank))]
    w = [group * draw(st.integers(1, 2)), x[1] // group, *draw(each)]
    spread = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    attributes = {"group": group, "strides": draw(each), "dilations": spread}
    padding = [{}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "VALID"}, {"pads": [1] * 2 * rank}]
    attributes |= draw(st.sampled_from(padding))
    return x, w, attributes


@settings(deadline=None)
@given(convolutions(), st.booleans())
def test_conv_is_its_loops(convolution, bias):
    x, w, attributes = convolution
    out = inferred("Conv", [x, w], **attributes)
    count = 0
    for _ in np.ndindex(tuple(out)):
        count += bias
        for _ in range(x[1] // attributes["group"]):
            for _ in itertools.product(*map(range, w[2:])):
                count += 2
    ins = [f32(x), f32(w), *([f32(w[:1])] if bias else [])]
    expected = Cost(count, 4 * (math.prod(x) + math.prod(w) + math.prod(out) + w[0] * bias))
    assert cost("Conv", "", attributes, ins, [f32(out)]) == expected


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True),
       st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True), st.data())
def test_einsum_of_two_is_its_loops(left, right, data):
    sizes = {label: data.draw(SIZE) for label in "abcd"}
    kept = data.draw(st.lists(st.sampled_from(sorted({*left, *right})), unique=True))
    equation = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    shapes = [[sizes[label] for label in side] for side in (left, right, kept)]
    count = 0
    for _ in itertools.product(*(range(sizes[label]) for label in {*left, *right})):
        count += 2 if {*left, *right} - {*kept} else 1
    found = cost("Einsum", "", {"equation": equation}, [f32(shapes[0]), f32(shapes[1])], [f32(shapes[2])])
    assert found is not None and found.flops == count


DTYPES = st.sampled_from(["float32", "int8", "uint4", "int64", "string", ""])
SHAPES = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=5).map(tuple))
OPERANDS = st.one_of(st.none(), st.builds(TensorType, DTYPES, SHAPES))


@settings(max_examples=400)
@given(st.sampled_from(MODELLED), st.lists(OPERANDS, max_size=9), st.lists(OPERANDS, max_size=4),
       st.sets(st.sampled_from(sorted(VALUES))))
def test_any_operands_give_a_cost_or_none(key, ins, outs, given_attributes):
    domain, op_type = key
    found = cost(op_type, domain, {name: VALUES[name] for name in given_attributes}, ins, outs)
    assert found is None or (found.flops >= 0 and found.bytes >= 0)


@given(st.sampled_from(MODELLED), st.lists(st.lists(st.integers(1, 4), min_size=4, max_size=4), min_size=8, max_size=8))
def test_the_cost_is_the_same_each_time_and_whole(key, shapes):
    domain, op_type = key
    ins, outs = [f32(shape) for shape in shapes[:5]], [f32(shape) for shape in shapes[5:]]
    first = cost(op_type, domain, VALUES, ins, outs)
    assert first == cost(op_type, domain, VALUES, ins, outs)
    assert first is None or (type(first.flops), type(first.bytes)) == (int, int)
