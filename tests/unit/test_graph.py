"""Graph extraction against ONNX Runtime's true shapes, closed formulas, published counts and optimised graphs."""

from __future__ import annotations

import json
import math
from collections import Counter
from graphlib import TopologicalSorter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from aaco.analytics.costs import TABLE, TensorType, modelled
from aaco.analytics.graph.graph import describe, inline
from aaco.core.errors import ModelError
from aaco.core.tables import GRAPH_EDGES, GRAPH_NODES
from aaco.runner import zoo
from tests import graphs, models
from tests.growth import times_dearer

FLOAT, INT64, EXTERNAL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.EXTERNAL
SIZES = {"B": 2, "N": 2, "S": 8, "past_len": 4, "present_len": 12, "total": 12, "batch": 1, "sequence": 128}
MODELS = {"resnet": graphs.resnet, "gpt2": graphs.gpt2, "bert": graphs.bert,
          "bert_tanh": lambda: graphs.bert(gelu="tanh"), "mobilenet": graphs.mobilenet,
          "shapes": graphs.shapes, "control_flow": graphs.control_flow}


def binding(model, sizes=SIZES):
    return {info.name: [dim.dim_value or sizes[dim.dim_param] for dim in info.type.tensor_type.shape.dim]
            for info in model.graph.input}


def from_zoo(name):
    """A zoo model whose weights have shapes and no data."""
    recipe = zoo.RECIPES[name]()
    model = recipe.skeleton({})
    for weight in recipe.weights:
        model.graph.initializer.add(name=weight.name, dims=weight.shape, data_type=FLOAT, data_location=EXTERNAL)
    return model


