"""Carry the limits of kernels to every table and document that a screen reads: the same word everywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from aaco.core.tables import replaced
from aaco.tracelake.document_schemas.answers import ClassifiedKernel

Signature = tuple[Any, ...]


def of_groups(groups: pa.Table, classes: Sequence[ClassifiedKernel]) -> pa.Table:
    """Return kernel_groups with the limit of each kernel name, its source, and its part of the time budget."""
    by_name = {kernel.kernel_name: (kernel.label, kernel.by, kernel.part) for kernel in classes}
    columns = zip(*(by_name.get(name, (None, None, None)) for name in groups["kernel_name"].to_pylist()), strict=True)
    for name, values in zip(("limit", "limit_by", "budget_part"), columns, strict=False):
        groups = _with(groups, name, values)
    return groups


def of_operators(operators: pa.Table, time: Mapping[tuple[str, int], int], limits: Mapping[str, str]) -> pa.Table:
    """Return operators with the limit that most of each one's time has. time: ns by kernel name and operator_id."""
    spent: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (name, operator), ns in time.items():
        if name in limits:
            spent[operator][limits[name]] += ns
    values = [_most(spent[number]) if number in spent else None for number in operators["operator_id"].to_pylist()]
    return _with(operators, "limit", values)


def _with(table: pa.Table, column: str, values: Sequence[str | None]) -> pa.Table:
    return replaced(table, column, pa.array(values, pa.string()).cast(table.schema.field(column).type))


def of_roofline(rooflines: Mapping[str, Any], operators: pa.Table, limits: Mapping[str, str]) -> dict[str, Any]:
    """Return roofline.json with the limit of each kernel name and operator."""
    spent: dict[Signature, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in operators.select([*_SIGNATURE, "limit", "device_ns"]).to_pylist():
        if row["limit"]:
            spent[_signature(row)][row["limit"]] += row["device_ns"]
    placed = [row | {"limit": _most(spent[_signature(row)]) if _signature(row) in spent else None}
              for row in rooflines.get("operators", ())]
    symbols = [row | {"limit": limits.get(row["kernel_name"])} for row in rooflines["symbols"]]
    return dict(rooflines) | {"symbols": symbols, "operators": placed}


_SIGNATURE = ("operator", "shapes", "dtypes", "family", "capture")


def _signature(row: Mapping[str, Any]) -> Signature:
    return tuple(row[name] for name in _SIGNATURE)


def _most(spent: Mapping[str, int]) -> str:
    """Return the limit with most time; of equal ones the first by name."""
    return min(spent, key=lambda limit: (-spent[limit], limit))


def budget_parts(groups: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return by kernel name the part of the time budget and its source, of rows of kernel_groups that have them."""
    return {row["kernel_name"]: (row["budget_part"], row["limit_by"]) for row in groups
            if row["kernel_name"] is not None and row["budget_part"] is not None}
