"""Nodes without names, or of one name in two bodies: ONNX Runtime's profile numbers them, or throws them together."""

from __future__ import annotations

import gzip
import itertools
import json

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import graphs

WIDTHS = (40, 24, 56, 32, 48)


def products(path, name, weights_outside=False):
    """Products of different widths, so that a node is known by the shape of what it makes; `name` gives the names."""
    random, nodes, weights, tensor = np.random.default_rng(0), [], [], "x"
    for index, (inner, outer) in enumerate(itertools.pairwise(WIDTHS)):
        weights.append(numpy_helper.from_array(random.normal(size=(inner, outer)).astype(np.float32), f"w{index}"))
        nodes += [helper.make_node("MatMul", [tensor, f"w{index}"], [f"m{index}"], name=name(2 * index)),
                  helper.make_node("Tanh", [f"m{index}"], [f"t{index}"], name=name(2 * index + 1))]
        tensor = f"t{index}"
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", width])
            for end, width in (("x", WIDTHS[0]), (tensor, WIDTHS[-1]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, path, save_as_external_data=weights_outside, location="weights.bin", size_threshold=0)
    return path


def table(folder, name):
    return pq.read_table(folder / name).to_pylist()


@pytest.mark.parametrize(("name", "weights_outside"), [
    (lambda index: "", False), (lambda index: "", True), (lambda index: "MatMul_4" if index == 1 else "", False)],
    ids=["none", "weights outside", "a trap"])
def test_the_time_of_every_node_reaches_it(aaco, name, weights_outside):
    """Known by shape, independent of names. Mutation: the model profiled as it is."""
    aaco.inside("run", products(aaco.folder / "m.onnx", name, weights_outside), "--warmup", 1, "--iterations", 3)
    nodes = table(aaco.latest, "model/graph_nodes.parquet")
    kernels = {row["kernel_id"]: row for row in table(aaco.latest, "profiler/rocprof_kernels.parquet")}
    events = [event for event in json.loads(gzip.decompress(
        (aaco.latest / "profiler/raw/ort_profile.json.gz").read_bytes())) if event["name"].endswith("_kernel_time")]
    events.sort(key=lambda event: event["ts"])
    shapes = {number: next(iter(event["args"]["output_type_shape"][0].values())) for number, event in enumerate(events)}
    served = {node["node_id"]: set() for node in nodes}
    for row in table(aaco.latest, "attribution/op_to_kernel_map.parquet"):
        assert row["node_id"] is not None and row["method"] == "exact_symbol"
        assert kernels[row["kernel_id"]]["kernel_name"] == nodes[row["node_id"]]["op_type"]
        served[row["node_id"]].add(tuple(shapes[row["kernel_id"]]))
    made = {node["node_id"]: {tuple(json.loads(node["output_shapes"])[0])} for node in nodes}
    assert served == made
    assert len({node["name"] for node in nodes}) == len(nodes) == 8
    facts = json.loads((aaco.latest / "runtime/ort_config.json").read_text())
    assert facts["profile"]["names_made"] > 0


def rename(graph, name):
    """Give the nodes of a graph, and of each body anew, the names `name` makes of their position."""
    for index, node in enumerate(graph.node):
        node.name = name(index)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, name)


@pytest.mark.parametrize(("make", "name"), [
    (graphs.resnet, ""), (graphs.control_flow, ""), (graphs.control_flow, "n{}"), (graphs.half_precision, ""),
    (graphs.local_functions, "")], ids=["resnet", "bodies", "names per body", "half precision", "functions"])
def test_without_names_as_much_is_traced_as_with_them(aaco, make, name):
    """Bodies, functions, fusions and what the runtime writes out by itself. Mutation: leftovers are not joined."""
    traced = []
    for named in (True, False):
        model = make()
        if not named:
            rename(model.graph, name.format)
        onnx.save(model, aaco.folder / "m.onnx")
        aaco.inside("run", "m.onnx", "--warmup", 1, "--iterations", 2)
        readings = json.loads(aaco.inside("report", "--format", "json").stdout)["readings"]
        kernels = table(aaco.latest, "profiler/rocprof_kernels.parquet")
        executed = {row["name"]: row["origin"] for row in table(aaco.latest, "model/executed_nodes.parquet")}
        loose = [row["executed_node"] for row in kernels if row["executed_node"] not in executed]
        assert not loose, loose
        traced.append((readings["kernel_amplification_ratio"]["value"], sorted(executed.values())))
    assert traced[0] == traced[1]