def parsed(text, **weights):
    """A model in ONNX's textual form, with float32 weights of these shapes."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "custom" : 1]> {text}')
    ones = {name: np.ones(shape, np.float32) for name, shape in weights.items()}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in ones.items())
    return model


def rows(table):
    return {row["name"]: row for row in table.to_pylist()}


def macs(graph):
    """Multiply-adds of the convolutions and matrix products, biases taken off."""
    total = 0
    for row in graph.nodes.to_pylist():
        if row["category"] in ("conv", "gemm"):
            bias = math.prod(json.loads(row["output_shapes"])[0]) if len(row["inputs"]) == 3 else 0
            total += (row["flops"] - bias) // 2
    return total


# Published and closed counts


def resnet50_macs(stages=(3, 4, 6, 3), width=64, image=224, classes=1000):
    """From He et al. 2016, table 1, the stride on the 3x3 convolution."""
    size, channels = image // 2, 3
    total = size**2 * width * channels * 49
    size, channels = size // 2, width
    for stage, blocks in enumerate(stages):
        inner = width << stage
        for block in range(blocks):
            before = size
            size = size // 2 if stage and not block else size
            total += before**2 * channels * inner + size**2 * (9 * inner * inner + inner * 4 * inner)
            total += 0 if block else size**2 * channels * 4 * inner
            channels = 4 * inner
    return total + channels * classes


def test_resnet50_is_4_1_gmac():
    graph = describe(from_zoo("resnet50"), bind={"input": [1, 3, 224, 224]})
    assert macs(graph) == resnet50_macs() == 4_089_184_256
    assert abs(macs(graph) / 4.1e9 - 1) < 0.005
    assert graph.meta["parameter_count"] == 25_557_032 + 2 * 26_560  # torchvision's, and the running statistics
    assert graph.meta["parameter_bytes"] == 4 * graph.meta["parameter_count"]
    assert not graph.meta["unmodelled"] and not graph.meta["unknown_shapes"]


def test_batch_multiplies_work_and_not_weights():
    one, eight = (describe(from_zoo("resnet18"), bind={"input": [batch, 3, 224, 224]}) for batch in (1, 8))
    assert macs(eight) == 8 * macs(one) and 1.81e9 < macs(one) < 1.82e9  # torchvision: 1.814 GMAC
    assert eight.meta["parameter_count"] == one.meta["parameter_count"]
    assert eight.meta["total_bytes"] < 8 * one.meta["total_bytes"]


def test_mobilenet_v2_is_0_3_gmac():
    graph = describe(from_zoo("mobilenet-v2"), bind={"input": [1, 3, 224, 224]})
    assert macs(graph) == pytest.approx(300.8e6, rel=0.005)  # torchvision; depthwise convolutions are groups


def test_bert_base_with_bound_dimensions():
    model = from_zoo("bert-base")
    graph = describe(model, bind=binding(model))
    layers, width, length = 12, 768, 128
    closed = layers * (12 * width**2 * length + 2 * length**2 * width)
    assert closed <= macs(graph) < 1.001 * closed  # the pooler is the rest
    assert graph.meta["unknown_shapes"] == 0 and graph.meta["outputs"][0]["shape"][:1] == [1]
    assert describe(model).meta["unknown_shapes"] > 300


# Shapes


@pytest.mark.parametrize("name", MODELS)
def test_shapes_are_those_of_the_run(name):
    ort = pytest.importorskip("onnxruntime")
    model = MODELS[name]()
    bind = binding(model)
    graph = describe(model, bind=bind)
    ran = onnx.ModelProto()
    ran.CopyFrom(model)
    known = {info.name for info in model.graph.output}
    made = [out for node in model.graph.node for out in node.output if out not in known]
    ran.graph.output.extend(onnx.ValueInfoProto(name=out) for out in made)
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 4
    session = ort.InferenceSession(ran.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {info.name: np.ones(bind[info.name], helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
             for info in model.graph.input}
    results = dict(zip([out.name for out in session.get_outputs()], session.run(None, feeds), strict=True))
    assert graph.meta["unknown_shapes"] == 0
    for row in graph.nodes.to_pylist():
        if not row["subgraph"]:
            for tensor, shape in zip(row["outputs"], json.loads(row["output_shapes"]), strict=True):
                assert tuple(shape) == results[tensor].shape, tensor
    sizes = {row["tensor"]: row["bytes"] for row in graph.edges.to_pylist()}
    assert all(sizes[tensor] == value.nbytes for tensor, value in results.items() if tensor in sizes)


@pytest.mark.parametrize("name", MODELS)
def test_the_optimiser_changes_the_graph_and_not_the_work(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    model = MODELS[name]()
    graphs_ = []
    for level in ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.optimized_model_filepath, options.log_severity_level = str(tmp_path / f"{level}.onnx"), 4
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        graphs_.append(describe(onnx.load(tmp_path / f"{level}.onnx"), bind=binding(model)))
    basic, extended = graphs_
    assert extended.meta["unknown_shapes"] == 0 and not extended.meta["unmodelled"]
    assert extended.meta["total_flops"] == pytest.approx(basic.meta["total_flops"], rel=0.0005)
    assert extended.meta["total_bytes"] <= basic.meta["total_bytes"]
    source = describe(model, bind=binding(model))
    assert basic.meta["total_flops"] == pytest.approx(source.meta["total_flops"], rel=0.1)  # folded: BN, constants


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_operator_on_onnx_own_cases():
    """ONNX's backend tests run each operator on real values: shapes must be theirs, and each cost must be known."""
    from onnx.backend.test.case.node import collect_testcases

    known = set()
    for case in collect_testcases(None):
        if case.model is None or "_expanded" in case.name:
            continue
        ins, outs = case.data_sets[0]
        bind = {info.name: value.shape for info, value in zip(case.model.graph.input, ins, strict=False)
                if isinstance(value, np.ndarray) and info.type.HasField("tensor_type")}
        graph = describe(case.model, bind=bind)
        for port, value in zip(graph.meta["outputs"], outs, strict=False):
            if port["shape"] is not None and all(isinstance(size, int) for size in port["shape"]):
                assert not isinstance(value, np.ndarray) or tuple(port["shape"]) == value.shape, case.name
        known |= {(row["domain"], row["op_type"]) for row in graph.nodes.to_pylist() if row["flops"] is not None}
    outside = {"SimplifiedLayerNormalization", "GlobalLpPool", "MemcpyFromHost", "MemcpyToHost"}  # no case there
    assert {name for domain, name in TABLE if not domain and modelled(name)} - {name for _, name in known} == outside


