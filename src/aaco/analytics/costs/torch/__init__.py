"""What an operator of PyTorch, vLLM, SGLang or AITER costs, from the arguments that PyTorch's profiler recorded.

The conventions are those of `aaco.analytics.costs`, and so are the formulas wherever the mathematics is the same:
`table.TABLE` says how the recorded arguments of each operator are put into their terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from aaco.analytics.costs import linear
from aaco.analytics.costs.terms import OperatorCall, UnknownShape
from aaco.analytics.costs.tiles import ProductShape
from aaco.analytics.costs.torch.arguments import OperatorArguments, holds_sizes, recorded
from aaco.analytics.costs.torch.model import Model
from aaco.analytics.costs.torch.serving_rows import ATTENTION_WORDS, CACHED_ATTENTION
from aaco.analytics.costs.torch.table import COMPILED, TABLE

__all__ = ["TABLE", "Model", "OperatorArguments", "Price", "call", "model", "price", "product", "recorded"]

SINGLE_PRODUCTS = (linear.matmul, linear.gemm, linear.matmul_integer_to_float)
LONGEST = 120  # characters of a name that a reason repeats: names of a capture may be of any length
BREAKS = "its arguments are not those that it is known to take"

T = TypeVar("T")


class Price(Struct, frozen=True):
    """FLOPs and compulsory bytes of one call, each None where it is not known, and then why."""

    flops: int | None
    bytes: int | None
    why: str = ""


def model(name: str) -> Model | None:
    """Return how an operator is costed; None for one that is not known. One that works in place ("_") is as the other;
    a name with the words of attention over a cache, as wrappers of serving engines have it, is that."""
    if name.startswith(COMPILED.rstrip("*")):
        return TABLE[COMPILED]
    listed = TABLE.get(name) or TABLE.get(name.removesuffix("_"))
    return listed or (CACHED_ATTENTION if ATTENTION_WORDS.search(name[:LONGEST]) else None)


def price(name: str, arguments: OperatorArguments | None) -> Price:
    """Return what one call costs. `arguments` is None if the capture has none of it."""
    operator = model(name)
    if operator is None:
        return Price(None, None, f"what {name[:LONGEST]}{'…' * (len(name) > LONGEST)} costs is not modelled")
    if operator.flops is None and operator.traffic is None:
        return Price(None, None, operator.why)
    if arguments is None:
        return Price(None, None, "the capture has no shapes of its arguments")
    formed, why = _attempt(lambda: _formed(operator, arguments))
    if formed is None:
        return Price(None, None, why)
    flops, no_flops = _counted(operator.flops, formed, operator.why)
    moved, no_bytes = _counted(operator.traffic, formed, operator.why)
    return Price(flops, moved, no_flops or no_bytes)


def call(name: str, arguments: OperatorArguments | None) -> OperatorCall | None:
    """Return an operator's call in the terms of the formulas; None if it is not modelled, or its shapes are not known.
    """
    operator = model(name)
    return None if operator is None or arguments is None else _attempt(lambda: _formed(operator, arguments))[0]


def product(name: str, arguments: OperatorArguments | None) -> ProductShape | None:
    """Return the sizes of the matrix product that an operator is; None for one that is none, or has unknown shapes."""
    operator, formed = model(name), call(name, arguments)
    if operator is None or formed is None or operator.flops not in SINGLE_PRODUCTS or len(formed.result()) < 2:
        return None
    left, right, made = formed.shape(0), formed.shape(1), formed.result()
    if not left:
        return None
    batched = len(right) > 2 and len(made) > 2
    batch, rows = (math.prod(made[:-2]), made[-2]) if batched else (1, math.prod(made[:-1]))
    return ProductShape(batch, rows, made[-1], left[-1])


def _formed(operator: Model, arguments: OperatorArguments) -> OperatorCall:
    """Return a call with results that can be. Raise UnknownShape otherwise, as of a window larger than its image."""
    formed = operator.form(arguments)
    if not all(tensor is None or tensor.elements is None or holds_sizes(tensor.shape) for tensor in formed.outputs):
        raise UnknownShape(BREAKS)
    return formed


def _counted(formula: Callable[[OperatorCall], int] | None, formed: OperatorCall, why: str) -> tuple[int | None, str]:
    if formula is None:
        return None, why
    amount, problem = _attempt(lambda: formula(formed))
    return (None if amount is None else max(0, amount)), problem


def _attempt(work: Callable[[], T]) -> tuple[T | None, str]:
    """Return the result, or what is missing in the recorded arguments. Operators change their arguments between
    versions."""
    try:
        return work(), ""
    except UnknownShape as problem:
        return None, str(problem)
    except (ValueError, LookupError, ZeroDivisionError, OverflowError, TypeError):
        return None, BREAKS
