"""The words of the cost model: tensor types, a call of an operator, and the traffic most operators share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

_WIDTH = re.compile(r"\d+")

# The families of kernels and of graph operators: the one vocabulary of both.
FAMILIES = {
    "gemm": "products of matrices and vectors, mixtures of experts",
    "conv": "convolutions and what serves them: transforms, im2col",
    "attention": "attention and its parts",
    "elementwise": "each output element from its own few inputs, activations among them",
    "reduction": "sums, means, extremes, scans; partial sums of a split product",
    "softmax": "softmax and log-softmax",
    "norm": "layer, batch, group, instance and RMS norms, fused with an addition or quantisation or not",
    "copy": "data moved as they are, or to another type: concatenation, padding, slices",
    "transpose": "data moved into another order",
    "embedding": "rows read or written by index: gather, scatter, caches of keys and values",
    "pooling": "windows: pooled or resampled",
    "sort": "order and choice: sort, top-k, routing to experts, unique, nonzero",
    "collective": "communication between devices",
    "fill": "values that depend on no input: constants, ranges, random numbers",
    "quantize": "to and from integers and scaled small floats",
    "recurrent": "recurrent layers and state-space scans",
    "control": "graph operators that run other graphs; no kernel is",
    "unknown": "the name does not tell",
}


class UnknownShape(ValueError):
    """A shape, element type or value that the cost depends on is not known."""


class TensorType(Struct, frozen=True):
    """Element type by its numpy or ONNX name ("float32", "int4", "float8e4m3fn"; empty when unknown) and shape.

    `shape` is None when the rank is unknown; a dimension is None when its size is.
    """

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def elements(self) -> int | None:
        """Return how many elements, or None when a dimension is unknown."""
        sizes = [size for size in self.shape or () if size is not None]
        return None if self.shape is None or len(sizes) < len(self.shape) else math.prod(sizes)

    @property
    def bits(self) -> int | None:
        """Return the bits per element (a bool takes a byte); None for strings and unknown types."""
        width = _WIDTH.search(self.dtype)
        return 8 if self.dtype == "bool" else int(width[0]) if width else None

    @property
    def bytes(self) -> int | None:
        """Return the size in bytes, sub-byte types packed; None when shape or element type is unknown."""
        elements, bits = self.elements, self.bits
        return None if elements is None or bits is None else -(-elements * bits // 8)


class Cost(Struct, frozen=True):
    """Work of one execution: floating-point (or integer) operations, and compulsory memory traffic in bytes."""

    flops: int
    bytes: int


class OperatorCall(Struct, frozen=True):
    """One node as the formulas see it. Every accessor raises UnknownShape where the answer is not known.

    `repeated` holds the positions of inputs that are the same tensor as an earlier input. `part` is what is written of
    outputs that stay as they were elsewhere.
    """

    attributes: Mapping[str, Any]
    inputs: Sequence[TensorType | None]
    outputs: Sequence[TensorType | None]
    repeated: frozenset[int] = frozenset()
    part: TensorType | None = None

    def has(self, index: int) -> bool:
        """Return whether this optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def number(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute, or its default; an operator that needs it has no cost without it."""
        value = self.attributes.get(name, default)
        if value is None:
            raise UnknownShape(f"attribute {name}")
        return int(value)

    def scaled(self, name: str) -> bool:
        """Return whether the factor of this name (alpha, beta) is not 1."""
        return bool(self.attributes.get(name, 1.0) != 1)

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an input."""
        return _shape(self.inputs, index)

    def count(self, index: int = 0) -> int:
        """Return the elements of an input."""
        return math.prod(_shape(self.inputs, index))

    def size(self, index: int = 0) -> int:
        """Return the bytes of an input."""
        return _bytes(self.inputs[index])

    def result(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output."""
        return _shape(self.outputs, index)

    def made(self) -> int:
        """Return the elements of the first output."""
        return math.prod(_shape(self.outputs, 0))

    def read(self, skip: int | None = None) -> int:
        """Return the bytes of the distinct inputs, without the one at `skip`."""
        return sum(_bytes(tensor) for index, tensor in enumerate(self.inputs)
                   if index != skip and index not in self.repeated)

    def written(self) -> int:
        """Return the bytes of the outputs, as far as they are written."""
        return sum(map(_bytes, [self.part] if self.part else self.outputs))


Formula = Callable[[OperatorCall], int]


class CostRule(Struct, frozen=True):
    """How an operator is classed and counted; `flops` is None where only the family is known."""

    family: str
    flops: Formula | None
    traffic: Formula


def everything(call: OperatorCall) -> int:
    """Return the bytes of each distinct input and each output, once."""
    return call.read() + call.written()


def nothing(call: OperatorCall) -> int:
    """Return 0: a view of its input, or a container with a body that is counted by itself."""
    return 0


def output_only(call: OperatorCall) -> int:
    """Return the bytes of the output; of the inputs at most the shape is read."""
    return call.written()


def first_only(call: OperatorCall) -> int:
    """Return the bytes of the first input and the outputs; the others only give their type."""
    return call.size() + call.written()


def selected(call: OperatorCall) -> int:
    """Return the bytes of the first input up to as many elements as the output, and of all other inputs and outputs.

    Right both for operators that pick (Gather, Slice) and for those that repeat (Expand, Tile).
    """
    return reading(call, call.made())


def reading(call: OperatorCall, elements: int) -> int:
    """Return the bytes of the first input up to so many elements, and of all other inputs and outputs."""
    data = call.inputs[0]
    if data is None or data.bits is None:
        raise UnknownShape("element type")
    return -(-min(call.count(), elements) * data.bits // 8) + call.read(skip=0) + call.written()


def _shape(tensors: Sequence[TensorType | None], index: int) -> tuple[int, ...]:
    tensor = tensors[index] if index < len(tensors) else None
    sizes = tuple(size for size in (tensor and tensor.shape) or () if size is not None)
    if tensor is None or tensor.shape is None or len(sizes) < len(tensor.shape):
        raise UnknownShape(f"shape of operand {index}")
    return sizes


def _bytes(tensor: TensorType | None) -> int:
    if tensor is None:
        return 0
    if tensor.bytes is None:
        raise UnknownShape("size of an operand")
    return tensor.bytes