def test_shape_arithmetic_is_folded():
    """What exporters write for expand(-1), which ONNX's own data propagation does not follow."""
    model = parsed("""g (float[B, S, 4] x) => (y) <int64[3] wanted = {-1, -1, 4}, int64[3] minus = {-1, -1, -1}> {
        one = Constant <value_float = 1.0> ()
        shape = Shape(x)
        dynamic = Equal(wanted, minus)
        target = Where(dynamic, shape, wanted)
        y = Expand(one, target)
    }""")
    assert describe(model).meta["outputs"][0]["shape"] is None or describe(model).meta["unknown_shapes"] >= 1
    graph = describe(model, bind={"x": [2, 3, 4]})
    assert graph.meta["outputs"][0]["shape"] == [2, 3, 4] and graph.meta["unknown_shapes"] == 0
    assert graph.nodes["op_type"].to_pylist() == [node.op_type for node in model.graph.node]


def test_arithmetic_that_fails_leaves_the_shape_open():
    model = parsed("""g (float[6] x) => (y) <int64[2] two = {0, 5}, int64[1] index = {7}> {
        target = Gather(two, index)
        s = Shape(x)
        y = Reshape(x, target)
        unused = Expand(x, y)
    }""")
    assert describe(model).meta["unknown_shapes"] >= 1


def test_custom_operators_leave_the_rest_alone():
    text = """g (float[2, 3] x) => (float[2, 3] y) {
        a = MatMul(x, w)
        b = %sFrobnicate(a)
        c = MatMul(b, w)
        d = Relu(a)
        y = Add(d, d)
    }"""
    for prefix in ("custom.", "nowhere."):  # one imported, one not
        graph = describe(parsed(text % prefix, w=(3, 3)))
        found = rows(graph.nodes)
        assert found["MatMul_0"]["flops"] == 36 and found["Add_4"]["flops"] == 6
        assert found["Frobnicate_1"]["category"] == "unknown" and found["Frobnicate_1"]["flops"] is None
        assert found["MatMul_2"]["flops"] is None and json.loads(found["MatMul_2"]["output_shapes"]) == [None]
        assert graph.meta["unmodelled"] == {f"{prefix}Frobnicate".replace(".", ":"): 1}
        assert graph.meta["unknown_shapes"] == 1 and graph.meta["inference_refused"] is None


def test_shapes_can_be_stated_or_declared():
    model = parsed("""g (float[2, 3] x) => (y) { b = custom.Frobnicate(x) y = Relu(b) }""")
    stated = describe(model, shapes={"b": TensorType("float16", (5, 7))}).meta
    assert stated["total_flops"] == 35 and stated["outputs"] == [{"name": "y", "dtype": "float16", "shape": [5, 7]}]
    model.graph.value_info.append(helper.make_tensor_value_info("b", FLOAT, ["batch", 9]))
    assert describe(model).meta["unknown_shapes"] == 1
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert describe(model, bind={"x": [4, 3]}).meta["total_flops"] == 36


def test_a_declaration_fills_in_what_depends_on_values():
    model = parsed("g (float[4, 5] x) => (z) { y = NonZero(x) z = Neg(y) }")
    assert json.loads(describe(model).nodes["output_shapes"][1].as_py()) == [[2, None]]
    model.graph.value_info.append(helper.make_tensor_value_info("y", INT64, ["two", 7]))
    assert describe(model).meta["outputs"][0]["shape"] == [2, 7]


def test_a_bound_input_outdates_what_the_file_declares():
    model = parsed("g (float[B, 3] x) => (float[1, 3] z) <float[1, 3] y> { y = Relu(x) z = Exp(y) }")
    assert any(info.name == "y" for info in model.graph.value_info)
    assert describe(model, bind={"x": [8, 3]}).meta["outputs"][0]["shape"] == [8, 3]


DECODER = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (int64[B, S] ids, int64[B, T] mask, float[B, 4, P, 8] past_k, float[B, 4, P, 8] past_v)
  => (float[B, S, 100] logits, float[B, 4, T, 8] new_k, float[B, 4, T, 8] new_v)
