"""Models of the zoo changed so that they show one thing: half precision, fixed shapes, a node that no GPU runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aaco.runner.zoo.builder import IR_VERSION, OPSET

WIDTH = 64  # of the matrices of `with_host_node`


def half(source: Path, target: Path) -> Path:
    """The model with weights, inputs and outputs in float16. Raises ValueError for types that stand in its nodes."""
    model = onnx.load(source)
    typed = [node.name for node in model.graph.node
             if node.op_type == "Cast" or any(one.HasField("t") for one in node.attribute)]
    if typed:
        raise ValueError(f"{source}: {typed[0]} has a type of its own")
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name))
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return _checked(model, target)


def fixed(source: Path, target: Path, sizes: Mapping[str, int]) -> Path:
    """The model with sizes in place of the names of its dimensions. Raises KeyError for one that has none."""
    model = onnx.load(source)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_value = sizes[dimension.dim_param]
    return _checked(model, target)


def with_host_node(target: Path, width: int = WIDTH) -> Path:
    """Products on the device, the determinants of their result, which the CPU provider alone has, and products again.

    One input `x` [batch, width, width], one output `y` of that shape.
    """
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(random.normal(0, width**-0.5, (width, width)).astype(np.float32), name)
               for name in ("w0", "w1")]
    weights.append(numpy_helper.from_array(np.array([1, 2]), "axes"))
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["m0"], name="before/MatMul"),
             helper.make_node("Relu", ["m0"], ["r0"], name="before/Relu"),
             helper.make_node("Det", ["r0"], ["det"], name="middle/Det"),
             helper.make_node("Tanh", ["det"], ["small"], name="after/Tanh"),
             helper.make_node("Unsqueeze", ["small", "axes"], ["wide"], name="after/Unsqueeze"),
             helper.make_node("Mul", ["r0", "wide"], ["scaled"], name="after/Mul"),
             helper.make_node("MatMul", ["scaled", "w1"], ["m1"], name="after/MatMul"),
             helper.make_node("Relu", ["m1"], ["y"], name="after/Relu")]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width, width])] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "host_node", *ends, weights)
    return _checked(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION),
                    target)


def _checked(model: onnx.ModelProto, target: Path) -> Path:
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, target)
    return target
