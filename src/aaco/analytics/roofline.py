"""How far each executed node is from this machine's measured roofs, by the modelled work of the nodes it computes.

For a node of F FLOPs and B bytes, the roofs allow it no less than max(F / peak, B / bandwidth): its ideal time
(Williams, Waterman and Patterson 2009). Bytes are compulsory traffic at the fused node's border, so tensors that stay
inside it cost nothing; a node whose data stays in cache can beat the DRAM roof, and is then shown above 1, not clipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa

from aaco.analytics.inputs import Window, execution_window
from aaco.core.readings import Absent

PEAK, BANDWIDTH = "fp32_flops", "dram_bytes_per_s"


def roofline(window: Window, executed_nodes: pa.Table, graph_nodes: pa.Table, graph_edges: pa.Table,
             machine: Mapping[str, float]) -> pa.Table:
    """One row per executed node that has modelled work and measured time, slowest first.

    Columns: name, flops, bytes (per inference), time_ns (mean per inference), intensity (FLOP/byte), ideal_ns,
    utilization (ideal / time), bound ("compute" or "memory"), and measured_ns: time_ns of every node, modelled or not.
    Raises Absent without ceilings, modelled nodes, or times of the work itself.
    """
    if PEAK not in machine or BANDWIDTH not in machine:
        raise Absent("this machine's ceilings have not been measured (aaco calibrate)")
    time = _time_per_inference(execution_window(window))
    work = _work(executed_nodes, graph_nodes, graph_edges)
    rows = [_place(name, *work[name], time[name], machine) for name in time if name in work and time[name] > 0]
    if not rows:
        raise Absent("no executed node has both modelled work and measured time")
    table = pa.Table.from_pylist(sorted(rows, key=lambda row: -float(row["time_ns"])))
    return table.replace_schema_metadata({"all_time_ns": str(sum(time.values()))})


def _place(name: str, flops: int, moved: int, time_ns: float, machine: Mapping[str, float]) -> dict[str, float | str]:
    compute_ns, memory_ns = 1e9 * flops / machine[PEAK], 1e9 * moved / machine[BANDWIDTH]
    ideal_ns = max(compute_ns, memory_ns)
    return {"name": name, "flops": flops, "bytes": moved, "time_ns": time_ns, "ideal_ns": ideal_ns,
            "intensity": flops / moved if moved else float("inf"), "utilization": ideal_ns / time_ns,
            "bound": "compute" if compute_ns >= memory_ns else "memory"}


def _time_per_inference(window: Window) -> dict[str, float]:
    grouped = window.kernels.group_by("executed_node").aggregate([("dur_ns", "sum")])
    totals = zip(grouped["executed_node"].to_pylist(), grouped["dur_ns_sum"].to_pylist(), strict=True)
    return {name: total / window.inferences for name, total in totals if name is not None}


def _work(executed_nodes: pa.Table, graph_nodes: pa.Table, graph_edges: pa.Table) -> dict[str, tuple[int, int]]:
    """FLOPs and border bytes of each executed node all of whose source nodes are modelled."""
    flops = dict(zip(graph_nodes["node_id"].to_pylist(), graph_nodes["flops"].to_pylist(), strict=True))
    moved = dict(zip(graph_nodes["node_id"].to_pylist(), graph_nodes["bytes"].to_pylist(), strict=True))
    owner = {node: name for name, nodes in _sources(executed_nodes) for node in nodes}
    saved = _inner_bytes(graph_edges, owner)
    work = {}
    for name, nodes in _sources(executed_nodes):
        if nodes and all(flops[node] is not None and moved[node] is not None for node in nodes):
            border = sum(moved[node] for node in nodes) - saved[name]
            work[name] = (sum(flops[node] for node in nodes), max(0, border))
    return work


def _inner_bytes(graph_edges: pa.Table, owner: Mapping[int, str]) -> dict[str, int]:
    """Traffic that fusion avoids: a tensor inside one executed node is neither written nor read again."""
    saved: dict[str, int] = defaultdict(int)
    readers: dict[tuple[int, str], list[int | None]] = defaultdict(list)
    size: dict[str, int] = {}
    columns = (graph_edges[name].to_pylist() for name in ("src_node", "dst_node", "tensor", "bytes"))
    for source, target, tensor, count in zip(*columns, strict=True):
        if source is not None:
            readers[(source, tensor)].append(target)
            size[tensor] = count or 0
    for (source, tensor), targets in readers.items():
        name = owner.get(source)
        inside = [target for target in targets if target is not None and name is not None and owner.get(target) == name]
        if name is not None:
            saved[name] += size[tensor] * (len(inside) + (len(inside) == len(targets)))
    return saved


def _sources(executed_nodes: pa.Table) -> list[tuple[str, list[int]]]:
    return list(zip(executed_nodes["name"].to_pylist(), executed_nodes["source_nodes"].to_pylist(), strict=True))