<int64[1] axis = {1}, int64 one = {1}> {
    counts = ReduceSum <keepdims = 0> (mask, axis)
    lengths = Cast <to = 6> (counts)
    sizes = Shape(mask)
    size = Gather(sizes, one)
    total = Cast <to = 6> (size)
    x = Gather(words, ids)
    n = SimplifiedLayerNormalization <axis = -1> (x, scale)
    PROJECTION
    a, new_k, new_v = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 4, do_rotary = 1> (
        QUERY, past_k, past_v, lengths, total, cos, sin)
    o = com.microsoft.MatMulNBits <K = 64, N = 64, bits = 4, block_size = 32> (a, q_w, q_s)
    m, mean, inverse, r = com.microsoft.SkipSimplifiedLayerNormalization (x, o, scale)
    g = com.microsoft.QuickGelu(m)
    f, mean2, inverse2 = com.microsoft.SkipSimplifiedLayerNormalization (r, g, scale)
    logits = com.microsoft.FusedMatMul <transB = 1> (f, words)
}"""
APART = """q = com.microsoft.MatMulNBits <K = 64, N = 64, bits = 4, block_size = 32> (n, q_w, q_s)
    k = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32> (n, k_w, k_s)
    v = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32> (n, k_w, k_s)"""
PACKED = "p = MatMul(n, p_w)"


@pytest.mark.parametrize(("projection", "query"), [(APART, "q, k, v"), (PACKED, "p, , ")])
def test_runtime_operators_of_a_decoder_have_shapes(projection, query):
    """A language model as ONNX Runtime's own builder writes it: quantized weights, grouped queries, a cache."""
    model = parser.parse_model(DECODER.replace("PROJECTION", projection).replace("QUERY", query))
    for node in model.graph.node:  # the textual form cannot leave these out
        node.output[:] = ["" if name.startswith(("mean", "inverse")) else name for name in node.output]
    weights = {"words": (100, 64), "scale": (64,), "q_w": (64, 2, 16), "q_s": (64, 2), "k_w": (32, 2, 16),
               "k_s": (32, 2), "p_w": (64, 128), "cos": (128, 4), "sin": (128, 4)}
    for name, shape in weights.items():
        kind = TensorProto.UINT8 if name in ("q_w", "k_w") else FLOAT
        model.graph.initializer.add(name=name, dims=shape, data_type=kind, data_location=EXTERNAL)
    graph = describe(model, bind={"ids": [2, 3], "mask": [2, 8], "past_k": [2, 4, 5, 8], "past_v": [2, 4, 5, 8]})
    assert graph.meta["unknown_shapes"] == 0 and not graph.meta["unmodelled"]
    found = {row["op_type"]: row for row in graph.nodes.to_pylist()}
    assert json.loads(found["GroupQueryAttention"]["output_shapes"]) == [[2, 3, 64], [2, 4, 8, 8], [2, 4, 8, 8]]
    assert found["FusedMatMul"]["flops"] == 2 * 6 * 64 * 100
    assert found["QuickGelu"]["flops"] == 6 * 6 * 64


def test_an_invalid_graph_is_described_without_shapes():
    graph = describe(parsed("g (float[2] x) => (y) { y = DynamicQuantizeLinear(x) z = Relu(x) }"))  # has three outputs
    assert "DynamicQuantizeLinear" in graph.meta["inference_refused"] and graph.meta["unknown_shapes"] == 2
    assert describe(parsed("g (float[2] x) => (y) { y = NoSuchOperator(x) z = Relu(x) }")).meta["total_flops"] == 2


@pytest.mark.parametrize(("bind", "words"), [({"z": [1]}, "no input tensor 'z'"), ({"x": [2]}, r"not \[2\]"),
                                             ({"x": [2, 4]}, r"not \[2, 4\]")])
def test_a_binding_must_fit(bind, words):
    with pytest.raises(ModelError, match=words):
        describe(parsed("g (float[B, 3] x) => (y) { y = Relu(x) }"), bind=bind)


def test_dimensions_bound_two_ways_are_not_spread():
    model = parsed("g (float[N] x, float[N] y, float[N] z) => (w) { w = Relu(z) }")
    assert describe(model, bind={"x": [2], "y": [3]}).meta["inputs"][2]["shape"] == ["N"]
    assert describe(model, bind={"x": [2], "y": [2]}).meta["inputs"][2]["shape"] == [2]


