"""Combine the passes of one workload: plain latency, kernels with or without calls, and names of nodes.

A runtime's profile of its nodes slows an inference of small kernels up to threefold (measured on an H200), but without
it no kernel is known to serve a node. So one pass, under the profile and a tracer, names the n-th kernel of an
inference, and another, under the tracer only, times it. If their kernel sequences are the same, so are the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.attribution.spans import TOLERANCE_NS, launched_in
from aaco.analytics.attribution.transfer import by_position
from aaco.analytics.streaming.launch_rows import launch_rows
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core.arrays import Ints
from aaco.core.inputs import union_ns
from aaco.core.readings import Absent

SCHEMA_VERSION = 1


class JoinedPasses(Struct, frozen=True):
    """The kernels of the timed pass with `executed_node`, how each was found, and a summary of the join."""

    kernels: pa.Table
    methods: list[str | None]
    account: dict[str, Any]


def of_launches(kernels: pa.Table, api_calls: pa.Table, begins: Ints, ends: Ints) -> pa.Array:
    """Return the index of the run in which each kernel was launched, null if none. Runs in start order."""
    launched = np.append(integers(api_calls["t_start_ns"]), NONE)[launch_rows(kernels, api_calls)]
    return inside(launched, begins, ends)


def inside(at: Ints, begins: Ints, ends: Ints) -> pa.Array:
    """Return the index of the run that contains each time, null if none. Runs in start order.

    The clocks are read some hundred ns apart, and one of them counts in microseconds, so a tolerance applies.
    """
    if not len(begins):
        return pa.nulls(len(at), pa.int64())
    run = np.searchsorted(begins - TOLERANCE_NS, at, side="right") - 1
    held = (run >= 0) & (at <= ends[np.maximum(run, 0)] + TOLERANCE_NS)
    return pa.array(run, mask=~held)


def join(profiled: pa.Table, api_calls: pa.Table, nodes: Collection[str], timed: pa.Table) -> JoinedPasses:
    """Name the kernels of the timed pass by those of the profiled one.

    profiled, timed: kernels in start order with their iteration. api_calls: the profiled pass's launching calls, and a
    range of domain `ort` for each execution of a node, named after it. Raise Absent if either pass has no kernel in an
    inference, or if the profiled one contradicts itself.
    """
    profiled_kernels, timed_kernels = (table.filter(pc.is_valid(table["iteration"])) for table in (profiled, timed))
    for table, which in ((profiled_kernels, "profiled"), (timed_kernels, "timed")):
        if not table.num_rows:
            raise Absent(f"no kernel of a device lies in an inference of the {which} pass")
    named = launched_in(profiled_kernels, api_calls, nodes)
    transferred = by_position(named.kernels, timed)
    kernels, methods = transferred.kernels, transferred.method.to_pylist()
    counted = kernels.filter(pc.is_valid(kernels["iteration"]))
    of_node = counted.filter(pc.is_valid(counted["executed_node"]))
    account = {
        "schema_version": SCHEMA_VERSION, "profiled": spent(profiled_kernels), "timed": spent(timed_kernels),
        "identical": transferred.identical, "aligned": transferred.aligned,
        "first_difference": next(iter(transferred.differences.values()), None),
        "named": of_node.num_rows, "named_ns": pc.sum(of_node["dur_ns"]).as_py() or 0,
        "unnamed": dict(Counter(why for why in named.why.to_pylist() if why)),
        "methods": dict(Counter(method or "none" for method in methods))}
    return JoinedPasses(kernels, methods, account)


def executions(nodes: pa.Table, profiled: int, timed: int) -> dict[str, int]:
    """Return how often each executed node ran in the inferences of the timed pass, from its executions in the profiled
    ones.

    nodes: the profile's executions, with the inference of each. A node whose inferences do not all run it equally often
    is left out, because its count elsewhere is unknown.
    """
    measured = nodes.filter(pc.is_valid(nodes["iteration"]))
    counted = Counter(measured["executed_node"].to_pylist())
    return {node: ran // profiled * timed for node, ran in counted.items() if ran % profiled == 0}


def spent(kernels: pa.Table) -> dict[str, int]:
    """Return counts of inferences and kernels in them, the kernels' total ns, and the ns with at least one running."""
    kernels = kernels.filter(pc.is_valid(kernels["iteration"]))
    return {"inferences": pc.count_distinct(kernels["iteration"]).as_py(), "kernels": kernels.num_rows,
            "ns": pc.sum(kernels["dur_ns"]).as_py(),
            "busy_ns": union_ns(integers(kernels["t_start_ns"]), integers(kernels["t_end_ns"]))}
