"""Kernel time by what caused it: modules, operator and kernel as one stack. The stacks' times sum to the kernels'."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics.streaming.stream_ids import NameIds, integers
from aaco.tracelake.document_schemas.answers import Stack

NO_OPERATOR = "of no operator"
UNNAMED = "(without a name)"
MOST = 3000  # stacks that are kept one by one, the longest; the rest is summed
OTHERS = "shorter stacks"
PLACE = ("operator_id", "module", "outermost", "operator", "family")
_STEPS = re.compile(r"[./](?!\d+(?:[./]|$))")  # a layer's number belongs to its name: layer4.0, then conv2


Spent = Mapping[tuple[int, str, str], tuple[int, int]]  # (operator_id, kernel name, family) -> ns, pieces


def stacks(operators: pa.Table, spent: Spent) -> list[Stack]:
    """Return the stacks, the longest first; an operator_id that is not in operators is of no operator."""
    places = {row["operator_id"]: tuple(_place(row)) for row in operators.select(PLACE).to_pylist()}
    total: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(lambda: [0, 0])
    for (operator, kernel, family), (ns, pieces) in spent.items():
        sums = total[(*places.get(operator, (NO_OPERATOR,)), kernel or UNNAMED), family]
        sums[0] += ns
        sums[1] += pieces
    ordered = sorted((Stack(path=path, family=family, ns=sums[0], pieces=sums[1])
                      for (path, family), sums in total.items() if sums[0] > 0),
                     key=lambda stack: (-stack.ns, stack.path, stack.family))
    remaining = ordered[MOST:]
    if not remaining:
        return ordered
    others = Stack(path=(OTHERS,), family="", ns=sum(stack.ns for stack in remaining),
                   pieces=sum(stack.pieces for stack in remaining))
    return [*ordered[:MOST], others]


def of_tables(kernels: pa.Table, op_to_kernel_map: pa.Table, operators: pa.Table) -> list[Stack]:
    """Return the stacks of the kernels given: a part of those in the map, or all."""
    order = np.argsort(integers(kernels["kernel_id"]), kind="stable")
    kernel_ids = integers(kernels["kernel_id"])[order]
    kernel, operator, ns = (integers(op_to_kernel_map[name]) for name in ("kernel_id", "operator_id", "share_ns"))
    at = np.minimum(np.searchsorted(kernel_ids, kernel), max(0, len(kernel_ids) - 1))
    there = kernel_ids[at] == kernel if len(kernel_ids) else np.zeros(len(kernel), bool)
    labels = list(zip(*(_texts(kernels[name]) for name in ("kernel_name", "family")), strict=True))
    spent: dict[tuple[int, str, str], tuple[int, int]] = {}
    columns = (operator[there].tolist(), order[at[there]].tolist(), ns[there].tolist())
    for operator_id, row, time in zip(*columns, strict=True):
        key = (operator_id, *labels[row])
        before = spent.get(key, (0, 0))
        spent[key] = before[0] + time, before[1] + 1
    return stacks(operators, spent)


def by_operator(operators: pa.Table) -> list[Stack]:
    """Return a stack for each operator that launched kernels itself, for captures without a map of kernels."""
    spent: dict[tuple[int, str, str], tuple[int, int]] = {}
    rows = operators.select([*PLACE, "device_ns", "kernels"]).to_pylist()
    for row in rows:
        spent[row["operator_id"], f"kernels of {row['family'] or 'unknown family'}", row["family"] or ""] = (
            row["device_ns"] or 0, row["kernels"] or 0)
    return stacks(operators, spent)


def _texts(column: pa.ChunkedArray) -> list[str]:
    names = NameIds()
    return [names.text(number) for number in names.numbers(column).tolist()]


def _place(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield modules, the outermost operator and the operator, as far as they are known."""
    if row["module"]:
        yield from (step for step in _STEPS.split(row["module"]) if step)
    if not row["operator"]:
        yield NO_OPERATOR
        return
    if row["outermost"] and row["outermost"] != row["operator"]:
        yield row["outermost"]
    yield row["operator"]
