"""The models that faults are planted in, and those plants that change the model itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aaco.runner.zoo import builder
from aaco.runner.zoo.attention import attend, heads, merge
from aaco.runner.zoo.builder import GraphBuilder
from aaco.runner.zoo.mobilenet import mobilenet_v2
from aaco.runner.zoo.resnet import classifier, convolution

SEED = 0


def mlp(width: int = 1536, layers: int = 8) -> GraphBuilder:
    """Linear layers with Relu over few rows: 75 MB of weights are read for little arithmetic."""
    graph = GraphBuilder("mlp")
    x = graph.input("x", ["batch", 4, width])
    for layer in range(layers):
        x = graph.op("Relu", graph.linear(x, width, width, f"layer{layer}"), name=f"layer{layer}/Relu")
    graph.op("ReduceMean", x, name="pool/ReduceMean", out="y", axes=[1], keepdims=0)
    graph.output("y", ["batch", width])
    return graph


def convnet(width: int = 64, blocks: int = 6) -> GraphBuilder:
    """Convolutions with normalisation and Relu at one resolution."""
    graph = GraphBuilder("convnet")
    x, channels = graph.input("x", ["batch", 3, 56, 56]), 3
    for block in range(blocks):
        x = graph.op("Relu", convolution(graph, x, (channels, width), 3, f"block{block}"), name=f"block{block}/Relu")
        channels = width
    classifier(graph, x, width)
    return graph


def transformer(width: int = 256, layers: int = 4, count: int = 8) -> GraphBuilder:
    """Encoder layers with the Gelu written out: many small operators that the runtime fuses."""
    graph = GraphBuilder("transformer")
    x = graph.input("x", ["batch", 64, width])
    zero = graph.number(0.0)
    for layer in range(layers):
        name = f"layer{layer}"
        q, k, v = (heads(graph, graph.linear(x, width, width, f"{name}.{part}"), count, width // count,
                         f"{name}.{part}") for part in "qkv")
        mixed = merge(graph, attend(graph, q, k, v, zero, width // count, f"{name}.attend"), count, width // count,
                      f"{name}.merge")
        x = graph.layer_norm(graph.op("Add", x, graph.linear(mixed, width, width, f"{name}.out"), name=f"{name}/Add"),
                             width, f"{name}.norm", 1e-5)
        hidden = graph.linear(x, width, 4 * width, f"{name}.up")
        erf = graph.op("Erf", graph.op("Div", hidden, graph.number(2**0.5), name=f"{name}/Div"), name=f"{name}/Erf")
        wide = graph.op("Mul", hidden, graph.op("Add", erf, graph.number(1.0), name=f"{name}/Add_1"),
                        name=f"{name}/Mul")
        wide = graph.op("Mul", wide, graph.number(0.5), name=f"{name}/Mul_half")
        x = graph.layer_norm(graph.op("Add", x, graph.linear(wide, 4 * width, width, f"{name}.down"),
                                      name=f"{name}/Add_2"), width, f"{name}.norm2", 1e-5)
    graph.op("ReduceMean", x, name="pool/ReduceMean", out="y", axes=[1], keepdims=0)
    graph.output("y", ["batch", width])
    return graph


MODELS: dict[str, Callable[[], GraphBuilder]] = {"mlp": mlp, "convnet": convnet, "transformer": transformer,
                                                 "mobilenet": mobilenet_v2}
BATCHES = {"mlp": 4, "convnet": 4, "transformer": 4, "mobilenet": 1}


def build(name: str, folder: Path) -> Path:
    """The model's file, written the first time."""
    path = folder / f"{name}.onnx"
    if not path.is_file():
        with path.open("wb") as file:
            builder.write(MODELS[name](), SEED, {}, file)
    return path


def inputs(model: onnx.ModelProto, batch: int) -> dict[str, np.ndarray]:
    """A seeded tensor for the model's input, of its element type."""
    value = model.graph.input[0]
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    shape = [dim.dim_value or batch for dim in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(SEED).standard_normal(shape).astype(kind)}


def with_extra_nodes(model: onnx.ModelProto, every: int, pairs: int) -> onnx.ModelProto:
    """After the first output of each `every`-th node that has a float tensor, pairs of negations: they change nothing,
    and no optimiser takes them out."""
    graph = model.graph
    last = {output.name for output in graph.output}
    kept = list(graph.node)
    del graph.node[:]
    renamed: dict[str, str] = {}
    for index, node in enumerate(kept):
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        graph.node.append(node)
        if node.op_type not in ("Conv", "MatMul", "Gemm", "Relu", "Clip", "Add", "LayerNormalization", "Softmax"):
            continue
        out = node.output[0]
        if index % every or out in last:
            continue
        x = out
        for pair in range(2 * pairs):
            graph.node.append(helper.make_node("Neg", [x], [f"{out}/neg{pair}"], name=f"{node.name}/Neg{pair}"))
            x = f"{out}/neg{pair}"
        renamed[out] = x
    return model


def with_precision(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """Every float32 tensor of the model in another element type."""
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model
