"""Operators summed by operator, module, family and partition; and the operators of a graph."""

from typing import get_args

import pyarrow.compute as pc
import pytest

from aaco.analytics import attribution
from aaco.analytics.attribution import rollup
from aaco.analytics.graph.executed_work import executed_work
from aaco.core import tables
from aaco.core.documents import decode, encode
from aaco.core.errors import BadBundle


def row(operator, module, device_ns, kernels=1, calls=1, host_ns=10, why=None, **more):
    return {"operator": operator, "module": module, "device_ns": device_ns, "kernels": kernels, "calls": calls,
            "host_ns": host_ns, "why_unattributed": why} | more


def table(*rows):
    names = {name for one in rows for name in one}
    return tables.OPERATORS.build(operator_id=range(len(rows)),
                                  **{name: [one.get(name) for one in rows] for name in names})


ROWS = table(row("mm", "Model_0/Layer_0/Linear_0", 50), row("mm", "Model_0/Layer_1/Linear_1", 30),
             row("add", "Model_0/Layer_1", 7, family="elementwise"), row("fill", None, 2),
             row(None, "Model_0", 3, calls=None, host_ns=None, why="launched outside any operator"),
             row(None, None, 11, kernels=4, calls=None, host_ns=None, why="lost"))


def parts(by, **more):
    return {part.name: (part.device_ns, part.inside_ns) for part in rollup.rollup(ROWS, by, **more).parts}


def test_by_operator_what_no_operator_launched_is_loose_with_its_reason():
    found = rollup.rollup(ROWS, "operator")
    assert [(part.name, part.device_ns, part.calls, part.host_ns) for part in found.parts] == [
        ("mm", 80, 2, 20), ("add", 7, 1, 10), ("fill", 2, 1, 10)]
    assert [(one.why, one.kernels, one.device_ns) for one in found.loose] == [
        ("lost", 4, 11), ("launched outside any operator", 1, 3)]
    assert (found.total_ns, found.attributed_ns, found.kernels) == (103, 89, 9)


def test_a_module_has_its_own_time_and_that_of_the_modules_inside():
    """Mutation: the time inside counted for the module itself too."""
    assert parts("module", folded=False) == {
        "Model_0": (3, 87), "Model_0/Layer_0": (0, 50), "Model_0/Layer_0/Linear_0": (50, 0),
        "Model_0/Layer_1": (7, 30), "Model_0/Layer_1/Linear_1": (30, 0), rollup.NO_MODULE: (2, 0)}
    assert parts("module") == {"Model": (3, 87), "Model/Layer": (7, 80), "Model/Layer/Linear": (80, 0),
                               rollup.NO_MODULE: (2, 0)}


def test_the_parts_and_the_loose_ones_sum_to_all():
    for by in get_args(rollup.By):
        found = rollup.rollup(ROWS, by)
        assert sum(part.device_ns for part in found.parts) + sum(one.device_ns for one in found.loose) == 103


@pytest.mark.parametrize(("path", "folded"), [
    ("Model_0/Layer_12/Linear_3", "Model/Layer/Linear"), ("model/layers.0/mlp", "model/layers/mlp"),
    ("layer1/layer1.2/Conv2d_3", "layer/layer/Conv2d"), ("0/12", "0/12")])
def test_a_number_is_no_part_of_a_class(path, folded):
    assert rollup.fold(path) == folded


def test_a_summary_comes_back_from_its_document_and_nothing_else_does():
    found = rollup.summary(ROWS, 2)
    assert decode(encode(found), rollup.OperatorSummary) == found
    assert [len(each) for each in (found.operators, found.modules)] == [2, 2]
    with pytest.raises(BadBundle, match=r"attribution\.json"):
        decode({"kernels": []}, rollup.OperatorSummary)


NODES = tables.GRAPH_NODES.build(
    node_id=[0, 1, 2, 3], name=["/m/layers.0/MatMul", "/m/layers.1/MatMul", "/m/residual/Add", "Softmax"],
    op_type=["MatMul", "MatMul", "Add", "Softmax"], flops_each=[8, 8, 2, None], bytes_each=[4, 4, 4, 4],
    input_shapes=["[[2]]"] * 4, category=["gemm", "gemm", "elementwise", "softmax"],
    provider=["CPU"] * 3 + ["CUDA"], partition=[0, 0, 0, 1])
EDGES = tables.GRAPH_EDGES.build(src_node=[None, 1, 2], dst_node=[1, 2, None], tensor=["x", "y", "z"], bytes=[2, 2, 2])
EXECUTED = tables.EXECUTED_NODES.build(executed_id=[0, 1, 2], name=["a", "bc", "d"], source_nodes=[[0], [1, 2], [3]])


def graph_operators(device=None):
    kernels = tables.KERNELS.build(
        kernel_id=range(5), executed_node=["a", "bc", "d", "a", "stranger"], dur_ns=[10, 101, 5, 20, 4],
        device_id=[device] * 5)
    mapped = attribution.map_nodes(kernels, EXECUTED, NODES)
    return kernels, *attribution.of_graph(kernels, mapped, EXECUTED, NODES, executed_work(EXECUTED, NODES, EDGES))


def test_nodes_of_a_graph_are_operators_and_conserve_time():
    kernels, operators, mapped = graph_operators()
    assert pc.sum(operators["device_ns"]).as_py() == pc.sum(kernels["dur_ns"]).as_py() == 140
    assert pc.sum(operators["kernels"]).as_py() == 5
    said = {(one["operator"], one["module"]): one for one in operators.to_pylist()}
    assert {key: (one["calls"], one["device_ns"], one["flops"], one["method"]) for key, one in said.items()} == {
        ("MatMul", "m/layers.0"): (2, 30, 16, "exact_symbol"),
        ("MatMul + Add", "m/layers.1"): (1, 101, 10, "modelled"), ("Softmax", None): (1, 5, None, "exact_symbol"),
        (None, None): (None, 4, None, "unattributed")}
    by_id = {one["operator_id"]: one["operator"] for one in operators.to_pylist()}
    assert [by_id[one] for one in mapped["operator_id"].to_pylist()] == [
        "MatMul", "MatMul + Add", "MatMul + Add", "Softmax", "MatMul", None]
    shares = {part.name: part.device_ns for part in rollup.rollup(operators, "partition").parts}
    assert shares == {"0 CPU": 131, "1 CUDA": 5}


def test_how_often_a_node_ran_is_not_told_by_kernels_of_a_gpu():
    """A node may launch several. Mutation: counted all the same."""
    _, operators, _ = graph_operators(device=0)
    assert operators["calls"].null_count == operators["flops"].null_count == operators.num_rows
