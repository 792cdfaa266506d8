"""What an operator of PyTorch, vLLM, SGLang or AITER costs, from the arguments that PyTorch's profiler recorded.

The conventions are those of `aaco.analytics.operators`, and so are the formulas wherever the mathematics is the same:
`table.TABLE` says how the recorded arguments of each operator are put into their terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from aaco.analytics.operators import linear
from aaco.analytics.operators.terms import Call, UnknownShape
from aaco.analytics.operators.tiles import Product
from aaco.analytics.operators.torch.arguments import Arguments, recorded
from aaco.analytics.operators.torch.table import COMPILED, TABLE, Model

__all__ = ["TABLE", "Arguments", "Model", "Price", "call", "model", "price", "product", "recorded"]

SINGLE_PRODUCTS = (linear.matmul, linear.gemm, linear.matmul_integer_to_float)
LONGEST = 120  # characters of a name that a reason repeats: names of a capture may be of any length
BREAKS = "its arguments are not those that it is known to take"

T = TypeVar("T")


@dataclass(frozen=True)
class Price:
    """FLOPs and compulsory bytes of one call, each None where it is not known, and then why."""

    flops: int | None
    bytes: int | None
    why: str = ""


def model(name: str) -> Model | None:
    """How an operator is costed; None for one that is not known. One that works in place ("_") is as the other."""
    if name.startswith(COMPILED.rstrip("*")):
        return TABLE[COMPILED]
    return TABLE.get(name) or TABLE.get(name.removesuffix("_"))


def price(name: str, arguments: Arguments | None) -> Price:
    """What one call costs. `arguments` is None where the capture has none of it."""
    known = model(name)
    if known is None:
        return Price(None, None, f"what {name[:LONGEST]}{'…' * (len(name) > LONGEST)} costs is not modelled")
    if known.flops is None and known.traffic is None:
        return Price(None, None, known.why)
    if arguments is None:
        return Price(None, None, "the capture has no shapes of its arguments")
    formed, why = _attempt(lambda: known.form(arguments))
    if formed is None:
        return Price(None, None, why)
    flops, no_flops = _counted(known.flops, formed, known.why)
    moved, no_bytes = _counted(known.traffic, formed, known.why)
    return Price(flops, moved, no_flops or no_bytes)


def call(name: str, arguments: Arguments | None) -> Call | None:
    """An operator's call in the terms of the formulas; None where it is not modelled, or its shapes are not known."""
    known = model(name)
    return None if known is None or arguments is None else _attempt(lambda: known.form(arguments))[0]


def product(name: str, arguments: Arguments | None) -> Product | None:
    """The sizes of the matrix product that an operator is; None for one that is none, or whose shapes are not known."""
    known, formed = model(name), call(name, arguments)
    if known is None or formed is None or known.flops not in SINGLE_PRODUCTS or len(formed.result()) < 2:
        return None
    left, right, made = formed.shape(0), formed.shape(1), formed.result()
    batched = len(right) > 2 and len(made) > 2
    batch, rows = (math.prod(made[:-2]), made[-2]) if batched else (1, math.prod(made[:-1]))
    return Product(batch, rows, made[-1], left[-1])


def _counted(formula: Callable[[Call], int] | None, formed: Call, why: str) -> tuple[int | None, str]:
    if formula is None:
        return None, why
    found, problem = _attempt(lambda: formula(formed))
    return (None if found is None else max(0, found)), problem


def _attempt(work: Callable[[], T]) -> tuple[T | None, str]:
    """The result, or what the recorded arguments lack for it. Operators change their arguments between versions."""
    try:
        return work(), ""
    except UnknownShape as problem:
        return None, str(problem)
    except (ValueError, LookupError, ZeroDivisionError, OverflowError, TypeError):
        return None, BREAKS
