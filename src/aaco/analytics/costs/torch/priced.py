"""The operators table with what each row costs: its calls times the price of one, or why there is none."""

from __future__ import annotations

import json
from functools import lru_cache

import pyarrow as pa

from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import Price, price
from aaco.analytics.costs.torch.arguments import OperatorArguments, recorded
from aaco.core.tables import replaced

LARGEST = 2**63 - 1
NO_OPERATOR = "no operator launched it"
NOTHING = "it launched nothing itself"
TOO_MUCH = "more than a column of the table can hold"
_READ = ("operator", "shapes", "dtypes", "inputs", "calls", "kernels")


def priced(operators: pa.Table) -> pa.Table:
    """Return the table with flops, bytes and why_no_cost filled in. Only rows with kernels of their own have a cost:
    what an operator inside another does is that one's."""
    rows = zip(*(operators[name].to_pylist() for name in _READ), strict=True)
    prices = [_cost(*row) for row in rows]
    filled = {"flops": pa.array([price_of_call.flops for price_of_call in prices], pa.int64()),
              "bytes": pa.array([price_of_call.bytes for price_of_call in prices], pa.int64()),
              "why_no_cost": pa.array([price_of_call.why or None for price_of_call in prices], pa.string())}
    for name, column in filled.items():
        operators = replaced(operators, name, column)
    return operators


def _cost(name: str | None, shapes: str | None, dtypes: str | None, inputs: str | None, calls: int | None,
          kernels: int) -> Price:
    """Return the cost of all calls of a row."""
    if name is None or calls is None:
        return Price(None, None, NO_OPERATOR)
    if not kernels:
        return Price(None, None, NOTHING)
    price_of_call = _price_once(name, shapes, dtypes, inputs)
    flops, moved = (None if amount is None else amount * calls for amount in (price_of_call.flops, price_of_call.bytes))
    if max(flops or 0, moved or 0) > LARGEST:
        return Price(None, None, TOO_MUCH)
    return Price(flops, moved, price_of_call.why)


@lru_cache(maxsize=4096)  # a program repeats the same call at many places
def _price_once(name: str, shapes: str | None, dtypes: str | None, inputs: str | None) -> Price:
    return price(name, arguments(shapes, dtypes, inputs))


def arguments(shapes: str | None, dtypes: str | None, inputs: str | None) -> OperatorArguments | None:
    """Return the arguments as the trace had them; None if it did not record them, or they are no lists."""
    try:
        read = {"Input Dims": json.loads(shapes or "null"), "Input type": json.loads(dtypes or "null"),
                "Concrete Inputs": json.loads(inputs or "null")}
        return recorded(read)
    except (UnknownShape, ValueError, RecursionError):
        return None
