"""The operator cost model against loops that count, ONNX's own function bodies, decomposed graphs and numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, inliner

from aaco.analytics.graph import describe
from aaco.analytics.operators import TABLE, Cost, TensorType, cost, family, modelled
from aaco.analytics.operators.elementwise import PER_ELEMENT, REDUCTIONS

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"
FAMILIES = {"gemm", "conv", "attention", "elementwise", "reduction", "softmax", "norm", "copy", "transpose",
            "embedding", "pooling", "sort", "collective", "fill", "recurrent", "quantize", "control"}


def f32(*shape):
    return TensorType("float32", shape)


def i8(*shape):
    return TensorType("int8", shape)


def i64(*shape):
    return TensorType("int64", shape)


def flops(op_type, ins, outs, domain="", **attributes):
    found = cost(op_type, domain, attributes, ins, outs)
    assert found is not None, op_type
    return found.flops


def moved(op_type, ins, outs, domain="", names=(), **attributes):
    found = cost(op_type, domain, attributes, ins, outs, names)
    assert found is not None, op_type
    return found.bytes


def model_of(nodes, inputs, outputs, opset=21, initializers=()):
    """A model; an input is (name, shape) in float32 or (name, shape, type), an output only a name."""
    ins = [helper.make_tensor_value_info(name, *(kind or [TensorProto.FLOAT]), shape) for name, shape, *kind in inputs]
    graph = helper.make_graph(nodes, "g", ins, [onnx.ValueInfoProto(name=name) for name in outputs], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


# The table itself


def test_every_onnx_operator_of_the_table_is_one():
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    # ONNX Runtime registers these three in ONNX's domain, from outside ONNX.
    outside = {"SimplifiedLayerNormalization", "MemcpyFromHost", "MemcpyToHost"}
    assert {name for domain, name in TABLE if domain == ""} - known == outside


def test_every_runtime_operator_of_the_table_is_one():
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state", reason="the schemas of ONNX Runtime")
    known = {(schema.domain, schema.name) for schema in state.get_all_operator_schema()}
    ours = {key for key in TABLE if key[0] != ""}
    # The first three exist only in builds with NCCL or RCCL; AttnLSTM and MatMulFpQ4 come and go with the version.
    assert {name for _, name in ours - known} <= {"AllReduce", "AllGather", "AllToAll", "AttnLSTM", "MatMulFpQ4"}


def test_the_table_covers_what_it_promises():
    assert {rule.family for rule in TABLE.values()} == FAMILIES
    assert sum(rule.flops is not None for rule in TABLE.values()) >= 240


def test_what_is_not_in_the_table_is_unknown():
    assert family("Frobnicate") == "unknown" and not modelled("Frobnicate")
    assert cost("Frobnicate", "", {}, [f32(1)], [f32(1)]) is None
    assert family("Conv") == family("Conv", "ai.onnx") == family("Conv", NCHWC) == "conv"


def test_a_known_family_without_a_cost():
    assert family("NonMaxSuppression") == "sort" and not modelled("NonMaxSuppression")
    assert cost("AllReduce", MICROSOFT, {}, [f32(4)], [f32(4)]) is None
    assert family("AllReduce", MICROSOFT) == "collective"


# Types


@pytest.mark.parametrize(("dtype", "expected"), [("float32", 60), ("bfloat16", 30), ("float8e4m3fn", 15), ("int4", 8),
                                                 ("bool", 15), ("complex128", 240), ("string", None), ("", None)])
def test_bytes_of_a_tensor(dtype, expected):
    assert TensorType(dtype, (3, 5)).bytes == expected


def test_unknown_shapes_have_no_size():
    assert TensorType("float32", None).elements is None
    assert TensorType("float32", (2, None)).bytes is None
    assert TensorType("float32", ()).elements == 1 and TensorType("float32", (0, 7)).bytes == 0


@pytest.mark.parametrize("ins", [[f32(2, None), f32(3, 4)], [TensorType("float32", None), f32(3, 4)], [f32(2, 3)],
                                 [None, None]])
def test_unknown_operands_have_no_cost(ins):
    assert cost("MatMul", "", {}, ins, [TensorType("float32", (2, None))]) is None


def test_operands_that_break_the_contract_have_no_cost():
    assert cost("MatMul", "", {}, [f32(), f32()], [f32()]) is None
    assert cost("MaxPool", "", {}, [f32(1, 1, 4, 4)], [f32(1, 1, 2, 2)]) is None  # kernel_shape is required
    assert cost("MatMulNBits", MICROSOFT, {}, [f32(2, 8), TensorType("uint8", (4, 1, 4))], [f32(2, 4)]) is None
    assert cost("FusedGemm", MICROSOFT, {"activation": "Frob"}, [f32(2, 3), f32(3, 4)], [f32(2, 4)]) is None


def test_work_is_never_negative():
    assert cost("ReduceSum", "", {}, [f32(3, 0)], [f32(3, 1)]) == Cost(0, 12)


# Matrix products


def loop_matmul(a, b):
    """(flops, result shape) of numpy.matmul, from a loop that does it."""
    left, right = np.zeros(a), np.zeros(b)
    result = np.matmul(left, right)
    depth = left.shape[-1]
    count = 0
    for _ in range(result.size):
        for _ in range(depth):
            count += 2
    return count, result.shape


@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
                                      ((3, 4), (6, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 5)),
                                      ((3, 4), (4,)), ((4,), (4,))])
def test_matmul_batched_and_broadcast(a, b):
    counted, shape = loop_matmul(a, b)
    assert flops("MatMul", [f32(*a), f32(*b)], [f32(*shape)]) == counted


def test_a_broadcast_operand_is_read_once():
    assert moved("MatMul", [f32(6, 3, 4), f32(4, 5)], [f32(6, 3, 5)]) == 4 * (72 + 20 + 90)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm_transposed_with_bias(trans_a, trans_b):
    a, b = (4, 3) if trans_a else (3, 4), (5, 4) if trans_b else (4, 5)
    counted, _ = loop_matmul((3, 4), (4, 5))
    operands = [f32(*a), f32(*b)]
    assert flops("Gemm", operands, [f32(3, 5)], transA=trans_a, transB=trans_b) == counted
    assert flops("Gemm", [*operands, f32(5)], [f32(3, 5)], transA=trans_a, transB=trans_b) == counted + 15
    scaled = flops("Gemm", [*operands, f32(5)], [f32(3, 5)], transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)
    assert scaled == counted + 15 + 15 + 5
    fused = flops("FusedGemm", [*operands, f32(5)], [f32(3, 5)], MICROSOFT, transA=trans_a, transB=trans_b,
                  activation="Sigmoid")
    assert fused == counted + 15 + 4 * 15


def test_fused_matmul_transposed_in_matrix_and_batch():
    expected = 2 * (2 * 3 * 5) * 4
    for a, b, flags in (((2, 4, 3), (2, 4, 5), {"transA": 1}), ((2, 3, 4), (2, 5, 4), {"transB": 1}),
                        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
                        ((4, 2, 3), (2, 4, 5), {"transA": 1, "transBatchA": 1})):
        assert flops("FusedMatMul", [f32(*a), f32(*b)], [f32(2, 3, 5)], MICROSOFT, **flags) == expected
    scaled = flops("FusedMatMul", [f32(2, 3, 4), f32(2, 4, 5)], [f32(2, 3, 5)], MICROSOFT, alpha=0.125)
    assert scaled == expected + 30


@pytest.mark.parametrize(("equation", "shapes"), [
    ("ij,jk->ik", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij,ij->", [(3, 4), (3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]), ("i,j->ij", [(3,), (4,)]), ("ij,jk", [(3, 4), (4, 5)]),
    ("...ij,jk->...ik", [(2, 6, 3, 4), (4, 5)])])
def test_einsum_of_two_is_what_numpy_counts(equation, shapes):
    operands = [np.zeros(shape) for shape in shapes]
    _, report = np.einsum_path(equation, *operands, optimize="optimal")
    naive = float(next(line for line in report.splitlines() if "Naive FLOP" in line).split(":")[1])
    result = np.einsum(equation, *operands)
    assert flops("Einsum", [f32(*shape) for shape in shapes], [f32(*result.shape)], equation=equation) == naive


def test_einsum_of_one_and_of_three():
    assert flops("Einsum", [f32(3, 4)], [f32(4, 3)], equation="ij->ji") == 0
    assert flops("Einsum", [f32(3, 4)], [f32(3)], equation="ij->i") == 3 * 4 - 3
    broadcast = flops("Einsum", [f32(6, 3, 4), f32(1, 4, 5)], [f32(6, 3, 5)], equation="...ij,...jk->...ik")
    assert broadcast == 2 * 6 * 3 * 4 * 5
    chain = flops("Einsum", [f32(3, 4), f32(4, 5), f32(5, 6)], [f32(3, 6)], equation="ij,jk,kl->il")
    assert chain == 2 * 3 * 4 * 5 + 2 * 3 * 5 * 6


def test_block_quantized_matmul_is_dequantization_and_product():
    ins = [f32(2, 7, 64), TensorType("uint8", (48, 2, 16)), f32(48, 2)]
    assert flops("MatMulNBits", ins, [f32(2, 7, 48)], MICROSOFT, K=64, N=48, bits=4, block_size=32) == (
        2 * 14 * 64 * 48 + 2 * 64 * 48)
    assert moved("MatMulNBits", ins, [f32(2, 7, 48)], MICROSOFT, K=64, N=48) == (
        4 * 14 * 64 + 48 * 32 + 4 * 96 + 4 * 14 * 48)


def test_mixture_of_experts_runs_k_of_them():
    ins = [f32(10, 16), f32(10, 8), f32(8, 32, 16), None, f32(8, 16, 32)]
    assert flops("MoE", ins, [f32(10, 16)], MICROSOFT, k=2, activation_type="relu") == 10 * 2 * (2 * 2 * 16 * 32 + 32)
    few = [f32(1, 16), f32(1, 8), *ins[2:]]
    assert moved("MoE", few, [f32(1, 16)], MICROSOFT, k=2) == 4 * (16 + 8 + 2 * 2 * 16 * 32 + 16)


# Convolution


def loop_conv(x, w, out, group):
    """Multiply-adds of a direct convolution, from its loop nest; every tap counts, padded or not."""
    batch, channels = x[:2]
    count = 0
    for _ in range(batch):
        for _ in range(out[1]):  # output channels
            for _ in itertools.product(*map(range, out[2:])):
                for _ in range(channels // group):
                    for _ in itertools.product(*map(range, w[2:])):
                        count += 1
    return count


CONVOLUTIONS = [
    ({"group": 1}, (1, 3, 8, 8), (4, 3, 3, 3)), ({"group": 2, "strides": [2, 2]}, (2, 4, 9, 7), (6, 2, 3, 2)),
    ({"group": 4, "pads": [1, 1, 1, 1]}, (1, 4, 5, 5), (4, 1, 3, 3)),
    ({"dilations": [2, 1]}, (1, 2, 9, 9), (3, 2, 3, 3)), ({"auto_pad": "VALID"}, (1, 2, 7), (3, 2, 3)),
    ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 2, 7, 7), (3, 2, 3, 3)),
    ({}, (1, 2, 4, 5, 6), (3, 2, 2, 2, 2))]


@pytest.mark.parametrize(("attributes", "x", "w"), CONVOLUTIONS)
def test_conv_is_its_loop_nest(attributes, x, w):
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=w[2:], **attributes)
    graph = describe(model_of([node], [("x", x), ("w", w)], ["y"]))
    out = graph.meta["outputs"][0]["shape"]
    assert graph.meta["total_flops"] == 2 * loop_conv(x, w, out, attributes.get("group", 1))
    assert graph.meta["total_bytes"] == 4 * (math.prod(x) + math.prod(w) + math.prod(out))


def test_conv_with_bias_residual_and_activation_in_each_layout():
    x, w, out = f32(1, 8, 6, 6), f32(16, 8, 3, 3), f32(1, 16, 4, 4)
    plain = flops("Conv", [x, w], [out])
    assert plain == 2 * 256 * 72
    assert flops("Conv", [x, w, f32(16)], [out]) == plain + 256
    whole = plain + 256 + 256 + 256
    assert flops("FusedConv", [x, w, f32(16), out], [out], MICROSOFT, activation="Relu") == whole
    assert flops("Conv", [x, w, f32(16), out], [out], NCHWC, activation="Relu") == whole
    assert moved("Conv", [x, w, f32(16), out], [out], NCHWC) == 4 * (288 + 1152 + 16 + 256 + 256)


@pytest.mark.parametrize(("group", "stride"), [(1, 1), (1, 2), (2, 2)])
def test_conv_transpose_scatters_each_input(group, stride):
    x, w = (1, 4, 5, 5), (4, 6 // group, 3, 3)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=group, strides=[stride, stride])
    graph = describe(model_of([node], [("x", x), ("w", w), ("b", (6,))], ["y"]))
    count = sum(2 for _ in range(4) for _ in range(25) for _ in range(6 // group) for _ in range(9))
    assert graph.meta["total_flops"] == count + math.prod(graph.meta["outputs"][0]["shape"])


def test_deformable_conv_adds_its_interpolation():
    plain = flops("Conv", [f32(1, 4, 6, 6), f32(8, 4, 3, 3)], [f32(1, 8, 4, 4)])
    ins = [f32(1, 4, 6, 6), f32(8, 4, 3, 3), f32(1, 18, 4, 4)]
    samples = 4 * 16 * 9
    assert flops("DeformConv", ins, [f32(1, 8, 4, 4)]) == plain + 2 * 4 * samples


def test_pooling_counts_its_window():
    ins, outs = [f32(1, 2, 8, 8)], [f32(1, 2, 4, 4)]
    assert flops("MaxPool", ins, outs, kernel_shape=[3, 3]) == 8 * 32
    assert flops("AveragePool", ins, outs, kernel_shape=[3, 3]) == 9 * 32
    assert flops("LpPool", ins, outs, kernel_shape=[3, 3]) == 18 * 32
    assert flops("GlobalAveragePool", ins, [f32(1, 2, 1, 1)]) == 128
    assert flops("GlobalMaxPool", ins, [f32(1, 2, 1, 1)]) == 126


def test_resampling_counts_its_neighbours():
    ins, outs = [f32(1, 3, 4, 4)], [f32(1, 3, 8, 8)]
    assert flops("Resize", ins, outs) == 0
    assert flops("Resize", ins, outs, mode="linear") == 2 * 4 * 192
    assert flops("Resize", ins, outs, mode="cubic") == 2 * 16 * 192
    assert flops("Resize", ins, [f32(1, 3, 4, 8)], mode="linear") == 2 * 2 * 96
    assert flops("GridSample", [f32(1, 3, 4, 4), f32(1, 5, 5, 2)], [f32(1, 3, 5, 5)]) == 2 * 4 * 75
    assert cost("RoiAlign", "", {}, [f32(1, 3, 9, 9), f32(2, 4), i64(2)], [f32(2, 3, 2, 2)]) is None
    assert flops("RoiAlign", [f32(1, 3, 9, 9), f32(2, 4), i64(2)], [f32(2, 3, 2, 2)], sampling_ratio=2) == 9 * 4 * 24


# Functions: an operator costs what the body that ONNX gives it costs


def expanded(node, inputs, opset):
    """The FLOPs of a node's ONNX function body, counted primitive by primitive."""
    model = model_of([node], inputs, list(filter(None, node.output)), opset)
    kept = [("", name) for name in ("Relu", "Clip", "CastLike", "Softmax") if name != node.op_type]
    for _ in range(4):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        model = inliner.inline_selected_functions(model, kept, exclude=True, inline_schema_functions=True)
    assert all(inner.op_type != node.op_type for inner in model.graph.node)
    return describe(model)