def test_an_input_without_rank_can_be_bound():
    model = parsed("g (float[N] x) => (y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert describe(model).meta["inputs"][0]["shape"] is None
    assert describe(model, bind={"x": [4, 5]}).meta["total_flops"] == 20


# Weights


def test_weights_without_data_change_nothing():
    model = graphs.bert()
    whole = describe(model, bind=binding(model))
    for tensor in model.graph.initializer:
        if tensor.ByteSize() > 1024:
            tensor.ClearField("raw_data")
            tensor.data_location = EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
    bare = describe(model, bind=binding(model))
    assert bare.meta == whole.meta and bare.nodes.equals(whole.nodes) and bare.edges.equals(whole.edges)


def test_weights_beyond_protobuf_limit_are_only_shapes():
    weight = TensorProto(name="w", dims=[40_000, 50_000], data_type=FLOAT, data_location=EXTERNAL)
    model = parsed("g (float[1, 40000] x) => (y) { y = MatMul(x, w) }")
    model.graph.initializer.append(weight)
    meta = describe(model).meta
    assert meta["parameter_bytes"] == 8_000_000_000 and meta["total_flops"] == 4_000_000_000


def test_a_shared_weight_counts_once_and_at_its_first_use():
    model = parsed("""g (float[2, 4] x) => (z) <int64[1] axis = {0}> {
        a = MatMul(x, w)
        k = Constant <value = float[3] {1, 2, 3}> ()
        b = MatMul(a, w)
        z = Squeeze(b, axis)
    }""", w=(4, 4))
    graph = describe(model)
    assert graph.nodes["parameters"].to_pylist() == [16, 3, 0, 0] and graph.meta["parameter_count"] == 19
    assert graph.meta["parameter_bytes"] == 76
    assert [port["name"] for port in graph.meta["inputs"]] == ["x"]


def test_weights_listed_as_inputs_are_not_inputs():
    meta = describe(parsed("g (float[2, 4] x, float[4, 4] w) => (z) { z = MatMul(x, w) }", w=(4, 4))).meta
    assert [port["name"] for port in meta["inputs"]] == ["x"] and meta["parameter_count"] == 16


# Subgraphs and functions


def in_order(graph):
    """Names of the nodes, each control-flow node before its bodies."""
    names = []
    for node in graph.node:
        names.append(node.name)
        for attribute in node.attribute:
            names += in_order(attribute.g) if attribute.HasField("g") else []
    return names


def test_bodies_are_part_of_the_graph():
    model = graphs.control_flow()
    graph = describe(model, bind=binding(model))
    found = rows(graph.nodes)
    assert found["body/MatMul"]["subgraph"] == "loop/body"
    assert found["nested/Tanh"]["subgraph"] == "loop/body/nested/then_branch"
    assert graph.meta["subgraph_count"] == 5 and found["loop"]["flops"] == 0
    assert json.loads(found["loop"]["attributes"]) == {"body": "body"}
    assert graph.meta["total_flops"] == sum(row["flops"] or 0 for row in found.values())
    assert [row["name"] for row in found.values()] == in_order(model.graph)
    assert [row["node_id"] for row in found.values()] == list(range(20))


def test_edges_cross_into_and_out_of_bodies():
    model = graphs.control_flow()
    graph = describe(model, bind=binding(model))
    ids = {row["name"]: row["node_id"] for row in graph.nodes.to_pylist()} | {None: None}
    edges = {(row["src_node"], row["dst_node"], row["tensor"]): row for row in graph.edges.to_pylist()}
    assert len(edges) == graph.edges.num_rows
    for src, dst, tensor in [
            ("outer/Add", "then/MatMul", "outer/Add_out"),  # captured from outside
            ("if", "body/MatMul", "carried"),  # handed in by the Loop
            ("if", "body/skip", "if_out"), ("body/skip", "nested/Tanh", "body/skip_out"),
            ("then/act", "if", "then/act_out"), ("nested", "loop", "nested_out"),  # returned
            (None, "outer/MatMul", "input"), (None, "body/MatMul", "body.w"), ("final", None, "result")]:
        assert (ids[src], ids[dst], tensor) in edges, tensor
    before: dict[int, set[int]] = {}
    for src, dst, _ in edges:
        if src is not None and dst is not None:
            before.setdefault(dst, set()).add(src)
    assert len(list(TopologicalSorter(before).static_order())) == 20  # raises CycleError on a cycle


def test_a_loop_that_keeps_its_shape_returns_it():
    model = graphs.control_flow()
    model.graph.output[0].ClearField("type")
    graph = describe(model, bind=binding(model))
    assert graph.meta["outputs"][0]["shape"] == [2, 8] and graph.meta["unknown_shapes"] == 0


def test_a_loop_that_changes_its_shape_stays_open():
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x, bool go) => (y) <int64 trips = {3}> {
        y = Loop (trips, go, x) <body = b (int64 i, bool c, float[N] s) => (bool d, float[M] t) {
            d = Identity(c)
            t = Concat <axis = 0> (s, s)
        }>
    }"""
    graph = describe(parser.parse_model(text))
    assert graph.meta["outputs"][0]["shape"] is None and graph.meta["unknown_shapes"] == 1


LOOP = """<ir_version: 8, opset_import: ["" : 18]> g (float[2, 4] x, float[4, 4] w, bool flag, int64 asked) => (y)
    <int64 trips = {%(trips)s}, bool on = {%(on)s}, bool always = {1}> {
        sizes = Shape <start = 1> (x)
        y = Loop (%(count)s, %(go)s, x) <body = b (int64 i, bool c, float[2, 4] s) => (bool d, float[2, 4] t) {
            d = Identity(%(keep)s)
            t = MatMul(s, w)
        }>
    }"""


@pytest.mark.parametrize(("changes", "executions"), [
    ({}, 3), ({"keep": "always"}, 3), ({"go": '""'}, 3), ({"trips": "-1"}, 0), ({"on": "0"}, 0),
    ({"count": "asked"}, None), ({"count": '""'}, None), ({"go": "flag"}, None), ({"keep": "flag"}, None),
    ({"count": "sizes"}, 4),
])
def test_a_loops_body_costs_as_often_as_it_runs(changes, executions):
    """Mutations: once whatever the trips; a trip count trusted although a condition may end the loop."""
    text = LOOP % {"trips": "3", "on": "1", "count": "trips", "go": "on", "keep": "c", **changes}
    graph = describe(parser.parse_model(text))
    product = next(row for row in graph.nodes.to_pylist() if row["op_type"] == "MatMul")
    each, moved = 2 * 2 * 4 * 4, 4 * (8 + 16 + 8)
    assert (product["executions"], product["flops_each"], product["bytes_each"]) == (executions, each, moved)
    if executions is None:
        assert product["flops"] is product["bytes"] is None and "inside a loop" in product["why_no_cost"]
        assert graph.meta["total_flops"] == 0 and graph.meta["unknown_trips"] == 2
    else:
        assert (product["flops"], product["bytes"]) == (executions * each, executions * moved)
        assert graph.meta["total_flops"] == executions * each and product["why_no_cost"] is None


SCAN = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] first, float[%s, 2] rows) => (last, all) {
    last, all = Scan <num_scan_inputs = 1, body = b (float[2] state, float[2] row) => (float[2] next, float[2] out) {
        next = Add(state, row)
        out = Identity(next)
    }> (first, rows)
}"""


