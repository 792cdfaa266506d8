"""Build the operators table of a model with a known graph: a row per operator, module, shapes and partition."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.attribution.nodes import UNATTRIBUTED
from aaco.analytics.attribution.operators import NO_COST
from aaco.analytics.costs import modelled
from aaco.analytics.graph.executed_work import NodeWork
from aaco.analytics.streaming.stream_ids import integers
from aaco.core.arrays import Ints, summed
from aaco.core.tables import OPERATORS, replaced

NO_NODE = "it serves no node of the model: the runtime inserted it, or does not name it"
UNLIKE_OFTEN = "its nodes did not run equally often in each inference"
SEVERAL_KERNELS = "how often its nodes ran is not known where one may launch several kernels"
DISPATCHED = "its times are the host's dispatch, not those of the work"
JOINED = " + "
MOST_NAMES = 4
_Node = Mapping[str, Any]


class _Unit(Struct, frozen=True):
    """An executed node as a row of operators shows it. Executed nodes that are alike are equal."""

    module: str | None
    operator: str | None
    shapes: str | None
    provider: str | None
    partition: int | None
    family: str | None
    work: NodeWork


def of_graph(kernels: pa.Table, mapped: pa.Table, executed_nodes: pa.Table, graph_nodes: pa.Table,
             executed_work: Mapping[str, NodeWork], executions: Mapping[str, int] | None = None,
             measured: bool = False) -> tuple[pa.Table, pa.Table]:
    """Return the operators, the longest first, and op_to_kernel_map with their ids.

    An operator is an executed node. One that fuses several nodes of the model is one row, named after all of them,
    because its time and traffic are of the whole (op_to_kernel_map models each node's part of the time). Its module and
    family are those of the node with most FLOPs; exporters name the nodes of a module /model/layers.0/mlp/MatMul.
    executions: how often each executed node ran in the measured inferences, if the kernels do not show it. measured:
    count only the kernels of those inferences, not of the warm-up; so it is with `executions`.
    """
    units = _units(executed_nodes, graph_nodes, executed_work)
    rows = list(dict.fromkeys(units.values()))
    number = {unit: at for at, unit in enumerate(rows)}
    served = dict(zip(kernels["kernel_id"].to_pylist(), kernels["executed_node"].to_pylist(), strict=True))
    row_of = {name: number[unit] for name, unit in units.items()}
    executed = [served[kernel] for kernel in mapped["kernel_id"].to_pylist()]
    row = np.array([row_of.get(name, len(rows)) for name in executed], np.int64)
    first = np.zeros(len(row), bool)
    first[np.unique(integers(mapped["kernel_id"]), return_index=True)[1]] = True
    count_all = executions is None and not measured
    counted = np.ones(len(row), bool) if count_all else _in_inferences(mapped, kernels)
    ran, spent = (summed(row, amount * counted, len(rows) + 1)
                  for amount in (first.astype(np.int64), integers(mapped["share_ns"])))
    calls, why_not = (ran, _why_not_counted(kernels)) if executions is None else (
        _executed(row, executed, executions, len(rows) + 1), None)
    methods = dict(zip(row[counted].tolist(), np.array(mapped["method"].to_pylist())[counted].tolist(), strict=True))
    order = sorted(np.flatnonzero(ran).tolist(), key=lambda at: (-int(spent[at]), at))
    described = [{**_described(rows[at] if at < len(rows) else None, int(calls[at]),
                               why_not or (None if calls[at] else UNLIKE_OFTEN)),
                  "operator_id": at, "kernels": int(ran[at]), "device_ns": int(spent[at]), "method": methods[at]}
                 for at in order]
    table = OPERATORS.build(**{name: [columns.get(name) for columns in described] for name in OPERATORS.columns})
    return table, replaced(mapped, "operator_id", pa.array(row))


def module_of(name: str) -> str | None:
    """Return the path in front of a node's own name; None if it has none."""
    return name.strip("/").rpartition("/")[0] or None


def _units(executed_nodes: pa.Table, graph_nodes: pa.Table, work: Mapping[str, NodeWork]) -> dict[str, _Unit]:
    """Return the unit of each executed node that has source nodes. Nodes that are alike share one row."""
    nodes = {node["node_id"]: node for node in graph_nodes.to_pylist()}
    columns = (executed_nodes[name].to_pylist() for name in ("name", "op_type", "domain", "source_nodes"))
    return {name: _unit([nodes[node] for node in sorted(sources)], op_type or "", domain or "", work[name])
            for name, op_type, domain, sources in zip(*columns, strict=True) if sources}


def _unit(sources: list[_Node], op_type: str, domain: str, work: NodeWork) -> _Unit:
    main = max(sources, key=lambda node: node["flops_each"] or 0)
    return _Unit(module_of(main["name"]), _name(sources, op_type, domain), _entering(sources), main["provider"],
                 main["partition"], main["category"], work)


def _name(sources: list[_Node], op_type: str, domain: str) -> str | None:
    """Return the sources' operators in order, or the executed one if it is a modelled operator such as Gelu.

    None if the graph does not name them.
    """
    names: list[str] = list(dict.fromkeys(node["op_type"] for node in sources if node["op_type"]))
    if len(sources) > 1 and op_type not in names and modelled(op_type, domain):
        return op_type
    excess = len(names) - MOST_NAMES
    shown = names if excess <= 0 else [*names[:MOST_NAMES - 1], f"{excess + 1} more"]
    return JOINED.join(shown) or None


def _entering(sources: list[_Node]) -> str | None:
    """Return the shapes of the input tensors, each once."""
    if len(sources) == 1:
        return str(sources[0]["input_shapes"]) if sources[0]["input_shapes"] is not None else None
    if any(None in (node["input_shapes"], node["inputs"], node["outputs"]) for node in sources):
        return None
    made = {name for node in sources for name in node["outputs"]}
    shapes = {name: shape for node in sources
              for name, shape in zip(node["inputs"], json.loads(node["input_shapes"]), strict=True)}
    return json.dumps([shape for name, shape in shapes.items() if name not in made])


def _in_inferences(mapped: pa.Table, kernels: pa.Table) -> NDArray[np.bool_]:
    """Return whether each row's kernel ran in a measured inference."""
    measured = kernels.filter(pc.is_valid(kernels["iteration"]))["kernel_id"]
    return np.asarray(pc.is_in(mapped["kernel_id"], measured.combine_chunks()))


def _executed(row: Ints, executed: Sequence[str | None], executions: Mapping[str, int], count: int) -> Ints:
    """Return how often the executed nodes of each row ran in all; 0 if the count of one of them is unknown."""
    ran: dict[int, dict[str, int]] = defaultdict(dict)
    for at, name in zip(row.tolist(), executed, strict=True):
        if name:
            ran[at][name] = executions.get(name, 0)
    return np.array([sum(ran[at].values()) if all(ran[at].values()) else 0 for at in range(count)], np.int64)


def _why_not_counted(kernels: pa.Table) -> str | None:
    """Return why the kernels do not show how often and how long nodes ran; None if they do."""
    if kernels["device_id"].null_count < kernels.num_rows:
        return SEVERAL_KERNELS
    return DISPATCHED if "dispatch" in kernels["timed"].to_pylist() else None


def _described(unit: _Unit | None, calls: int, why_not: str | None) -> dict[str, Any]:
    """Return what the graph says about a row. unit: None if its kernels serve no node."""
    if unit is None:
        return {"why_unattributed": NO_NODE, "why_no_cost": NO_NODE, "method": UNATTRIBUTED}
    per_call = {"flops": unit.work.flops, "bytes": unit.work.bytes}
    cost = {name: None if why_not or amount is None else amount * calls for name, amount in per_call.items()}
    why = unit.work.why_absent or why_not or (NO_COST if None in cost.values() else None)
    return {"operator": unit.operator, "module": unit.module, "shapes": unit.shapes, "provider": unit.provider,
            "partition": unit.partition, "family": unit.family, "calls": None if why_not else calls, **cost,
            "why_no_cost": why}
