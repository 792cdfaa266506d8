"""Recorded arguments of framework operators, spelt as PyTorch's profiler writes them."""

from __future__ import annotations

from aaco.analytics.costs.torch import OperatorArguments, price

FLOAT, HALF = "float", "c10::BFloat16"


def of(*arguments, kind=FLOAT):
    """Arguments: a tuple is the shape of a tensor, (shape, type) of another type, a list of tuples a list of tensors,
    None is not given, anything else a value."""
    shapes, types, values = [], [], []
    for argument in arguments:
        tensor = isinstance(argument, tuple)
        typed = tensor and len(argument) == 2 and isinstance(argument[1], str)
        listed = isinstance(argument, list) and bool(argument) and isinstance(argument[0], tuple)
        shapes.append(list(argument[0] if typed else argument) if tensor else
                      [list(one) for one in argument] if listed else [])
        types.append(argument[1] if typed else kind if tensor else "TensorList" if listed else
                     "" if argument is None else "ScalarList" if isinstance(argument, list) else "Scalar")
        values.append("" if tensor or listed or argument is None else str(argument))
    return OperatorArguments(shapes, [word.replace(" ", "") for word in types], values)


def cost(name, *arguments, kind=FLOAT):
    """(FLOPs, bytes) of a call; it must be known."""
    found = price(name, of(*arguments, kind=kind))
    assert found.flops is not None and found.bytes is not None, (name, found.why)
    return found.flops, found.bytes


def flops(name, *arguments, kind=FLOAT):
    found = price(name, of(*arguments, kind=kind))
    assert found.flops is not None, (name, found.why)
    return found.flops
