"""Placement on real OpenVINO recordings (compiled subgraphs), and on small made-up assignments for the rest."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco.analytics.graph import placement
from aaco.analytics.graph.lowering import Lowering
from aaco.core.config import Analysis
from aaco.core.tables import EXECUTED_NODES, KERNELS
from aaco.steps import analyze, explain
from tests import captured

OPENVINO, CPU, CUDA = "OpenVINOExecutionProvider", "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    root = tmp_path_factory.mktemp("openvino")
    sessions = {model: captured.session(f"ort_openvino_cpu/{model}", root)
                for model in ("mixed", "bert-tiny")}
    return {model: explain.explain(session, Analysis(), analyze.recompute(session))
            for model, session in sessions.items()}


def test_a_compiled_model_is_one_kernel_that_serves_every_node(explained):
    explanation = explained["bert-tiny"]
    only, = explanation.tables["executed_nodes"].to_pylist()
    nodes = explanation.tables["graph_nodes"].to_pylist()
    assert only["source_nodes"] == list(range(len(nodes)))
    assert {(row["provider"], row["partition"], row["fate"], row["executed_as"]) for row in nodes} == {
        (OPENVINO, 0, "fused", only["name"])}
    assert explanation.readings["partition_fragmentation"].value == 0
    assert explanation.readings["attributed_pct"].value == 100


def test_two_subgraphs_around_a_cpu_node(explained):
    """The Det is not OpenVINO's; the subgraphs before and after it hold what stands there in the source."""
    explanation = explained["mixed"]
    names = [row["name"] for row in explanation.tables["graph_nodes"].to_pylist()]
    before, odd, after = explanation.tables["executed_nodes"].to_pylist()
    assert [names[node] for node in before["source_nodes"]] == ["matmul0", "add0", "relu0", "matmul1", "add1", "relu1"]
    assert (odd["name"], odd["op_type"], odd["provider"], odd["source_nodes"]) == ("odd", "Det", CPU, [6])
    assert [names[node] for node in after["source_nodes"]] == [
        "scale", "matmul2", "add2", "relu2", "matmul3", "add3", "relu3"]
    assert before["provider"] == after["provider"] == OPENVINO
    partition = explanation.tables["graph_nodes"]["partition"].to_pylist()
    assert partition == [0] * 6 + [1] + [2] * 7
    assert explanation.readings["ep_transitions"].value == 2


def test_time_of_a_subgraph_is_shared_by_modelled_work(explained):
    """A 64x64 product is 2 x 64^3 of the FLOPs around it; the shares say they are modelled, and sum to the kernel."""
    explanation = explained["mixed"]
    shares = explanation.tables["op_to_kernel_map"].to_pylist()
    kernels = {row["kernel_id"]: row for row in explanation.tables["kernels"].to_pylist()}
    for kernel_id, kernel in kernels.items():
        mine = [row for row in shares if row["kernel_id"] == kernel_id]
        assert sum(row["share_ns"] for row in mine) == kernel["dur_ns"]
        assert {row["method"] for row in mine} == {"exact_symbol" if kernel["kernel_name"] == "Det" else "modelled"}
    first = [row for row in shares if row["kernel_id"] == 0]
    flops = np.array([2 * 64**3, 64**2, 64**2, 2 * 64**3, 64**2, 64**2])
    np.testing.assert_allclose([row["share_ns"] for row in first], kernels[0]["dur_ns"] * flops / flops.sum(), atol=1)


def test_the_bundle_says_why_the_executed_graph_is_not_there(explained):
    for name in ("model/optimized_extended.onnx", "model/optimized_all.onnx"):
        assert explained["mixed"].absent[name].startswith(f"{OPENVINO} compiles subgraphs")


def test_kernel_times_are_those_of_the_file(explained):
    for model, explanation in explained.items():
        events = captured.nodes_of(f"ort_openvino_cpu/{model}")
        assert pc.sum(explanation.tables["kernels"]["dur_ns"]).as_py() == 1000 * sum(event["dur"] for event in events)
        assert set(explanation.tables["kernels"]["timed"].to_pylist()) == {"execution"}


# Made-up cases: `offered` is a chain of operators named a, b, c ..., one source node each.


def offered(operators, names=None):
    names = names or [chr(ord("a") + node) for node in range(len(operators))]
    table = EXECUTED_NODES.build(
        executed_id=list(range(len(names))), name=names, op_type=list(operators), domain=[""] * len(names),
        origin=["original"] * len(names), source_nodes=[[node] for node in range(len(names))])
    return Lowering(table, list(names), ["kept"] * len(names), [None] * len(names))


def parts(*pairs):
    return [{"provider": provider, "nodes": list(nodes)} for provider, nodes in pairs]


def ran(*rows):
    return {name: (operator, provider) for name, operator, provider in rows}


def test_subgraphs_go_by_number_whichever_ran_first():
    assignment = parts((OPENVINO, "ab"), (OPENVINO, "cd"), (CPU, "e"))
    found = placement.of_subgraphs(offered("ABCDE"), assignment, ran(
        (f"{OPENVINO}_g_1", "g", OPENVINO), ("e", "E", CPU), (f"{OPENVINO}_f_0", "f", OPENVINO)))
    assert found.executed_as == [f"{OPENVINO}_f_0"] * 2 + [f"{OPENVINO}_g_1"] * 2 + ["e"]
    assert found.executed["source_nodes"].to_pylist() == [[2, 3], [4], [0, 1]]
    assert found.partition == [0, 0, 1, 1, 2]