@pytest.mark.parametrize(("op_type", "opset"), [
    ("Celu", 22), ("Elu", 22), ("HardSigmoid", 22), ("HardSwish", 22), ("LeakyRelu", 16), ("Mish", 22), ("Selu", 22),
    ("Shrink", 18), ("Softplus", 22), ("Softsign", 22), ("Swish", 24), ("ThresholdedRelu", 22)])
def test_activations_cost_their_body(op_type, opset):
    schema = onnx.defs.get_schema(op_type, opset)
    defaults = {name: helper.get_attribute_value(item.default_value) for name, item in schema.attributes.items()}
    model = expanded(helper.make_node(op_type, ["x"], ["y"], **defaults), [("x", (8, 16))], opset)
    assert model.meta["unknown_shapes"] == 0
    body = sum(row["flops"] for row in model.nodes.to_pylist() if row["output_shapes"] == "[[8, 16]]")
    assert flops(op_type, [f32(8, 16)], [f32(8, 16)]) == body == PER_ELEMENT[op_type] * 128


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_costs_its_body(approximate):
    model = expanded(helper.make_node("Gelu", ["x"], ["y"], approximate=approximate), [("x", (8, 16))], 21)
    body = sum(row["flops"] for row in model.nodes.to_pylist() if row["output_shapes"] == "[[8, 16]]")
    assert flops("Gelu", [f32(8, 16)], [f32(8, 16)], approximate=approximate) == body
    if approximate == "tanh":
        assert flops("FastGelu", [f32(8, 16), f32(16)], [f32(8, 16)], MICROSOFT) == body + 128
    else:
        assert flops("BiasGelu", [f32(8, 16), f32(16)], [f32(8, 16)], MICROSOFT) == body + 128


