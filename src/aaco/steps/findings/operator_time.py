"""How the kernels' time is shared over the operators that launched them, by kernel name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from aaco.analytics.bottleneck.costs import KernelPart
from aaco.analytics.roofline.limiters import COMPUTE_FAMILIES, MEMORY_FAMILIES
from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, grow, integers
from aaco.core.session import Session
from aaco.core.tables import KERNELS, OP_TO_KERNEL_MAP
from aaco.tracelake import queries

_MAPPED = ("kernel_id", "operator_id", "share_ns")
TimeByOperator = Mapping[tuple[str, int], int]


def by_name(session: Session) -> dict[tuple[str, int], int]:
    """Return by kernel name and operator_id the time that the map of kernels gives them, ns. Raise BadBundle."""
    names, name_of = NameIds(), np.full(queries.rows(session, KERNELS), NONE)
    for batch in queries.batches(session, KERNELS, ["kernel_id", "kernel_name"]):
        name_of[integers(batch.column(0))] = names.numbers(batch.column(1))
    pairs, spent = TupleIds(), np.zeros(0, np.int64)
    for batch in queries.batches(session, OP_TO_KERNEL_MAP, _MAPPED):
        kernel, operator, ns = (integers(batch.column(at)) for at in range(len(_MAPPED)))
        there = (kernel >= 0) & (kernel < len(name_of)) & (operator >= 0)
        pair = pairs.numbers(name_of[kernel[there]], operator[there])
        spent = grow(spent, len(pairs), 0)
        np.add.at(spent, pair, np.maximum(ns[there], 0))
    return {(names.known[name], operator): ns for (name, operator), ns in
            zip(pairs.known, spent.tolist(), strict=True) if name >= 0}


def longest(time: TimeByOperator) -> dict[int, str]:
    """Return by operator_id the name of the kernel that took most of its time."""
    most: dict[int, tuple[int, str]] = {}
    for (name, operator), ns in time.items():
        most[operator] = max(most.get(operator, (-1, "")), (ns, name))
    return {operator: name for operator, (_, name) in most.items()}


def parts(costs_of: Mapping[int, Mapping[str, Any]], time: TimeByOperator, family_of: Mapping[str, str | None]
          ) -> dict[str, list[KernelPart]]:
    """Return by kernel name its part in each operator, by its share of the operator's time.

    The work of a product is not that of other kernels that only pass over memory, as conversions of a layout do.
    """
    shared = {pair: ns for pair, ns in time.items() if pair[1] in costs_of and pair[0] in family_of
              and not (costs_of[pair[1]]["family"] in COMPUTE_FAMILIES and family_of[pair[0]] in MEMORY_FAMILIES)}
    whole: dict[int, int] = defaultdict(int)
    for (_, operator), ns in shared.items():
        whole[operator] += ns
    parts_by_name: dict[str, list[KernelPart]] = defaultdict(list)
    for (name, operator), ns in shared.items():
        if ns:
            cost, share = costs_of[operator], ns / whole[operator]
            parts_by_name[name].append(KernelPart(cost["flops"] * share, cost["bytes"] * share, ns, cost["dtypes"]))
    return parts_by_name
