"""The arguments of a framework operator as PyTorch's profiler records them, and the types they imply for its result.

The profiler writes the shape, the element type and, of what is no tensor, the value of each argument in the order of
the operator's schema (github.com/pytorch/pytorch, torch/csrc/profiler and aten/src/ATen/native/native_functions.yaml);
it never writes the result. An argument that is not given has no type. Results follow PyTorch's rules of broadcasting
and of type promotion (pytorch.org/docs, "Tensor Attributes").
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape

PACKED_FOUR_BITS = "c10::Float4_e2m1fn_x2"  # two numbers in a byte
# Element types as C++ spells them, without their spaces, by the names used here.
TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool",
    "signedchar": "int8", "char": "int8", "unsignedchar": "uint8", "short": "int16", "shortint": "int16",
    "int": "int32", "long": "int64", "longint": "int64", "longlong": "int64", "unsignedshort": "uint16",
    "shortunsignedint": "uint16", "unsignedint": "uint32", "unsignedlong": "uint64", "longunsignedint": "uint64",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
    "c10::Float8_e4m3fn": "float8e4m3fn", "c10::Float8_e5m2": "float8e5m2", "c10::Float8_e4m3fnuz": "float8e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8e5m2fnuz", "c10::Float8_e8m0fnu": "float8e8m0",
    PACKED_FOUR_BITS: "uint8",
    "c10::qint8": "int8", "c10::quint8": "uint8", "c10::qint32": "int32",
}
# c10::ScalarType by its number, as an argument `dtype` is recorded.
SCALAR_TYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
                9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8e5m2", 24: "float8e4m3fn",
                25: "float8e5m2fnuz", 26: "float8e4m3fnuz"}
LISTS = ("TensorList", "GenericList")
MOST_ELEMENTS = 1 << 53  # of a tensor; larger ones are no tensors
LONGEST = 100_000  # characters of a recorded value
NO_SIZES = "a shape is no list of sizes"
NOT_RECORDED = "the capture has no shapes of its arguments"
NO_VALUES = "the capture has no values of its arguments"


class OperatorArguments(Struct, frozen=True):
    """One recorded call: a shape, a type and a value per argument. Accessors raise UnknownShape where that is open.

    Types are without spaces, as `recorded` makes them.

    values is None where the profiler did not record them (before PyTorch 2.1).
    """

    shapes: Sequence[Any]
    types: Sequence[str]
    values: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.types)

    def has(self, index: int) -> bool:
        """Return whether a tensor is given there."""
        return index < len(self) and self.types[index] in TYPES

    def tensor(self, index: int) -> TensorType:
        """Return the tensor at this position."""
        if not self.has(index):
            raise UnknownShape(f"argument {index} is no tensor of a known type")
        return _tensor(self.shapes[index], self.types[index])

    def optional(self, index: int) -> TensorType | None:
        """Return the tensor at this position, or None if none is given."""
        return self.tensor(index) if self.has(index) else None

    def listed(self, index: int) -> bool:
        """Return whether a list of tensors is given there."""
        return index < len(self) and self.types[index].startswith(LISTS)

    def tensors(self, index: int) -> list[TensorType]:
        """Return a list of tensors; the profiler does not record their types."""
        if not self.listed(index):
            raise UnknownShape(f"argument {index} is no list of tensors")
        if not isinstance(self.shapes[index], Sequence) or isinstance(self.shapes[index], str):
            raise UnknownShape(f"shapes of argument {index}")
        return [TensorType("", _sizes(shape)) for shape in self.shapes[index]]

    def value(self, index: int) -> str:
        """Return what was recorded of an argument that is no tensor; empty where it is not given."""
        if index >= len(self):
            return ""
        if self.values is None:
            raise UnknownShape(NO_VALUES)
        return self.values[index] if index < len(self.values) else ""

    def number(self, index: int, default: float | None = None) -> float:
        """Return a number, or its default where none is given."""
        text = self.value(index)
        if not text and default is not None:
            return default
        try:
            return float({"True": "1", "False": "0"}.get(text, text))
        except ValueError:
            raise UnknownShape(f"value of argument {index}") from None

    def integer(self, index: int, default: int | None = None) -> int:
        """Return a whole number, or its default."""
        number = self.number(index, default)
        if not math.isfinite(number) or number != int(number):
            raise UnknownShape(f"value of argument {index}")
        return int(number)

    def flag(self, index: int, default: bool = False) -> bool:
        """Return a truth value."""
        return bool(self.number(index, default))

    def numbers(self, index: int, default: Sequence[int] | None = None) -> list[int]:
        """Return a list of whole numbers or truth values; a single number is a list of one."""
        text = self.value(index)
        if not text and default is not None:
            return list(default)
        try:
            parsed = json.loads(text.lower()) if len(text) <= LONGEST else None
        except (ValueError, RecursionError):
            parsed = None
        listed: list[Any] = parsed if isinstance(parsed, list) else [parsed]
        if not all(isinstance(item, int) for item in listed):
            raise UnknownShape(f"value of argument {index}")
        return [int(item) for item in listed]

    def dtype(self, index: int, default: str) -> str:
        """Return an element type given by its number, or the default where none is given."""
        if not self.value(index):
            return default
        dtype = SCALAR_TYPES.get(self.integer(index))
        if dtype is None:
            raise UnknownShape(f"element type of number {self.value(index)}")
        return dtype


Form = Callable[[OperatorArguments], OperatorCall]


def recorded(arguments: Mapping[str, Any]) -> OperatorArguments:
    """Return the arguments out of the JSON object that the profiler wrote. Raise UnknownShape if it holds no shapes."""
    shapes, types, values = (arguments.get(name) for name in ("Input Dims", "Input type", "Concrete Inputs"))
    if not isinstance(shapes, list) or not isinstance(types, list) or len(shapes) != len(types):
        raise UnknownShape(NOT_RECORDED)
    if not all(holds_sizes(shape) or (isinstance(shape, list) and all(map(holds_sizes, shape))) for shape in shapes):
        raise UnknownShape(NO_SIZES)
    words = [kind.replace(" ", "") if isinstance(kind, str) else LISTS[1] if isinstance(kind, list) else ""
             for kind in types]
    texts = [value if isinstance(value, str) else "" for value in values] if isinstance(values, list) else None
    return OperatorArguments(shapes, words, texts)


def unpacked(args: OperatorArguments, index: int, axis: int, always: bool = False) -> TensorType:
    """Return a tensor of 4-bit numbers, two to a byte along `axis`, with its true sizes; another as it is.

    always: bytes of any type hold two.
    """
    tensor = args.tensor(index)
    if not always and args.types[index] != PACKED_FOUR_BITS:
        return tensor
    shape = list(known(tensor))
    shape[axis] *= 2
    return TensorType("float4e2m1", tuple(shape))


def form(inputs: Sequence[TensorType | None], *outputs: TensorType, **attributes: Any) -> OperatorCall:
    """Return a call in the terms of the formulas."""
    return OperatorCall(attributes, list(inputs), list(outputs))


def broadcast(*tensors: TensorType) -> tuple[int, ...]:
    """Return the shape that tensors of these shapes are computed in. Raise UnknownShape if they do not fit."""
    sides = [known(tensor)[::-1] for tensor in tensors]
    sizes = []
    for column in zip_longest(*sides, fillvalue=1):
        wide = {size for size in column if size != 1}
        if len(wide) > 1:
            raise UnknownShape("operands that do not broadcast")
        sizes.append(wide.pop() if wide else 1)
    return tuple(reversed(sizes))


def known(tensor: TensorType) -> tuple[int, ...]:
    """Return the known sizes of the tensor's shape. Raise UnknownShape if it has no shape."""
    if tensor.shape is None:
        raise UnknownShape("shape of an operand")
    return tuple(size for size in tensor.shape if size is not None)


