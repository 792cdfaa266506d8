"""The lowering against numbers: what it says an executed node computes is cut out of the original, run and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType

from aaco.analytics.graph import lowering
from aaco.analytics.graph.graph import describe, inline
from aaco.analytics.graph.lowering import Lowering, lower
from tests import graphs, lowering_oracle
from tests.growth import times_dearer
from tests.lowering_oracle import ALL, EXTENDED, OFF, Oracle, numbered_nodes, optimised, random_feeds, stripped, unnamed

SIZES = {"N": 2, "B": 2, "S": 3, "total": 5, "past_len": 2, "present_len": 5}
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet": graphs.resnet, "gpt2": graphs.gpt2, "bert": graphs.bert, "bert_tanh": lambda: graphs.bert(gelu="tanh"),
    "bert_attention": lambda: graphs.bert(opset=12), "mobilenet": graphs.mobilenet, "shapes": graphs.shapes,
    "control_flow": graphs.control_flow, "dissolved": graphs.dissolved, "channels_last": graphs.channels_last,
    "exported": graphs.exported, "local_functions": graphs.local_functions, "half_precision": graphs.half_precision,
}
# Original nodes and their fates; executed nodes that the runtime put in, besides those that change a layout: of these
# there are as many as the width of the CPU's vectors asks for (four of the resnet with AVX-512, one with AVX2).
LAYOUTS = ("ReorderInput", "ReorderOutput")
EXPECTED = {
    "resnet": ({"fused": 37, "kept": 4}, 0),
    "gpt2": ({"kept": 58, "fused": 13, "eliminated": 1}, 0),
    "bert": ({"kept": 49, "fused": 69}, 0),
    "bert_attention": ({"kept": 10, "fused": 107, "eliminated": 1}, 1),
    "shapes": ({"kept": 10, "eliminated": 18}, 0),
    "control_flow": ({"kept": 10, "fused": 10}, 0),
}


def dumps(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    return [optimised(model, EXTENDED), optimised(model, ALL)]


def computed_by(lowered: Lowering, original: onnx.ModelProto) -> dict[str, list[str]]:
    """Executed node -> names of the original nodes it computes."""
    names = [proto.name for _, proto in numbered_nodes(original.graph)]
    return {row["name"]: [names[node] for node in row["source_nodes"]] for row in lowered.executed.to_pylist()}


def reasons(lowered: Lowering, original: onnx.ModelProto) -> dict[str, str | None]:
    names = [proto.name for _, proto in numbered_nodes(original.graph)]
    return {name: why for name, why in zip(names, lowered.why, strict=True) if why}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("names", ["named", "unnamed"])
def test_the_claimed_nodes_give_the_numbers_of_the_executed_graph(name: str, names: str) -> None:
    original = inline(MODELS[name]() if names == "named" else unnamed(MODELS[name]()))
    feeds = random_feeds(original, SIZES)
    for stages in ([optimised(original, OFF)], dumps(original)[:1], dumps(original)):
        lowered = lower(stripped(original), [stripped(stage) for stage in stages])
        assert Oracle(original, stages[-1], lowered, feeds).problems() == []


@pytest.mark.parametrize("names", [lambda model: model, unnamed], ids=["named", "unnamed"])
@pytest.mark.parametrize("activations", [QuantType.QInt8, QuantType.QUInt8], ids=["int8", "uint8"])
def test_a_quantised_model(names: Callable[[onnx.ModelProto], onnx.ModelProto], activations: QuantType,
                           tmp_path: Path) -> None:
    original = names(graphs.quantised(tmp_path, activations))
    stages = dumps(original)
    lowered = lower(original, stages)
    assert Oracle(original, stages[-1], lowered, random_feeds(original, {})).problems() == []
    convolution = next(row for row in lowered.executed.to_pylist() if row["op_type"] == "QLinearConv")
    kinds = Counter(original.graph.node[node].op_type for node in convolution["source_nodes"])
    assert kinds == {"DequantizeLinear": 3, "Conv": 1, "QuantizeLinear": 1}


@pytest.mark.parametrize("name", EXPECTED)
def test_how_many_nodes_are_kept_fused_eliminated_and_inserted(name: str) -> None:
    original = MODELS[name]()
    stages = dumps(original)
    lowered = lower(original, stages)
    fates, inserted = EXPECTED[name]
    layouts = sum(node.op_type in LAYOUTS for node in stages[-1].graph.node)
    assert layouts or name != "resnet"
    assert Counter(lowered.fate) == fates
    assert lowered.executed["origin"].to_pylist().count("inserted") == inserted + layouts


@pytest.mark.parametrize("name", MODELS)
def test_node_ids_are_those_of_the_described_graph(name: str) -> None:
    original = MODELS[name]()
    assert len(lower(original, [optimised(original, OFF)]).fate) == describe(original).nodes.num_rows


def test_a_residual_fused_into_the_blocked_convolution() -> None:
    original = graphs.resnet()
    computed = computed_by(lower(original, dumps(original)), original)
    assert computed["layer1.0.down/BN_out_nchwc"] == [
        "layer1.0.down/Conv", "layer1.0.down/BN", "layer1.0/Add", "layer1.0/Relu"]
    assert computed["layer1.0.c/BN_out_nchwc"] == ["layer1.0.c/Conv", "layer1.0.c/BN"]


def test_every_convolution_of_resnet50_runs_once_and_the_map_is_made_in_time() -> None:
    """The real topology with its 53 convolutions, at a sixteenth of the width; the time grows with the nodes only."""
    original, small = (graphs.resnet(blocks, width=4, image=32) for blocks in ((3, 4, 6, 3), (1, 1, 1, 1)))
    stages, fewer = dumps(original), dumps(small)
    lowered = lower(original, stages)
    kinds = [proto.op_type for proto in original.graph.node]
    convolutions = [sum(kinds[node] == "Conv" for node in row["source_nodes"])
                    for row in lowered.executed.to_pylist() if row["op_type"] == "Conv"]
    assert (len(kinds), convolutions, lowered.fate.count("eliminated")) == (175, [1] * 53, 0)
    growth = len(kinds) / len(small.graph.node)
    assert times_dearer(lambda: lower(small, fewer), lambda: lower(original, stages)) < 2 * growth < growth**2


@pytest.mark.parametrize(("name", "folded"), [("resnet50", 239), ("squeezenet", 39), ("shufflenet", 243)])
def test_the_light_models_of_the_onnx_package(name: str, folded: int) -> None:
    """Their weights are computed from initializers that IR version 3 lists as inputs: all of that is folded."""
    original = onnx.load(Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx")
    stages = dumps(original)
    oracle = Oracle(original, stages[-1], lower(stripped(original), [stripped(stage) for stage in stages]), {})
    assert [*oracle.conservation(), *oracle.products()] == []
    assert oracle.lowering.why.count("constant_folded") == folded


def test_why_nodes_are_eliminated() -> None:
    original = graphs.shapes()
    why = reasons(lower(original, dumps(original)), original)
    assert (why["same"], why["relu1"], why["c/Mul"], why["d0/Shape"], why["shape/Concat"]) == (
        "identity", "duplicate", "constant_folded", "constant_folded", "constant_folded")
    assert "relu2" not in why and "dead" not in why  # ONNX Runtime runs a node that no one reads


def test_what_repeats_once_a_neutral_operator_is_gone_is_a_duplicate() -> None:
    b = graphs.Builder()
    divided = b.op("Div", [b.op("Relu", ["input"], "relu"), b.const("one", np.float32(1))], "divide")
    pools = [b.op("MaxPool", [x], f"pool{x}", kernel_shape=[3, 3], pads=[1] * 4) for x in ("relu_out", divided)]
    b.rename(b.op("Conv", [b.op("Concat", pools, "cat", axis=1), b.weight("w", 4, 8, 1, 1)], "conv"), "output")
    shape = (graphs.FLOAT, [1, 4, 6, 6])
    original = b.model({"input": shape}, {"output": shape})
    why = reasons(lower(original, dumps(original)), original)
    assert sorted(why.values(), key=str) == ["duplicate", "identity"] and why["divide"] == "identity"


def test_what_only_lent_its_shape_is_dead() -> None:
    b = graphs.Builder()
    size = b.op("Shape", [b.op("Exp", ["input"], "exp")], "shape")
    b.rename(b.op("Reshape", [b.op("Relu", ["input"], "relu"), size], "reshape"), "output")
    original = b.model({"input": (graphs.FLOAT, [2, 8])}, {"output": (graphs.FLOAT, [2, 8])})
    assert reasons(lower(original, dumps(original)), original) == {"exp": "dead", "shape": "constant_folded"}


def test_transposes_that_are_moved_away_are_eliminated_not_fused() -> None:
    original = graphs.channels_last()
    lowered = lower(original, dumps(original))
    moved = {"c1/out", "c2/in", "c2/out", "c3/in", "c3/out", "t1"}
    assert reasons(lowered, original) == dict.fromkeys(moved, "layout")
    assert computed_by(lowered, original)["bias_token_2_nchwc"] == ["c2/Conv", "mul", "bias", "add"]


def test_transposes_that_cancel_out_are_eliminated() -> None:
    b = graphs.Builder()
    x = b.op("Transpose", [b.op("Transpose", ["input"], "there", perm=[2, 0, 1])], "back", perm=[1, 2, 0])
    b.rename(b.op("Relu", [x], "relu"), "output")
    original = b.model({"input": (graphs.FLOAT, [2, 3, 4])}, {"output": (graphs.FLOAT, [2, 3, 4])})
    assert reasons(lower(original, dumps(original)), original) == {"there": "layout", "back": "layout"}


def test_a_node_moved_before_the_transpose_it_was_behind_keeps_its_executed_node() -> None:
    b = graphs.Builder()
    y = b.op("Mul", [x := b.op("Transpose", ["input"], "there", perm=[0, 2, 3, 1]), x], "square")
    b.rename(b.op("Transpose", [y], "back", perm=[0, 3, 1, 2]), "first")
    b.rename(b.op("MatMul", [y, b.weight("w", 4, 4)], "product"), "second")
    original = b.model({"input": (graphs.FLOAT, [1, 4, 6, 6])},
                       {"first": (graphs.FLOAT, [1, 4, 6, 6]), "second": (graphs.FLOAT, [1, 6, 6, 4])})
    lowered = lower(original, dumps(original))
    rows = [row for row in lowered.executed.to_pylist() if row["op_type"] == "Mul"]
    assert [1 in row["source_nodes"] for row in rows] == [True]
    assert lowered.fate[1] != "eliminated"


def test_copies_of_a_dequantising_node_claim_nothing() -> None:
    b = graphs.Builder()
    grid = [b.const("scale", np.float32(0.05)), b.const("zero", np.uint8(128))]
    x = "input"
    for i in range(2):
        x = b.op("DequantizeLinear", [b.op("QuantizeLinear", [x, *grid], f"q{i}"), *grid], f"d{i}")
    b.rename(b.op("Exp", [x], "exp"), "first")
    b.rename(b.op("Add", [x, "input"], "add"), "second")
    shape = (graphs.FLOAT, [1, 4, 6, 6])
    original = b.model({"input": shape}, {"first": shape, "second": shape})
    stages = dumps(original)
    lowered = lower(original, stages)
    assert Oracle(original, stages[-1], lowered, random_feeds(original, {})).problems() == []
    copies = [row["source_nodes"] for row in lowered.executed.to_pylist() if "/duplicated" in row["name"]]
    assert copies and not any(copies)


def test_a_transpose_shared_by_two_fused_products_is_claimed_once_by_the_first() -> None:
    b = graphs.Builder()
    turned = b.op("Transpose", ["k"], "turn", perm=[1, 0])
    b.rename(b.op("MatMul", ["q", turned], "first"), "one")
    b.rename(b.op("MatMul", ["r", turned], "second"), "two")
    inputs = {name: (graphs.FLOAT, [4, 8]) for name in "qrk"}
    original = b.model(inputs, {name: (graphs.FLOAT, [4, 4]) for name in ("one", "two")})
    lowered = lower(original, dumps(original))
    names = lowered.executed["op_type"].to_pylist()
    assert (names, sorted(map(len, lowered.executed["source_nodes"].to_pylist()))) == (["FusedMatMul"] * 2, [1, 2])
    assert lowered.executed["source_nodes"].to_pylist()[0][0] == 0


def test_an_if_on_a_constant_leaves_its_branch_and_its_dead_twin() -> None:
    original = graphs.dissolved()
    lowered = lower(original, dumps(original))
    why = reasons(lowered, original)
    assert {why[f"if{i}"] for i in range(3)} == {"constant_folded"}
    assert (why["else0/MatMul"], why["then1"], why["else2/act"], why["then2"]) == ("dead", "dead", "dead", "identity")
    assert ["else1/MatMul", "else1/Add", "else1/act"] in computed_by(lowered, original).values()


def test_executed_nodes_keep_the_runtime_s_order_and_names() -> None:
    original = unnamed(graphs.mobilenet())
    stage = optimised(original, OFF)
    table = lower(original, [stage]).executed
    assert table["executed_id"].to_pylist() == list(range(len(stage.graph.node)))
    assert table["op_type"].to_pylist() == [proto.op_type for proto in stage.graph.node]
    # no name that ONNX Runtime could give another node in its profile: it counts otherwise
    assert table["name"].to_pylist()[:2] == ["(executed node 0: Conv)", "(executed node 1: BatchNormalization)"]
    assert table["provider"].null_count == table.num_rows


def test_a_node_that_nothing_explains_is_shown_as_unmatched() -> None:
    """A runtime that computes something else under names of its own: no claim is made up."""
    info = helper.make_tensor_value_info
    given, made = [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, [2])]
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Sqrt", ["e"], ["y"])]
    original = helper.make_model(helper.make_graph(nodes, "g", given, made))
    other = helper.make_graph([helper.make_node("Mystery", ["x"], ["z"], domain="vendor")], "g", given, made)
    lowered = lower(original, [helper.make_model(other)])
    assert (lowered.fate, lowered.why) == (["eliminated"] * 2, ["unmatched"] * 2)
    assert lowered.executed["origin"].to_pylist() == ["inserted"]


def test_without_stages_the_original_is_what_is_executed() -> None:
    original = graphs.control_flow()
    lowered = lower(original, [])
    assert set(lowered.fate) == {"kept"}
    assert lowered.executed["source_nodes"].to_pylist() == [[node] for node in range(len(lowered.fate))]


def test_the_oracle_itself_objects_to_a_wrong_map() -> None:
    """Break the right answer in three ways; each must be seen."""
    original = graphs.resnet()
    stages = dumps(original)
    right = lower(original, stages)
    claims = right.executed["source_nodes"].to_pylist()
    one, two = [row for row, claim in enumerate(claims) if len(claim) > 1][:2]
    lost, swapped, handed_on = ({one: claims[one][:-1]}, {one: claims[two], two: claims[one]},
                                {one: claims[one][:-1], two: sorted(claims[two] + claims[one][-1:])})
    for change in (lost, swapped, handed_on):
        broken = [change.get(row, claim) for row, claim in enumerate(claims)]
        position = right.executed.schema.get_field_index("source_nodes")
        table = right.executed.set_column(position, "source_nodes", [broken])
        wrong = Lowering(table, right.executed_as, right.fate, right.why)
        assert Oracle(original, stages[-1], wrong, random_feeds(original, SIZES)).problems()


def test_nothing_here_runs_a_model() -> None:
    assert "onnxruntime" not in vars(lowering) and lowering_oracle.ort is not None