@pytest.mark.parametrize(("op_type", "opset"), [(name, 18) for name in ("ReduceL1", "ReduceL2", "ReduceLogSum",
                                                                        "ReduceLogSumExp", "ReduceSumSquare")])
def test_reductions_cost_their_body(op_type, opset):
    model = expanded(helper.make_node(op_type, ["x"], ["y"]), [("x", (8, 16))], opset)
    assert flops(op_type, [f32(8, 16)], [f32(1, 1)]) == model.meta["total_flops"]
    assert op_type in REDUCTIONS


@pytest.mark.parametrize(("op_type", "axis"), [("Softmax", -1), ("Softmax", 1), ("LogSoftmax", 1)])
def test_softmax_costs_its_body(op_type, axis):
    model = expanded(helper.make_node(op_type, ["x"], ["y"], axis=axis), [("x", (3, 5, 7))], 21)
    assert flops(op_type, [f32(3, 5, 7)], [f32(3, 5, 7)], axis=axis) == model.meta["total_flops"]


def test_layer_norm_costs_its_body():
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)
    model = expanded(node, [("x", (6, 8)), ("s", (8,)), ("b", (8,))], 18)
    body = sum(row["flops"] for row in model.nodes.to_pylist() if row["dtype"] == "float32" and row["flops"])
    ours = flops("LayerNormalization", [f32(6, 8), f32(8), f32(8)], [f32(6, 8)])
    assert ours == body - 6  # the body's Reciprocal feeds an output that is not asked for
    skip = flops("SkipLayerNormalization", [f32(6, 8), f32(6, 8), f32(8), f32(8), f32(8)], [f32(6, 8)], MICROSOFT)
    assert skip == ours + 2 * 48