def test_a_subgraph_that_never_ran_shifts_no_other():
    assignment = parts((OPENVINO, "ab"), (OPENVINO, "cd"))
    found = placement.of_subgraphs(offered("ABCD"), assignment, ran((f"{OPENVINO}_g_1", "g", OPENVINO)))
    assert found.executed_as == [None, None, f"{OPENVINO}_g_1", f"{OPENVINO}_g_1"]
    assert found.fate == [None, None, "fused", "fused"]
    assert found.provider == [OPENVINO] * 4


@pytest.mark.parametrize("name", [f"{OPENVINO}_g_7", f"{OPENVINO}_g", "g_0", f"{CUDA}_g_0"])
def test_a_name_that_points_at_no_part_claims_nothing(name):
    found = placement.of_subgraphs(offered("AB"), parts((OPENVINO, "ab")), ran((name, "g", OPENVINO)))
    assert found.executed_as == [None, None]
    assert found.executed["source_nodes"].to_pylist() == [[]]
    assert found.executed["origin"].to_pylist() == [None]


def test_a_node_may_be_named_like_a_subgraph():
    name = f"{CPU}_g_0"
    found = placement.of_subgraphs(offered("AB", ["a", name]), parts((CPU, "a"), (CPU, [name])), ran((name, "B", CPU)))
    assert found.executed_as == [None, name]


def test_a_node_optimised_after_the_assignment_is_not_known():
    """Its name may live on in a node that computes more: then the operator is another one."""
    found = placement.of_subgraphs(offered("ABC"), parts((CPU, "a"), (CPU, "b"), (OPENVINO, "c")),
                                   ran(("a", "FusedA", CPU), (f"{OPENVINO}_g_0", "g", OPENVINO)))
    assert found.executed_as == [None, None, f"{OPENVINO}_g_0"]
    assert found.provider == [CPU, CPU, OPENVINO]
    assert found.fate == [None, None, "kept"]


def test_a_subgraph_interrupted_in_graph_order_is_one_partition():
    found = placement.of_names(list("abcde"), parts((OPENVINO, "ace"), (CPU, "b"), (CPU, "d")))
    assert found.partition == [0, 1, 0, 2, 0]


def test_neighbouring_subgraphs_of_one_provider_are_two_partitions():
    assert placement.of_names(list("abcd"), parts((OPENVINO, "ab"), (OPENVINO, "c"), (OPENVINO, "d"))).partition == [
        0, 0, 1, 2]


def test_by_name_alone_nodes_are_placed_where_their_name_lived_on():
    found = placement.of_names(["a", "b", "gone", "c", ""], parts((CUDA, "a"), (CPU, "b"), (CUDA, "c"), (CUDA, [""])))
    assert found.provider == [CUDA, CPU, None, CUDA, None]
    assert found.partition == [0, 1, None, 2, None]
    assert found.executed is None


def test_a_name_on_two_providers_says_nothing():
    assert placement.of_names(["a"], parts((CUDA, "a"), (CPU, "a"))).provider == [None]


def test_what_ran_goes_before_what_was_assigned():
    lowered = offered("ABC")
    found = placement.of_lowered(lowered, parts((CUDA, "a"), (CUDA, "b"), (CPU, "c")), ran(("a", "A", CPU)))
    assert found.provider == [CPU, CUDA, CPU]
    assert found.executed["provider"].to_pylist() == [CPU, CUDA, CPU]
    assert found.partition == [0, 1, 2]


def test_what_the_capture_saw():
    kernels = KERNELS.build(kernel_id=[0, 1, 2, 3], kernel_name=["A", "B", "A", "k"], provider=[CUDA, CPU, CUDA, None],
                            executed_node=["a", "b", "a", None])
    assert placement.seen(kernels) == {"a": ("A", CUDA), "b": ("B", CPU)}
    assert placement.seen(None) == {}


@pytest.mark.parametrize(("ran", "found"), [
    ({"Add_7": "Add", "Mul_9": "Mul", "known": "Add"}, {"(executed node 0: Add)": "Add_7"}),
    ({"Add_7": "Add", "Add_8": "Add", "known": "Add"}, {}),  # one of them is of a graph that was not written
    ({"Add_x": "Add"}, {}), ({"Mul_9": "Mul"}, {}), ({}, {}),
])
def test_a_nameless_node_is_joined_only_where_nothing_else_is_left(ran, found):
    """Two nameless Mul are never joined. Mutation: the first of several."""
    executed = EXECUTED_NODES.build(
        executed_id=[0, 1, 2, 3],
        name=["(executed node 0: Add)", "known", "(executed node 2: Mul)", "(executed node 3: Mul)"],
        op_type=["Add", "Add", "Mul", "Mul"], source_nodes=[[0], [1], [2], [3]])
    lowered = Lowering(executed, executed["name"].to_pylist(), ["kept"] * 4, [None] * 4)
    placed = placement.of_lowered(lowered, [], {name: (operator, CPU) for name, operator in ran.items()})
    expected = [found.get(name, name) for name in executed["name"].to_pylist()]
    assert placed.executed["name"].to_pylist() == placed.executed_as == expected
    assert placed.provider == [CPU if name in ran else None for name in expected]
