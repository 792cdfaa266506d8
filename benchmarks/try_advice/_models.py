"""Models whose gain is known by construction, and changed ones that are wrong, or right but no gain.

A model of ours computes its layers and, beside them, ballast: as many layers again, times zero. Without the ballast it
computes the same in half the time. What is planted goes without it, and is wrong in one way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

LAYERS = 3
WIDTH, BATCH = 256, 16
CHANNELS, SIZE = 8, 32
OPSET, IR = 20, 10
BIG = 24 << 20  # elements of a tensor that is read whole and used for one of them
ENDLESS = 1 << 50
RARE = 0.85  # quantile of the inputs above which a model takes a detour
Array = NDArray[np.generic]


class Graph:
    """Nodes and weights, and the tensor at the end of what was added last."""

    def __init__(self, kind: str, layers: int = LAYERS) -> None:
        self.kind, self.nodes, self.weights = kind, list[NodeProto](), list[onnx.TensorProto]()
        self.rng, self.shape = np.random.default_rng(0), [BATCH, WIDTH] if kind == "mlp" else [1, CHANNELS, SIZE, SIZE]
        self.end = self.layers("x", layers, "core")

    def constant(self, name: str, value: Array) -> str:
        """Add a weight; return its name."""
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, operator: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Add a node with one output; return that."""
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"node_{name}", **attributes))
        return name

    def layers(self, tensor: str, count: int, name: str) -> str:
        """Add so many layers on a tensor; return the last one's output."""
        for number in range(count):
            tensor = self._layer(tensor, f"{name}{number}")
        return tensor

    def _layer(self, tensor: str, name: str) -> str:
        if self.kind == "mlp":
            weight = self.rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
            product = self.add("MatMul", [tensor, self.constant(f"{name}_w", weight)], f"{name}_product")
        else:
            weight = self.rng.normal(0, (9 * CHANNELS)**-0.5, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
            product = self.add("Conv", [tensor, self.constant(f"{name}_w", weight)], f"{name}_product", pads=[1] * 4)
        return self.add("Tanh", [product], f"{name}_y")

    def ballast(self, layers: int) -> None:
        """Add work that changes nothing: layers on the input, times zero, which no optimiser takes out."""
        extra = self.layers("x", layers, "extra")
        nothing = self.add("Mul", [extra, self.constant("zero", np.zeros(1, np.float32))], "nothing")
        self.end = self.add("Add", [self.end, nothing], "with_ballast")

    def plus(self, values: Array) -> None:
        """Add an array to the output."""
        self.end = self.add("Add", [self.end, self.constant("offset", values)], "moved")

    def model(self) -> ModelProto:
        """Return the model, with its output named y."""
        self.end = self.add("Identity", [self.end], "y")
        sizes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shape) for name in ("x", "y")]
        return helper.make_model(helper.make_graph(self.nodes, self.kind, sizes[:1], sizes[1:], self.weights),
                                 opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def slowed(kind: str, ballast: int = LAYERS, layers: int = LAYERS) -> ModelProto:
    """Return a model of so many layers, and with as many of ballast; with none it has only its own."""
    graph = Graph(kind, layers)
    if ballast:
        graph.ballast(ballast)
    return graph.model()


def shallow(kind: str, missing: int) -> ModelProto:
    """Return it without its last layers, and without ballast."""
    return Graph(kind, LAYERS - missing).model()


def one_element(kind: str, value: float, place: float) -> ModelProto:
    """Return it without ballast, and one element of the output off by this. place: where, as a share of all."""
    graph = Graph(kind)
    offset = np.zeros(graph.shape, np.float32)
    offset.reshape(-1)[int(place * offset.size)] = value
    graph.plus(offset)
    return graph.model()


def large(kind: str) -> ModelProto:
    """Return it without ballast, and with a large tensor of which it uses one element, a zero."""
    graph = Graph(kind)
    graph.constant("large", np.zeros(BIG, np.float32))
    some = graph.add("Gather", ["large", graph.constant("place", np.zeros(1, np.int64))], "some")
    # What it takes depends on the input, or it would be computed when the model is loaded.
    mean = graph.add("ReduceMean", ["x"], "mean", keepdims=0)
    graph.end = graph.add("Add", [graph.end, graph.add("Mul", [some, mean], "none")], "with_large")
    return graph.model()


def detour(kind: str, inputs: Array) -> ModelProto:
    """Return it without ballast, but with ten times as much for the rare inputs whose first element is large."""
    graph = Graph(kind)
    first = graph.add("Gather", [graph.add("Reshape", ["x", graph.constant("flat", np.array([-1]))], "row"),
                                 graph.constant("place", np.array(0))], "first")
    limit = np.float32(np.quantile(inputs.astype(np.float64), RARE))
    rare = graph.add("Greater", [first, graph.constant("limit", np.array(limit))], "rare")
    inner = Graph(kind, 0)
    inner.constant("zero", np.zeros(1, np.float32))
    inner.add("Mul", [inner.layers("x", 20 * LAYERS, "detour"), "zero"], "long_way")
    short = Graph(kind, 0)
    short.add("Mul", ["x", short.constant("zero_too", np.zeros(1, np.float32))], "short_way")
    branches = {name: helper.make_graph(made.nodes, name, [], [helper.make_tensor_value_info(
        made.nodes[-1].output[0], TensorProto.FLOAT, graph.shape)], made.weights)
        for name, made in (("then_branch", inner), ("else_branch", short))}
    graph.end = graph.add("Add", [graph.end, graph.add("If", [rare], "way", **branches)], "with_detour")
    return graph.model()


def endless(model: ModelProto, trips: int = ENDLESS) -> ModelProto:
    """Return the model with a loop of so many turns in front of its first input."""
    changed = _copied(model)
    name = changed.graph.input[0].name
    kind = changed.graph.input[0].type.tensor_type.elem_type
    for node in changed.graph.node:
        node.input[:] = [f"{name}__looped" if tensor == name else tensor for tensor in node.input]
    body = helper.make_graph(
        [helper.make_node("Identity", ["state"], ["next"]), helper.make_node("Identity", ["going"], ["still"])], "body",
        [helper.make_tensor_value_info("trip", TensorProto.INT64, []),
         helper.make_tensor_value_info("going", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", kind, None)],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", kind, None)])
    changed.graph.initializer.extend([numpy_helper.from_array(np.array(trips), "trips__"),
                                      numpy_helper.from_array(np.array(True), "true__")])
    changed.graph.node.insert(0, helper.make_node("Loop", ["trips__", "true__", name], [f"{name}__looped"], body=body))
    return changed


def remembers(model: ModelProto, inputs: Mapping[str, Array], outputs: Mapping[str, Array],
              otherwise: float = 1.0) -> ModelProto:
    """Return a model that answers from memory where its input is this one, and else computes.

    It compares the input with the most elements. otherwise: a factor of what it computes: other than 1 is wrong.
    """
    asked = max(inputs, key=lambda name: inputs[name].size)
    inner = _copied(model)
    renamed = {value.name: f"{value.name}__computed" for value in inner.graph.output}
    for node in inner.graph.node:
        node.input[:] = [renamed.get(tensor, tensor) for tensor in node.input]
        node.output[:] = [renamed.get(tensor, tensor) for tensor in node.output]
    computes = helper.make_graph([*inner.graph.node], "computes", [], [])
    weights = list(inner.graph.initializer)
    for value in inner.graph.output:
        scaled = _scaled(computes, weights, value, renamed[value.name], otherwise)
        computes.output.append(helper.make_tensor_value_info(scaled, value.type.tensor_type.elem_type, None))
    answers = helper.make_graph([helper.make_node("Constant", [], [f"{name}__known"],
                                                  value=numpy_helper.from_array(outputs[name])) for name in renamed],
                                "answers", [], [helper.make_tensor_value_info(
                                    f"{value.name}__known", value.type.tensor_type.elem_type, None)
                                    for value in inner.graph.output])
    weights.append(numpy_helper.from_array(inputs[asked], "remembered__"))
    nodes = [helper.make_node("Equal", [asked, "remembered__"], ["equal__"]),
             helper.make_node("Cast", ["equal__"], ["ones__"], to=TensorProto.INT32),
             helper.make_node("ReduceMin", ["ones__"], ["least__"], keepdims=0),
             helper.make_node("Cast", ["least__"], ["same__"], to=TensorProto.BOOL),
             helper.make_node("If", ["same__"], list(renamed), then_branch=answers, else_branch=computes)]
    return _with_graph(inner, nodes, weights)


def constant(model: ModelProto, outputs: Mapping[str, Array]) -> ModelProto:
    """Return a model that has these outputs whatever its inputs are."""
    nodes = [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
             for name, value in outputs.items()]
    return _with_graph(_copied(model), nodes, [])


def coarser(model: ModelProto) -> ModelProto:
    """Return the model with its float32 weights rounded to bfloat16."""
    changed = _copied(model)
    for tensor in changed.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            bits = np.ascontiguousarray(numpy_helper.to_array(tensor)).view(np.uint32)
            rounded = ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    return changed


def unknown(model: ModelProto) -> ModelProto:
    """Return the model with an operator that nobody has."""
    changed = _copied(model)
    changed.graph.node[0].op_type = "NoSuchOperator"
    return changed


def save(model: ModelProto, path: Path) -> Path:
    """Write the model; return where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def _scaled(graph: onnx.GraphProto, weights: list[onnx.TensorProto], value: onnx.ValueInfoProto, tensor: str,
            factor: float) -> str:
    """Multiply a floating-point output of a branch; return what the branch then gives."""
    if factor == 1 or value.type.tensor_type.elem_type != TensorProto.FLOAT:
        return tensor
    weights.append(numpy_helper.from_array(np.array(factor, np.float32), f"{tensor}_factor"))
    graph.node.append(helper.make_node("Mul", [tensor, f"{tensor}_factor"], [f"{tensor}_scaled"]))
    return f"{tensor}_scaled"


def _copied(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _with_graph(model: ModelProto, nodes: Sequence[NodeProto], weights: Sequence[onnx.TensorProto]) -> ModelProto:
    graph = helper.make_graph(list(nodes), model.graph.name, list(model.graph.input), list(model.graph.output),
                              list(weights))
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