def test_rms_norm_is_its_equations():
    n, rows = 48, 6
    ours = flops("RMSNormalization", [f32(6, 8), f32(8)], [f32(6, 8)])
    assert ours == n + n + rows + rows + n + n  # square, mean, add, root, divide, scale
    assert flops("SimplifiedLayerNormalization", [f32(6, 8), f32(8)], [f32(6, 8)]) == ours
    assert flops("SkipSimplifiedLayerNormalization", [f32(6, 8), f32(6, 8), f32(8)], [f32(6, 8)], MICROSOFT) == ours + n


def test_other_norms():
    x = f32(2, 4, 5, 5)
    assert flops("BatchNormalization", [x, *[f32(4)] * 4], [x]) == 4 * 200 + 2 * 4
    assert flops("InstanceNormalization", [x, f32(4), f32(4)], [x]) == 7 * 200 + 4 * 8
    assert flops("GroupNormalization", [x, f32(4), f32(4)], [x], num_groups=2) == 7 * 200 + 4 * 4
    assert flops("GroupNorm", [x, f32(4), f32(4)], [x], MICROSOFT, groups=2, activation=1) == 12 * 200 + 4 * 4
    assert flops("MeanVarianceNormalization", [x], [x]) == 5 * 200 + 4 * 4
    assert flops("LRN", [x], [x], size=5) == 9 * 200
    assert flops("LpNormalization", [x], [x]) == 600


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


