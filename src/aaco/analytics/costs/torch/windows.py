"""Convolutions, pooling and resampling of PyTorch, forward and backward, in the terms of `operators.conv`.

Source: native_functions.yaml of PyTorch; the sizes of results as torch.nn's documentation gives them. The gradient of
a convolution by its input and that by its weight are products of the same elements as the convolution itself, so each
costs as much; that by the bias is a sum of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aaco.analytics.costs import conv
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, form, known


def convolution(stride: int, padding: int, dilation: int, bias: int | None = 2) -> Form:
    """A convolution (input, weight, ...) with the other arguments at these positions."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand, weight = args.tensor(0), args.tensor(1)
        space = _slid(known(operand)[2:], known(weight)[2:], args, stride, padding, dilation)
        added = None if bias is None else args.optional(bias)
        return form((operand, weight, added), TensorType(operand.dtype, (known(operand)[0], known(weight)[0], *space)))

    return made


def convolution_any(args: OperatorArguments) -> OperatorCall:
    """convolution and _convolution, which may be transposed (input, weight, bias, stride, padding, dilation,
    transposed, output padding, groups)."""
    return convolution_transposed(3, 4, 5, 7, 8)(args) if args.flag(6) else convolution(3, 4, 5)(args)


def convolution_transposed(stride: int, padding: int, dilation: int, extra: int, groups: int) -> Form:
    """A transposed convolution (input, weight, ...) with the other arguments at these positions; extra: the output
    padding."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand, weight = args.tensor(0), args.tensor(1)
        space, window = known(operand)[2:], known(weight)[2:]
        places = (stride, padding, dilation, extra)
        axes = zip(space, window, *(_each(args.numbers(place, [fallback]), len(window))
                                    for place, fallback in zip(places, (1, 0, 1, 0), strict=True)), strict=True)
        sizes = tuple((size - 1) * step - 2 * edge + wide * (taps - 1) + more + 1
                      for size, taps, step, edge, wide, more in axes)
        channels = known(weight)[1] * args.integer(groups, 1)
        return form((operand, weight, args.optional(2)),
                    TensorType(operand.dtype, (known(operand)[0], channels, *sizes)), transposed=True)

    return made


def flops(call: OperatorCall) -> int:
    """A convolution or, where the form says so, a transposed one."""
    return conv.conv_transpose(call) if call.attributes.get("transposed") else conv.conv(call)


def convolution_backward(args: OperatorArguments) -> OperatorCall:
    """convolution_backward (gradient, input, weight, sizes of the bias, ..., output mask): the requested gradients."""
    gradient, operand, weight = (args.tensor(index) for index in range(3))
    by_input, by_weight, by_bias = args.numbers(10)
    channels = TensorType(gradient.dtype, (known(gradient)[1],))
    outputs = [made for made, asked in ((operand, by_input), (weight, by_weight), (channels, by_bias)) if asked]
    return form((gradient, operand, weight), *outputs, products=by_input + by_weight, by_bias=by_bias,
                transposed=args.flag(7))


def backward_flops(call: OperatorCall) -> int:
    """As many dot products as forward, once per gradient by an operand; and the sum of the gradient for the bias."""
    slid = call.count(1 if call.attributes["transposed"] else 0)
    summed = call.count(0) - call.shape(0)[1] if call.attributes["by_bias"] else 0
    return 2 * slid * math.prod(call.shape(2)[1:]) * call.number("products") + summed


def pooling(stride: int, padding: int, dilation: int | None, ceil: int, with_indices: bool = False) -> Form:
    """A pool (input, window, ...) with the other arguments at these positions; without a stride it is the window."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        window = _each(args.numbers(1), _axes(args))
        slid = _slid(known(operand)[-len(window):], window, args, stride, padding, dilation, args.flag(ceil), window)
        result = TensorType(operand.dtype, (*known(operand)[:-len(window)], *slid))
        indices = [TensorType("int64", result.shape)] if with_indices else []
        return form((operand,), result, *indices, kernel_shape=window)

    return made


def adaptive(args: OperatorArguments, **attributes: str) -> OperatorCall:
    """adaptive_avg_pool (input, size of the result)."""
    operand, size = args.tensor(0), args.numbers(1)
    return form((operand,), TensorType(operand.dtype, (*known(operand)[:-len(size)], *size)), **attributes)


def adaptive_flops(call: OperatorCall) -> int:
    """An addition per element that a window reads and a division per result, less the first addition of each.

    Window i of m over n elements spans floor(i n / m) to ceil((i + 1) n / m); together they read n + m - gcd(n, m).
    """
    return math.prod(size + made - math.gcd(size, made) for size, made in
                     zip(call.shape(0), call.result(), strict=True))


def pooling_backward(args: OperatorArguments) -> OperatorCall:
    """Backward of a pool (gradient, input, ...): the gradient spread over the input's elements."""
    gradient, operand = args.tensor(0), args.tensor(1)
    return form((gradient, operand), operand)


def resampled(mode: str) -> Form:
    """upsample (input, size of the result, ...) in this mode."""
    return lambda args: adaptive(args, mode=mode)


def _slid(space: tuple[int, ...], window: Sequence[int], args: OperatorArguments, stride: int, padding: int,
          dilation: int | None, ceil: bool = False, step: Sequence[int] = (1,)) -> tuple[int, ...]:
    """The places of a window that slides over space."""
    count = len(space)
    if len(window) != count:
        raise UnknownShape("a window of another rank than its input")
    steps = _each(args.numbers(stride, step) or step, count)
    wide = _each([1] if dilation is None else args.numbers(dilation, [1]), count)
    if (edge := args.value(padding)) in ("valid", "same"):
        return space if edge == "same" else _places(space, window, steps, [0] * count, wide, ceil)
    return _places(space, window, steps, _each(args.numbers(padding, [0]), count), wide, ceil)


def _places(space: Sequence[int], window: Sequence[int], steps: Sequence[int], edges: Sequence[int],
            wide: Sequence[int], ceil: bool) -> tuple[int, ...]:
    made = []
    for size, taps, step, edge, spread in zip(space, window, steps, edges, wide, strict=True):
        room = size + 2 * edge - spread * (taps - 1) - 1
        places = (-(-room // step) if ceil else room // step) + 1
        if ceil and (places - 1) * step >= size + edge:
            places -= 1  # a window must begin inside the input or its left padding
        made.append(places)
    return tuple(made)


def _each(values: Sequence[int], count: int) -> list[int]:
    """One value per axis."""
    if len(values) not in (1, count):
        raise UnknownShape("as many values as axes")
    return list(values) * (count if len(values) == 1 else 1)


def _axes(args: OperatorArguments) -> int:
    """How many axes a window has: all but batch and channels, as many as it says, two of an unbatched image."""
    count = len(args.numbers(1))
    return count if count > 1 else max(1, len(known(args.tensor(0))) - 2)