@pytest.mark.parametrize(("length", "executions"), [("5", 5), ("N", None)])
def test_a_scans_body_runs_once_per_slice(length, executions):
    graph = describe(parser.parse_model(SCAN % length))
    add = next(row for row in graph.nodes.to_pylist() if row["op_type"] == "Add")
    assert add["executions"] == executions and add["flops_each"] == 2
    assert add["flops"] == (None if executions is None else 10)


def test_executions_are_those_that_onnxruntime_makes(tmp_path):
    """Nested: a Loop in a Loop, and a branch; counted in ONNX Runtime's own profile."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (y)
    <int64 three = {3}, int64 four = {4}, bool on = {1}> {
        y = Loop <body = outer (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity(c)
            t = Loop <body = inner (int64 j, bool e, float[2] u) => (bool f, float[2] v) {
                f = Identity(e)
                v = If (e) <then_branch = yes () => (float[2] a) { a = Sin(u) }, else_branch = no () => (float[2] b) {
                    b = Cos(u) }>
            }> (four, c, s)
        }> (three, on, x)
    }"""
    model = parser.parse_model(text)
    known = {row["op_type"]: row["executions"] for row in describe(model).nodes.to_pylist()}
    assert known["Sin"] == known["If"] == 12 and known["Loop"] in (1, 3)
    onnx.save(model, tmp_path / "nested.onnx")
    path, _ = models.profile(tmp_path / "nested.onnx", {"x": np.zeros(2, np.float32)}, runs=1)
    ran = Counter(event["args"]["op_name"] for event in json.loads(path.read_text())
                  if event["name"].endswith("_kernel_time"))
    assert ran["Sin"] == 12 and "Cos" not in ran