# Everything else


def test_elementwise_and_variadic():
    assert flops("Add", [f32(4, 1), f32(1, 5)], [f32(4, 5)]) == 20
    assert flops("Sum", [f32(5)] * 3, [f32(5)]) == 10 and flops("Mean", [f32(5)] * 3, [f32(5)]) == 15
    assert flops("Clip", [f32(5), f32(), None], [f32(5)]) == 5
    assert flops("Clip", [f32(5)], [f32(5)], min=0.0, max=6.0) == 10
    assert flops("Cast", [f32(5)], [i64(5)]) == 0 and moved("Cast", [f32(5)], [i64(5)]) == 60
    assert moved("CastLike", [f32(5), i64(1000)], [i64(5)]) == 60
    assert flops("BiasSplitGelu", [f32(2, 8), f32(8)], [f32(2, 4)], MICROSOFT) == 16 + 8 + 5 * 8


def test_a_tensor_given_twice_is_read_once():
    assert moved("Mul", [f32(10), f32(10)], [f32(10)]) == 120
    assert moved("Mul", [f32(10), f32(10)], [f32(10)], names=("x", "x")) == 80


def test_reductions():
    assert flops("ReduceMean", [f32(4, 8)], [f32(4)]) == 32
    assert flops("ReduceMax", [f32(4, 8)], [f32(4)]) == flops("ArgMax", [f32(4, 8)], [i64(4)]) == 28
    assert flops("CumSum", [f32(4, 8), i64()], [f32(4, 8)]) == 32


