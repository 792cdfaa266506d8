"""Passes of one workload become one answer: plain latency, the device's kernels with or without calls, and names.

A runtime's profile of its nodes distorts an inference of small kernels up to threefold (measured on an H200), and
without it no kernel says which node it serves. So one pass, under the profile and a tracer, names the n-th kernel of an
inference, and another, under the tracer alone, times it; where their sequences are the same, so are the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.attribution.spans import TOLERANCE_NS, launched_in
from aaco.analytics.attribution.transfer import by_position
from aaco.analytics.inputs import union_ns
from aaco.analytics.lanes import NONE, Ints, integers
from aaco.analytics.linking import DOMAINS
from aaco.core.readings import Absent

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Joined:
    """The kernels of the timed pass with `executed_node`; how each was found; and the account of the join."""

    kernels: pa.Table
    methods: list[str | None]
    account: dict[str, Any]


def of_launches(kernels: pa.Table, api_calls: pa.Table, begins: Ints, ends: Ints) -> pa.Array:
    """The run (its place) in which each kernel was launched; null in none. Runs in start order."""
    known = api_calls.filter(pc.is_in(api_calls["domain"].cast(pa.string()), pa.array(DOMAINS)))
    ids, first = np.unique(integers(known["correlation_id"]), return_index=True)
    if not len(ids) or not len(begins):
        return pa.nulls(kernels.num_rows, pa.int64())
    wanted = integers(kernels["correlation_id"])
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    launched = np.where((ids[at] == wanted) & (wanted != NONE), integers(known["t_start_ns"])[first][at], NONE)
    return inside(launched, begins, ends)


def inside(at: Ints, begins: Ints, ends: Ints) -> pa.Array:
    """The run (its place) that holds each moment; null where none does. Runs in start order.

    Clocks are compared that are read some hundred ns apart, and one of them counts in microseconds.
    """
    if not len(begins):
        return pa.nulls(len(at), pa.int64())
    run = np.searchsorted(begins - TOLERANCE_NS, at, side="right") - 1
    held = (run >= 0) & (at <= ends[np.maximum(run, 0)] + TOLERANCE_NS)
    return pa.array(run, mask=~held)


def join(profiled: pa.Table, api_calls: pa.Table, nodes: Collection[str], timed: pa.Table) -> Joined:
    """Name the kernels of the timed pass by those of the profiled one.

    profiled, timed: kernels in start order with their iteration. api_calls: the profiled pass's launching calls, and a
    range of domain `ort` for each execution of a node, named like it. Raises Absent where either pass has no kernel in
    an inference, or the profiled one contradicts itself.
    """
    chosen, measured = (table.filter(pc.is_valid(table["iteration"])) for table in (profiled, timed))
    for table, which in ((chosen, "profiled"), (measured, "timed")):
        if not table.num_rows:
            raise Absent(f"no kernel of a device lies in an inference of the {which} pass")
    named = launched_in(chosen, api_calls, nodes)
    result = by_position(named.kernels, timed)
    kernels, methods = result.kernels, result.method.to_pylist()
    counted = kernels.filter(pc.is_valid(kernels["iteration"]))
    of_node = counted.filter(pc.is_valid(counted["executed_node"]))
    account = {
        "schema_version": SCHEMA_VERSION, "profiled": spent(chosen), "timed": spent(measured),
        "identical": result.identical, "aligned": result.aligned,
        "first_difference": next(iter(result.differences.values()), None),
        "named": of_node.num_rows, "named_ns": pc.sum(of_node["dur_ns"]).as_py() or 0,
        "unnamed": dict(Counter(why for why in named.why.to_pylist() if why)),
        "methods": dict(Counter(method or "none" for method in methods))}
    return Joined(kernels, methods, account)


def executions(nodes: pa.Table, profiled: int, timed: int) -> dict[str, int]:
    """How often each executed node ran in the inferences of the timed pass, by its executions in the profiled ones.

    nodes: the profile's executions, with the inference of each. A node that inferences run unlike often is left out:
    how often it ran in others is not known.
    """
    measured = nodes.filter(pc.is_valid(nodes["iteration"]))
    counted = Counter(measured["executed_node"].to_pylist())
    return {node: ran // profiled * timed for node, ran in counted.items() if ran % profiled == 0}


def spent(kernels: pa.Table) -> dict[str, int]:
    """Of the kernels in inferences: inferences, kernels, their time, and the time in which at least one of them ran."""
    kernels = kernels.filter(pc.is_valid(kernels["iteration"]))
    return {"inferences": pc.count_distinct(kernels["iteration"]).as_py(), "kernels": kernels.num_rows,
            "ns": pc.sum(kernels["dur_ns"]).as_py(),
            "busy_ns": union_ns(integers(kernels["t_start_ns"]), integers(kernels["t_end_ns"]))}