def promoted(*tensors: TensorType) -> str:
    """Return the type in which tensors of these types are combined: those without dimensions only raise the category.
    """
    best = ""
    for dimensioned in (True, False):
        for tensor in tensors:
            if bool(tensor.shape) == dimensioned:
                best = _wider(best, tensor.dtype, always=dimensioned)
    return best


def _wider(first: str, second: str, always: bool) -> str:
    mine, its = _category(first), _category(second)
    if mine != its or not always:
        return second if its > mine else first
    if {first, second} == {"float16", "bfloat16"}:
        return "float32"
    return max(first, second, key=lambda name: TensorType(name, ()).bits or 0)


def _category(dtype: str) -> int:
    """Return the rank of a type's category: nothing, truth values, integers, floating point, complex."""
    order = ("bool", "int", "float", "complex")
    plain = dtype.removeprefix("u").replace("bfloat", "float")
    return next((rank for rank, word in enumerate(order, 1) if plain.startswith(word)), 0)


def _tensor(shape: Any, kind: str) -> TensorType:
    return TensorType(TYPES[kind], _sizes(shape))


def _sizes(shape: Any) -> tuple[int, ...]:
    if not holds_sizes(shape):
        raise UnknownShape(NO_SIZES)
    return tuple(shape)


def holds_sizes(shape: Any) -> bool:
    """Return whether these are sizes of a tensor's axes; no tensor has MOST_ELEMENTS."""
    return (isinstance(shape, Sequence) and all(isinstance(size, int) and size >= 0 for size in shape)
            and math.prod(shape) < MOST_ELEMENTS)