@pytest.mark.parametrize("op_type", ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"])
def test_views_move_nothing(op_type):
    assert cost(op_type, "", {}, [f32(4, 8), i64(1)], [f32(32)]) == Cost(0, 0)


def test_traffic_of_what_picks_and_repeats():
    table, ids = f32(50000, 768), i64(1, 128)
    assert moved("Gather", [table, ids], [f32(1, 128, 768)]) == 2 * 4 * 128 * 768 + 8 * 128
    assert moved("Gather", [f32(2, 8), i64(100)], [f32(100, 8)]) == 64 + 800 + 3200  # no more than the table has
    assert moved("Slice", [f32(100, 8), i64(1), i64(1)], [f32(10, 8)]) == 2 * 320 + 16
    assert moved("Expand", [f32(1, 8), i64(2)], [f32(10, 8)]) == 32 + 16 + 320
    assert moved("Pad", [f32(4), i64(2)], [f32(6)]) == 16 + 16 + 24
    assert moved("Concat", [f32(4), f32(6)], [f32(10)]) == moved("Split", [f32(10)], [f32(4), f32(6)]) == 80
    assert moved("Transpose", [f32(4, 8)], [f32(8, 4)]) == 256
    assert moved("Shape", [f32(1000, 1000)], [i64(2)]) == 16
    assert moved("ConstantOfShape", [i64(2)], [f32(3, 4)]) == 48
    assert moved("Where", [TensorType("bool", (8,)), f32(8), f32()], [f32(8)]) == 8 + 32 + 4 + 32


def test_scatter_reduces_only_when_told():
    ins, out = [f32(9, 8), i64(2, 1), f32(2, 8)], [f32(9, 8)]
    assert flops("ScatterND", ins, out) == 0 and flops("ScatterND", ins, out, reduction="add") == 16
    assert moved("ScatterND", ins, out) == 288 + 16 + 64 + 288


def test_embedding_tables_are_read_by_row():
    words, ids = f32(30000, 64), i64(2, 8)
    ins = [ids, ids, words, f32(512, 64), f32(2, 64), f32(64), f32(64)]
    n = 2 * 8 * 64
    assert flops("EmbedLayerNormalization", ins, [f32(2, 8, 64)], MICROSOFT) == 2 * n + 7 * n + 4 * 16
    small = 2 * 64 * 4  # of the two segment rows no more than there are
    assert moved("EmbedLayerNormalization", ins, [f32(2, 8, 64)], MICROSOFT) == (
        2 * 16 * 8 + 2 * 4 * n + small + 2 * 256 + 4 * n)
    blocks = [TensorType("uint8", (1000, 32)), i64(4), f32(1000, 2)]
    assert moved("GatherBlockQuantized", blocks, [f32(4, 64)], MICROSOFT) == 4 * 32 + 4 * 8 + 32 + 4 * 256


def test_sorting_and_filling():
    assert flops("TopK", [f32(2, 1000), i64(1)], [f32(2, 8), i64(2, 8)]) == 2000 * 3
    assert flops("TopK", [f32(2, 1000), i64(1)], [f32(2, 1), i64(2, 1)]) == 2000
    assert flops("Range", [i64(), i64(), i64()], [i64(10)]) == 20
    assert cost("Constant", "", {}, [], [f32(1000)]) == Cost(0, 0)


def test_control_flow_is_free_itself():
    assert cost("If", "", {}, [TensorType("bool", ())], [f32(9)]) == Cost(0, 0)
