"""The operators table of a model whose graph is known: a row per operator, module, shapes and partition of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.attribution.nodes import UNATTRIBUTED
from aaco.analytics.attribution.operators import NO_COST
from aaco.analytics.lanes import Ints, integers
from aaco.core.tables import OPERATORS, replaced

NO_NODE = "it serves no node of the model: the runtime inserted it, or does not name it"
UNLIKE_OFTEN = "its nodes did not run equally often in each inference"
SEVERAL_KERNELS = "how often its nodes ran is not known where one may launch several kernels"
DISPATCHED = "its times are the host's dispatch, not those of the work"
_KEY = ("op_type", "input_shapes", "provider", "partition", "category", "flops_each", "bytes_each", "why_no_cost")
_Node = Mapping[str, Any]


def of_graph(kernels: pa.Table, mapped: pa.Table, graph_nodes: pa.Table, executions: Mapping[str, int] | None = None
             ) -> tuple[pa.Table, pa.Table]:
    """The operators, the longest first, and op_to_kernel_map with their ids.

    A node's module is what its name says: exporters name the nodes of a module /model/layers.0/mlp/MatMul. A kernel
    that several nodes share counts as one of the first one's row. executions: how often each executed node ran in the
    measured inferences, where kernels do not tell; only the kernels of those are counted then.
    """
    row_of, nodes = _rows(graph_nodes)
    row = np.array([row_of.get(node, len(nodes)) for node in mapped["node_id"].to_pylist()], np.int64)
    first = np.zeros(len(row), bool)
    first[np.unique(integers(mapped["kernel_id"]), return_index=True)[1]] = True
    counted = np.ones(len(row), bool) if executions is None else _in_inferences(mapped, kernels)
    rows, ran, spent = (_summed(row, amount * counted, len(nodes) + 1) for amount in
                        (np.ones(len(row), np.int64), first.astype(np.int64), integers(mapped["share_ns"])))
    calls, why_not = (rows, _why_not_counted(kernels)) if executions is None else (
        _executed(row, mapped, kernels, executions, len(nodes) + 1), None)
    methods = dict(zip(row[counted].tolist(), np.array(mapped["method"].to_pylist())[counted].tolist(), strict=True))
    order = sorted(np.flatnonzero(rows).tolist(), key=lambda at: (-int(spent[at]), at))
    known = [{**_described(nodes[at] if at < len(nodes) else None, int(calls[at]),
                           why_not or (None if calls[at] else UNLIKE_OFTEN)),
              "operator_id": at, "kernels": int(ran[at]), "device_ns": int(spent[at]), "method": methods[at]}
             for at in order]
    table = OPERATORS.build(**{name: [one.get(name) for one in known] for name in OPERATORS.columns})
    return table, replaced(mapped, "operator_id", pa.array(row))


def module_of(name: str) -> str | None:
    """The path in front of a node's own name; None where it has none."""
    return name.strip("/").rpartition("/")[0] or None


def _rows(graph_nodes: pa.Table) -> tuple[dict[int, int], list[_Node]]:
    """The row of each node, and a node of each row."""
    row_of: dict[int, int] = {}
    numbers: dict[tuple[Any, ...], int] = {}
    nodes: list[_Node] = []
    for node in graph_nodes.to_pylist():
        key = (module_of(node["name"]), *(node[name] for name in _KEY))
        row_of[node["node_id"]] = numbers.setdefault(key, len(numbers))
        if len(numbers) > len(nodes):
            nodes.append(node)
    return row_of, nodes


def _summed(row: Ints, amount: Ints, count: int) -> Ints:
    total = np.zeros(count, np.int64)
    np.add.at(total, row, amount)
    return total


def _in_inferences(mapped: pa.Table, kernels: pa.Table) -> NDArray[np.bool_]:
    """Whether each row's kernel ran in a measured inference."""
    measured = kernels.filter(pc.is_valid(kernels["iteration"]))["kernel_id"]
    return np.asarray(pc.is_in(mapped["kernel_id"], measured.combine_chunks()))


def _executed(row: Ints, mapped: pa.Table, kernels: pa.Table, executions: Mapping[str, int], count: int) -> Ints:
    """How often the nodes of each row ran, all together; 0 where that is not known of one of them."""
    served = dict(zip(kernels["kernel_id"].to_pylist(), kernels["executed_node"].to_pylist(), strict=True))
    pairs = zip(row.tolist(), mapped["node_id"].to_pylist(), mapped["kernel_id"].to_pylist(), strict=True)
    ran: dict[int, dict[int | None, int]] = defaultdict(dict)
    for at, node, kernel in pairs:
        if executed := served[kernel]:
            ran[at][node] = max(ran[at].get(node, 0), executions.get(executed, 0))
    return np.array([sum(ran[at].values()) if all(ran[at].values()) else 0 for at in range(count)], np.int64)


def _why_not_counted(kernels: pa.Table) -> str | None:
    """Why the kernels do not tell how often nodes ran and how long that took; None where they do."""
    if kernels["device_id"].null_count < kernels.num_rows:
        return SEVERAL_KERNELS
    return DISPATCHED if "dispatch" in kernels["timed"].to_pylist() else None


def _described(node: _Node | None, calls: int, why_not: str | None) -> dict[str, Any]:
    """What the graph says of a row; None: its kernels serve no node."""
    if node is None:
        return {"why_unattributed": NO_NODE, "why_no_cost": NO_NODE, "method": UNATTRIBUTED}
    each = {name: node[f"{name}_each"] for name in ("flops", "bytes")}
    cost = {name: None if why_not or value is None else value * calls for name, value in each.items()}
    why = node["why_no_cost"] or why_not or (NO_COST if None in cost.values() else None)
    return {"operator": node["op_type"], "module": module_of(node["name"]), "shapes": node["input_shapes"],
            "provider": node["provider"], "partition": node["partition"], "family": node["category"],
            "calls": None if why_not else calls, **cost, "why_no_cost": why}
