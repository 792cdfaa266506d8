"""Kernel time by what caused it: modules, operator and kernel as one stack. The stacks' times sum to the kernels'."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics.lanes import Names, integers

NO_OPERATOR = "of no operator"
UNNAMED = "(without a name)"
MOST = 3000  # stacks that are kept one by one, the longest; the rest is summed
OTHERS = "shorter stacks"
PLACE = ("operator_id", "module", "outermost", "operator", "family")
_STEPS = re.compile(r"[./](?!\d+(?:[./]|$))")  # a layer's number belongs to its name: layer4.0, then conv2


@dataclass(frozen=True)
class Stack:
    """A kernel under what launched it, outermost first: its family, its time in ns, and how many pieces it is of."""

    path: tuple[str, ...]
    family: str
    ns: int
    pieces: int

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


Spent = Mapping[tuple[int, str, str], tuple[int, int]]  # (operator_id, kernel name, family) -> ns, pieces


def stacks(operators: pa.Table, spent: Spent) -> list[Stack]:
    """The stacks, the longest first; an operator_id that operators lacks is of no operator."""
    places = {row["operator_id"]: tuple(_place(row)) for row in operators.select(PLACE).to_pylist()}
    total: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(lambda: [0, 0])
    for (operator, kernel, family), (ns, pieces) in spent.items():
        one = total[(*places.get(operator, (NO_OPERATOR,)), kernel or UNNAMED), family]
        one[0] += ns
        one[1] += pieces
    found = sorted((Stack(path, family, *sums) for (path, family), sums in total.items() if sums[0] > 0),
                   key=lambda one: (-one.ns, one.path, one.family))
    rest = found[MOST:]
    others = [Stack((OTHERS,), "", sum(one.ns for one in rest), sum(one.pieces for one in rest))] if rest else []
    return found[:MOST] + others


def of_tables(kernels: pa.Table, op_to_kernel_map: pa.Table, operators: pa.Table) -> list[Stack]:
    """The stacks of the kernels given: a part of those in the map, or all."""
    order = np.argsort(integers(kernels["kernel_id"]), kind="stable")
    known = integers(kernels["kernel_id"])[order]
    kernel, operator, ns = (integers(op_to_kernel_map[name]) for name in ("kernel_id", "operator_id", "share_ns"))
    at = np.minimum(np.searchsorted(known, kernel), max(0, len(known) - 1))
    there = known[at] == kernel if len(known) else np.zeros(len(kernel), bool)
    labels = list(zip(*(_texts(kernels[name]) for name in ("kernel_name", "family")), strict=True))
    spent: dict[tuple[int, str, str], tuple[int, int]] = {}
    for each, row, time in zip(operator[there].tolist(), order[at[there]].tolist(), ns[there].tolist(), strict=True):
        key = (each, *labels[row])
        before = spent.get(key, (0, 0))
        spent[key] = before[0] + time, before[1] + 1
    return stacks(operators, spent)


def by_operator(operators: pa.Table) -> list[Stack]:
    """Where no map of kernels is known: a stack for each operator that launched any itself."""
    spent: dict[tuple[int, str, str], tuple[int, int]] = {}
    rows = operators.select([*PLACE, "device_ns", "kernels"]).to_pylist()
    for row in rows:
        spent[row["operator_id"], f"kernels of {row['family'] or 'unknown family'}", row["family"] or ""] = (
            row["device_ns"] or 0, row["kernels"] or 0)
    return stacks(operators, spent)


def _texts(column: pa.ChunkedArray) -> list[str]:
    names = Names()
    return [names.text(each) for each in names.numbers(column).tolist()]


def _place(row: Mapping[str, Any]) -> Iterator[str]:
    """Modules, the outermost operator and the operator, as far as they are known."""
    if row["module"]:
        yield from (step for step in _STEPS.split(row["module"]) if step)
    if not row["operator"]:
        yield NO_OPERATOR
        return
    if row["outermost"] and row["outermost"] != row["operator"]:
        yield row["outermost"]
    yield row["operator"]
