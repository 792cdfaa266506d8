"""A small vocabulary for building ONNX graphs whose weights are drawn from a seed only when the file is written.

Opset 17 is the oldest with LayerNormalization, so every provider reads these files. Compositions that exporters also
write out (Gelu, RMSNorm, attention) stay written out, so that the runtime's graph optimiser has its usual work to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
import onnx
from msgspec import Struct, field
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8  # the IR of ONNX 1.12, which introduced opset 17
FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
# The lowest finite float16: hides a position from a softmax, and stays finite when the model is converted to float16.
HIDDEN = -65504.0
Size = int | str


class Weight(Struct, frozen=True):
    """A float32 tensor and the normal law it is drawn from; `std` 0 makes it constant."""

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def draw(self, seed: int) -> NDArray[np.float32]:
        """Return the values: they depend on the seed and this weight's name, not on the weights around it."""
        if not self.std:
            return np.full(self.shape, self.mean, np.float32)
        values = np.random.default_rng([seed, *self.name.encode()]).standard_normal(self.shape, dtype=np.float32)
        values *= np.float32(self.std)
        values += np.float32(self.mean)
        return values


class GraphBuilder(Struct):
    """A graph under construction. Tensors are named by strings; each method returns the tensor it adds."""

    name: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def input(self, name: str, shape: Sequence[Size], dtype: int = FLOAT) -> str:
        """Declare a model input; a string in the shape is a dynamic dimension."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape: Sequence[Size], dtype: int = FLOAT) -> None:
        """Declare the tensor `name` a model output."""
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def weight(self, name: str, *shape: int, std: float, mean: float = 0.0) -> str:
        """Add a weight drawn from N(mean, std**2)."""
        self.weights.append(Weight(name, shape, std, mean))
        return name

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add a small constant kept with the graph; the same name twice is the same constant."""
        self.constants[name] = numpy_helper.from_array(values, name)
        return name

    def ints(self, *values: int) -> str:
        """Add a vector of int64: axes, shapes, bounds."""
        return self.constant("ints/" + "_".join(map(str, values)), np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a float32 scalar."""
        return self.constant(f"number/{value:.9g}", np.array(value, np.float32))

    def integer(self, value: int) -> str:
        """Add an int64 scalar."""
        return self.constant(f"integer/{value}", np.array(value, np.int64))

    def op(self, kind: str, *inputs: str, name: str, out: str = "", **attributes: Any) -> str:
        """Add a node called `name`; its output is called `out`, or after the node."""
        out = out or f"{name}_output"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=name, **attributes))
        return out

    def split(self, x: str, parts: int, name: str, axis: int = -1) -> list[str]:
        """Cut a tensor into equal parts along an axis."""
        outs = [f"{name}_output_{index}" for index in range(parts)]
        self.nodes.append(helper.make_node("Split", [x], outs, name=name, axis=axis))
        return outs

    def linear(self, x: str, width: int, out_width: int, name: str, bias: bool = True, out: str = "") -> str:
        """Add x @ W (+ b), with W scaled so that the output has the variance of the input."""
        weight = self.weight(f"{name}.weight", width, out_width, std=width**-0.5)
        if not bias:
            return self.op("MatMul", x, weight, name=f"{name}/MatMul", out=out)
        product = self.op("MatMul", x, weight, name=f"{name}/MatMul")
        return self.op("Add", product, self.weight(f"{name}.bias", out_width, std=0.02), name=f"{name}/Add", out=out)

    def layer_norm(self, x: str, width: int, name: str, epsilon: float, out: str = "") -> str:
        """Add LayerNormalization over the last axis."""
        scale = self.weight(f"{name}.weight", width, std=0.02, mean=1.0)
        bias = self.weight(f"{name}.bias", width, std=0.02)
        return self.op("LayerNormalization", x, scale, bias, name=f"{name}/LayerNormalization", out=out, axis=-1,
                       epsilon=epsilon)

    def skeleton(self, metadata: Mapping[str, str], weights_as_inputs: bool = False) -> onnx.ModelProto:
        """Return the model without its weights, or with each weight declared as an input so that it can be checked."""
        declared = [helper.make_tensor_value_info(weight.name, FLOAT, weight.shape) for weight in self.weights]
        inputs = self.inputs + (declared if weights_as_inputs else [])
        graph = helper.make_graph(self.nodes, self.name, inputs, self.outputs, list(self.constants.values()))
        model = helper.make_model(graph, producer_name="aaco", ir_version=IR_VERSION,
                                  opset_imports=[helper.make_opsetid("", OPSET)])
        helper.set_model_props(model, dict(metadata))
        return model


def write(graph: GraphBuilder, seed: int, metadata: Mapping[str, str], file: IO[bytes]) -> None:
    """Write the model, drawing one weight at a time, so that memory holds the largest weight and not the model.

    A serialised message is its fields one after the other, in any order, each with its length in front
    (protobuf.dev/programming-guides/encoding): the graph is written last, its weights last within it.
    """
    model = graph.skeleton(metadata)
    body = model.graph.SerializeToString()
    heads = [_tensor_head(weight) for weight in graph.weights]
    sizes = [len(head) + 4 * weight.size for head, weight in zip(heads, graph.weights, strict=True)]
    tags = [_length_prefix(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, size) for size in sizes]
    model.ClearField("graph")
    file.write(model.SerializeToString())
    file.write(_length_prefix(onnx.ModelProto.GRAPH_FIELD_NUMBER, len(body) + sum(map(len, tags)) + sum(sizes)))
    file.write(body)
    for tag, head, weight in zip(tags, heads, graph.weights, strict=True):
        file.write(tag + head)
        file.write(weight.draw(seed).astype("<f4", copy=False).data)


def _tensor_head(weight: Weight) -> bytes:
    """Return a TensorProto up to its raw bytes."""
    head: bytes = TensorProto(name=weight.name, dims=weight.shape, data_type=FLOAT).SerializeToString()
    return head + _length_prefix(TensorProto.RAW_DATA_FIELD_NUMBER, 4 * weight.size)


def _length_prefix(field_number: int, length: int) -> bytes:
    """Return tag (wire type 2, length-delimited) and length of a protobuf field."""
    return _encode_varint(field_number << 3 | 2) + _encode_varint(length)


def _encode_varint(value: int) -> bytes:
    """Return seven bits a byte, low bits first, the top bit set on all but the last."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])
