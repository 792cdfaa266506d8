"""Fourier transforms and complex numbers of PyTorch: rows of the operator table.

A complex transform of n numbers counts 5 n log2(n), one of real numbers half of that, as benchmarks of transforms do
(www.fftw.org/speed/method.html); its scale is not counted. Source: native_functions.yaml of PyTorch.
"""

from __future__ import annotations

import math

from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape, nothing
from aaco.analytics.costs.torch.arguments import OperatorArguments, broadcast, form, known, promoted
from aaco.analytics.costs.torch.model import Model, Row
from aaco.analytics.costs.torch.pointwise import per_element

COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
REAL = {whole: part for part, whole in COMPLEX.items()}


def to_complex(args: OperatorArguments) -> OperatorCall:
    """_fft_c2c (input, axes, ...)."""
    operand, axes = args.tensor(0), args.numbers(1)
    return form((operand,), operand, points=_points(known(operand), axes))


def from_real(args: OperatorArguments) -> OperatorCall:
    """_fft_r2c (input, axes, scale, whether one side is enough): of the last axis then half and one more."""
    operand, axes = args.tensor(0), args.numbers(1)
    shape = list(known(operand))
    if args.flag(3):
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    return form((operand,), TensorType(_found(COMPLEX, operand), tuple(shape)), points=_points(known(operand), axes))


def to_real(args: OperatorArguments) -> OperatorCall:
    """_fft_c2r (input, axes, scale, size of the last axis)."""
    operand, axes = args.tensor(0), args.numbers(1)
    shape = list(known(operand))
    shape[axes[-1]] = args.integer(3)
    return form((operand,), TensorType(_found(REAL, operand), tuple(shape)), points=_points(shape, axes))


def complex_flops(call: OperatorCall) -> int:
    """5 n log2(n) per transform."""
    return round(5 * call.made() * math.log2(max(1, call.number("points"))))


def real_flops(call: OperatorCall) -> int:
    """Half of what as many complex numbers take; the real side has them all."""
    numbers = max(call.made(), call.count()) if call.inputs[0] and call.inputs[0].dtype in COMPLEX else call.made()
    return round(2.5 * numbers * math.log2(max(1, call.number("points"))))


def joined(operations: int, args: OperatorArguments) -> OperatorCall:
    """complex (real, imaginary), polar (absolute, angle)."""
    parts = args.tensor(0), args.tensor(1)
    whole = TensorType(_found(COMPLEX, TensorType(promoted(*parts), ())), broadcast(*parts))
    return form(parts, whole, operations=operations)


def _found(types: dict[str, str], tensor: TensorType) -> str:
    if tensor.dtype not in types:
        raise UnknownShape("element type of the result")
    return types[tensor.dtype]


def _points(shape: tuple[int, ...] | list[int], axes: list[int]) -> int:
    """Return how many numbers one transform over these axes has."""
    return math.prod(shape[axis] for axis in axes)


ROWS: tuple[Row, ...] = (
    (Model("Fourier transform", "reduction", to_complex, complex_flops), "aten::_fft_c2c"),
    (Model("Fourier transform", "reduction", from_real, real_flops), "aten::_fft_r2c"),
    (Model("Fourier transform", "reduction", to_real, real_flops), "aten::_fft_c2r"),
    (Model("complex numbers", "elementwise", lambda args: joined(0, args), nothing), "aten::complex"),
    (Model("complex numbers", "elementwise", lambda args: joined(4, args), per_element), "aten::polar"),
)
