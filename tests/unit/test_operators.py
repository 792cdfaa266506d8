"""The operator cost model against loops that count, ONNX's own function bodies and numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx
import pytest
from onnx import helper, inliner

from aaco.analytics.costs import TABLE, Cost, TensorType, cost, family, modelled
from aaco.analytics.costs.elementwise import PER_ELEMENT, REDUCTIONS
from aaco.analytics.graph.graph import describe
from tests.costs import MICROSOFT, NCHWC, f32, flops, i64, loop_matmul, model_of, moved

FAMILIES = {"gemm", "conv", "attention", "elementwise", "reduction", "softmax", "norm", "copy", "transpose",
            "embedding", "pooling", "sort", "collective", "fill", "recurrent", "quantize", "control"}


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