def test_local_functions_are_written_out():
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    g (float[2, 4] x, float[4, 4] w) => (y) { h = local.layer(x, w) y = local.layer(h, w) }
    <domain: "local", opset_import: ["" : 18]> layer (a, b) => (c) { m = MatMul(a, b) c = Relu(m) }"""
    model = parser.parse_model(text)
    graph = describe(model)
    assert graph.meta["op_counts"] == {"MatMul": 2, "Relu": 2} and graph.meta["total_flops"] == 2 * (64 + 8)
    assert [node.op_type for node in inline(model).graph.node] == graph.nodes["op_type"].to_pylist()
    assert inline(graphs.bert()).graph.name == "g"


# The tables


def test_tables_conform():
    model = graphs.gpt2()
    graph = describe(model, bind=binding(model))
    assert graph.nodes.schema.equals(GRAPH_NODES.schema) and graph.edges.schema.equals(GRAPH_EDGES.schema)
    assert graph.nodes["node_id"].to_pylist() == list(range(len(model.graph.node)))
    for name in ("provider", "partition", "executed_as", "fate"):
        assert graph.nodes[name].null_count == graph.nodes.num_rows
    json.dumps(graph.meta, allow_nan=False)
    meta = graph.meta
    assert meta["opset_imports"] == {"": 20} and meta["ir_version"] == 8 and meta["node_count"] == 72
    assert meta["inputs"][0] == {"name": "input_ids", "dtype": "int64", "shape": [2, 8]}
    assert meta["total_flops"] == sum(graph.nodes["flops"].to_pylist())


def test_an_empty_graph_has_empty_tables():
    graph = describe(helper.make_model(helper.make_graph([], "nothing", [], [])))
    assert graph.nodes.num_rows == graph.edges.num_rows == graph.meta["total_flops"] == 0


def test_unnamed_nodes_get_their_operator_and_id():
    graph = describe(parsed("g (float[4] x) => (z) { y = Relu(x) z = Exp(y) }"))
    assert graph.nodes["name"].to_pylist() == ["Relu_0", "Exp_1"]


def test_attributes_are_json():
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.arange(3, dtype=np.float32)))
    big = helper.make_node("Constant", [], ["l"], value=numpy_helper.from_array(np.zeros(900, np.float32)))
    odd = helper.make_node("Odd", ["k", "l"], ["m"], domain="custom", f=0.1, i=3, s="text", fs=[1.5, float("inf")],
                           ss=["a", "b"])
    graph = helper.make_graph([constant, big, odd], "g", [], [onnx.ValueInfoProto(name="m")])
    table = describe(helper.make_model(graph)).nodes
    first, second, third = (json.loads(text) for text in table["attributes"].to_pylist())
    assert first == {"value": {"dtype": "float32", "shape": [3], "values": [0, 1, 2]}}
    assert second == {"value": {"dtype": "float32", "shape": [900]}}
    assert third == {"f": 0.1, "i": 3, "s": "text", "fs": [1.5, "inf"], "ss": ["a", "b"]}


def test_a_tensor_used_twice_is_one_edge_read_once():
    graph = describe(parsed("g (float[4] x) => (z) { z = Mul(x, x) }"))
    assert graph.edges.num_rows == 2 and graph.meta["total_bytes"] == 32


def test_the_model_is_left_as_it_was():
    model = graphs.control_flow()
    before = model.SerializeToString(deterministic=True)
    describe(model, bind=binding(model))
    assert model.SerializeToString(deterministic=True) == before


def test_four_times_the_nodes_take_about_four_times_as_long():
    def chain(count):
        nodes = [helper.make_node("Relu", [f"x{at}"], [f"x{at + 1}"]) for at in range(count)]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x0", f"x{count}")]
        return helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]))

    small, large = chain(200), chain(800)
    assert describe(large).nodes.num_rows == 800
    assert times_dearer(lambda: describe(small), lambda: describe(large)) < 8  # linear: 4, square: 16
