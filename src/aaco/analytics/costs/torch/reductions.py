"""Reductions, scans, sorts and selections of PyTorch in the terms of `operators.elementwise`.

Source: native_functions.yaml of PyTorch. A reduction over all elements of n takes n - 1 operations, a mean n.
"""

from __future__ import annotations

from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, form, known

SELECTION = "how often a selection looks at the values depends on them"


def reduced(axes: int | None = 1, keep: int = 2, dtype: int | None = 3, as_type: str = "") -> Form:
    """A reduction (input, axes, whether they stay, type); without axes over everything.

    as_type: the result's type where the operator fixes it.
    """
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        shape = known(operand)
        has_axes = axes is not None and axes < len(args) and not args.has(axes)
        over = _axes(args.numbers(axes, range(len(shape))), shape) if has_axes and axes is not None else set(
            range(len(shape)))
        kept = has_axes and args.flag(keep)
        sizes = tuple(1 if axis in over else size for axis, size in enumerate(shape) if kept or axis not in over)
        kind = as_type or (operand.dtype if dtype is None else args.dtype(dtype, operand.dtype))
        return form((operand,), TensorType(kind, sizes))

    return made


def extremum(args: OperatorArguments) -> OperatorCall:
    """max, min (input) over everything, (input, other) element by element, (input, axis, stays) with its place."""
    if args.has(1):
        raise UnknownShape("an element-wise form")
    call = reduced(dtype=None)(args)
    if len(args) < 2 or not args.value(1):
        return call
    return form(call.inputs, *(TensorType(kind, call.result()) for kind in (args.tensor(0).dtype, "int64")))


def scan(args: OperatorArguments) -> OperatorCall:
    """cumsum, cumprod (input, axis, type): whole numbers are added as int64."""
    operand = args.tensor(0)
    whole = operand.dtype == "bool" or "int" in operand.dtype
    return form((operand,), TensorType(args.dtype(2, "int64" if whole else operand.dtype), operand.shape))


def moments(outputs: int) -> Form:
    """var, std (1), var_mean, std_mean (2) (input, axes, correction, stays)."""
    def made(args: OperatorArguments) -> OperatorCall:
        call = reduced(keep=3, dtype=None)(args)
        return form(call.inputs, *([TensorType(args.tensor(0).dtype, call.result())] * outputs))

    return made


def extremes(args: OperatorArguments) -> OperatorCall:
    """aminmax (input, axis, whether it stays): the smallest and the largest, along the axis or of all."""
    call = reduced(dtype=None)(args)
    return form(call.inputs, *(TensorType(args.tensor(0).dtype, call.result()) for _ in range(2)))


def chosen(axis: int) -> Form:
    """median, mode (1), kthvalue (2) (input, ..., axis, whether it stays): the value and its place along the axis;
    without an axis a median of all."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        if axis == 1 and len(args) < 2:
            return form((operand,), TensorType(operand.dtype, ()))
        shape, at = list(known(operand)), args.integer(axis, -1)
        if shape:
            shape[at:at % len(shape) + 1] = [1] * args.flag(axis + 1)
        return form((operand,), *(TensorType(kind, tuple(shape)) for kind in (operand.dtype, "int64")))

    return made


def running(args: OperatorArguments) -> OperatorCall:
    """cummax, cummin (input, axis): the values and their places."""
    operand = args.tensor(0)
    return form((operand,), operand, TensorType("int64", operand.shape))


def per_gradient(call: OperatorCall) -> int:
    """Backward of a pool: an operation per element of the gradient (input 0)."""
    return call.count()


def sort(args: OperatorArguments) -> OperatorCall:
    """sort, argsort (input, axis, ...): the values and their places; (input, stable, axis) where the second is a flag.
    """
    operand = args.tensor(0)
    axis = args.integer(2 if args.value(1) in ("True", "False") else 1, -1)
    return form((operand,), operand, TensorType("int64", operand.shape), axis=axis)


def sort_flops(call: OperatorCall) -> int:
    """log2(n) comparisons per element, n along the axis that is sorted."""
    shape = call.shape()
    length = shape[call.number("axis")] if shape else 1
    return call.count() * max(0, length - 1).bit_length()


def top_k(args: OperatorArguments) -> OperatorCall:
    """topk (input, k, axis, ...)."""
    operand, axis = args.tensor(0), args.integer(2, -1)
    shape = list(known(operand))
    shape[axis] = args.integer(1)
    made = tuple(shape)
    return form((operand,), TensorType(operand.dtype, made), TensorType("int64", made), axis=axis)


def expert_choice(args: OperatorArguments) -> OperatorCall:
    """topk_softmax of vLLM (weights, ids, indices of tokens, scores): softmax over the experts, then the k best."""
    weights, ids, rows, scores = (args.tensor(index) for index in range(4))
    return form((scores,), weights, ids, rows, axis=-1)


def _axes(axes: list[int], shape: tuple[int, ...]) -> set[int]:
    if any(not -len(shape) <= axis < max(len(shape), 1) for axis in axes):
        raise UnknownShape("an axis that the input does not have")
    return {axis % max(len(shape), 1) for axis in axes} if axes else set(range(len(shape)))


# (form, operations per element in and out, names), as ONNX's reductions count them.
TABLE: tuple[tuple[Form, tuple[int, int], str], ...] = (
    (reduced(), (1, -1), "aten::sum aten::prod aten::nansum"),
    (reduced(), (1, 0), "aten::mean"),
    (reduced(dtype=None), (1, -1), "aten::amax aten::amin"),
    (extremum, (1, -1), "aten::max aten::min"),
    (reduced(dtype=None, as_type="bool"), (1, -1), "aten::any aten::all"),
    (reduced(dtype=None, as_type="int64"), (1, -1), "aten::argmax aten::argmin"),
    (extremes, (2, -2), "aten::aminmax"),
    (reduced(dtype=None), (2, 0), "aten::logsumexp"),
    (reduced(2, 3, 4), (2, 0), "aten::norm aten::linalg_vector_norm"),
    (moments(1), (3, 1), "aten::var aten::std"),
    (moments(2), (3, 1), "aten::var_mean aten::std_mean"),
)
