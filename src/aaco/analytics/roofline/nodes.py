"""How far each executed node is from this machine's measured roofs, by the modelled work of the nodes it computes.

For a node of F FLOPs and B bytes, the roofs allow it no less than max(F / peak, B / bandwidth): its ideal time
(Williams, Waterman and Patterson 2009). The peak is that of the type the node computes in: an 8-bit product under the
fp32 roof would seem to beat it. Bytes are compulsory traffic at the fused node's border, so tensors that stay
inside it cost nothing; a node whose data stays in cache can beat the DRAM roof, and is then shown above 1, not clipped.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.costs.precision import UNKNOWN_HERE, computes_in
from aaco.analytics.graph.executed_work import NodeWork, border_work
from aaco.analytics.roofline.limiters import COMPUTE_FAMILIES, UNTOLD_FAMILIES
from aaco.analytics.roofline.summary import Envelope
from aaco.core.inputs import Window, execution_window
from aaco.core.readings import Absent

BANDWIDTH = "dram_bytes_per_s"
PEAK = "fp32_flops"
PEAKS = {"float64": "fp64_flops", "float32": PEAK, "float16": "fp16_flops", "bfloat16": "bf16_flops",
         "int8": "int8_flops"}  # by the type of the arithmetic
ROOFS = {*PEAKS.values(), BANDWIDTH}
PLACED = pa.schema([("name", pa.string()), ("dtype", pa.string()), ("flops", pa.int64()), ("bytes", pa.int64()),
                    ("time_ns", pa.float64()), ("intensity", pa.float64()), ("ideal_ns", pa.float64()),
                    ("utilization", pa.float64()), ("bound", pa.string()), ("why_absent", pa.string())])
WORK = pa.schema([PLACED.field(name) for name in ("name", "dtype", "flops", "bytes", "time_ns")])


def node_work(window: Window, executed_nodes: pa.Table, graph_nodes: pa.Table,
              executed_work: Mapping[str, NodeWork]) -> pa.Table:
    """One row per executed node that has modelled work and measured time, slowest first.

    Columns: name, dtype (of its arithmetic; null where that is not known), flops, bytes (per inference), time_ns (mean
    per inference); all_time_ns in the metadata is the time of every node, modelled or not. Raise Absent without
    modelled nodes or times of the work itself.
    """
    run = execution_window(window)
    time, work = time_per_inference(run), border_work(executed_work)
    dtype = dtypes(run.kernels, executed_nodes)
    rows: list[dict[str, Any]] = [
        {"name": name, "dtype": dtype.get(name), "flops": work[name][0], "bytes": work[name][1], "time_ns": ns}
        for name, ns in time.items() if name in work and ns > 0]
    if not rows:
        reasons = Counter(filter(None, graph_nodes["why_no_cost"].to_pylist())).most_common(1)
        raise Absent("no executed node has both modelled work and measured time"
                     + (f" (most often: {reasons[0][0]})" if reasons else ""))
    rows.sort(key=lambda row: -row["time_ns"])
    return pa.Table.from_pylist(rows, WORK.with_metadata({"all_time_ns": str(sum(time.values()))}))


def roofline(node_work: pa.Table, machine: Mapping[str, float]) -> pa.Table:
    """Return the nodes under the roofs of their own type: node_work with the place of each, or why it has none.

    Further columns: intensity (FLOP/byte), ideal_ns, utilization (ideal / time) and bound ("compute" or "memory"); null
    where the ceiling of the node's type was not measured, and then why_absent says so. Raise Absent, with the reason
    that takes most time, where no node has a place.
    """
    if BANDWIDTH not in machine:
        raise Absent("this machine's ceilings have not been measured (aaco calibrate)")
    rows = [_place(row, machine) for row in node_work.to_pylist()]
    if all(row["why_absent"] for row in rows):
        lost = Counter[str]()
        for row in rows:
            lost[row["why_absent"]] += row["time_ns"]
        raise Absent(lost.most_common(1)[0][0])
    return pa.Table.from_pylist(rows, PLACED.with_metadata(node_work.schema.metadata))


def envelope(roofline: pa.Table) -> Envelope:
    """Return the nodes that have a place, summed. Raise Absent where every node is shorter than the profile's
    resolution.
    """
    placed = roofline.filter(pc.is_valid(roofline["ideal_ns"]))
    total = float((roofline.schema.metadata or {})[b"all_time_ns"])
    if not total:
        raise Absent("every kernel is shorter than the profile's resolution")
    sides = (float(pc.sum(placed.filter(pc.equal(placed["bound"], side))["time_ns"]).as_py() or 0)
             for side in ("compute", "memory"))
    return Envelope(float(pc.sum(placed["ideal_ns"]).as_py()), float(pc.sum(placed["time_ns"]).as_py()), total, *sides)


def shares_of_kernels(kernels: pa.Table, roofline: pa.Table, machine: Mapping[str, float]
                      ) -> dict[str, tuple[float, float]]:
    """By name the shares of the ceilings of arithmetic and of memory that kernels reach: those of their nodes, by the
    time of the kernel in each. Not of families that pass over memory beside a product, as transpositions do: the node's
    work is not theirs; nor of a name that serves nodes of several types, or of which a share is beyond what can be."""
    known = {row["name"]: row for row in roofline.to_pylist() if row["why_absent"] is None}
    asked = COMPUTE_FAMILIES | UNTOLD_FAMILIES
    spent: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, family, node, ns in zip(*(kernels[each].to_pylist() for each in
                                        ("kernel_name", "family", "executed_node", "dur_ns")), strict=True):
        if family in asked and node in known:
            spent[name][node] += ns
    found = {name: _shares([(known[node], ns) for node, ns in parts.items()], machine) for name, parts in spent.items()}
    return {name: shares for name, shares in found.items() if shares and max(shares) <= 1}


def _shares(parts: list[tuple[Mapping[str, Any], int]], machine: Mapping[str, float]) -> tuple[float, float] | None:
    dtypes, total = {row["dtype"] for row, _ in parts}, sum(ns for _, ns in parts)
    peak = machine.get(PEAKS.get(dtypes.pop(), "")) if len(dtypes) == 1 else None
    if not peak or not total:
        return None
    flops, moved = (sum(row[amount] / row["time_ns"] * ns for row, ns in parts) for amount in ("flops", "bytes"))
    return 1e9 * flops / peak / total, 1e9 * moved / machine[BANDWIDTH] / total


def _place(row: Mapping[str, Any], machine: Mapping[str, float]) -> dict[str, Any]:
    flops, moved, time_ns, dtype = row["flops"], row["bytes"], row["time_ns"], row["dtype"]
    place = {**row, "intensity": flops / moved if moved else math.inf}
    peak = machine.get(PEAKS.get(dtype, ""))
    if flops and peak is None:
        why = f"no ceiling of {dtype} arithmetic was measured" if dtype else UNKNOWN_HERE
        return place | {"ideal_ns": None, "utilization": None, "bound": None, "why_absent": why}
    compute_ns, memory_ns = 1e9 * flops / peak if peak else 0.0, 1e9 * moved / machine[BANDWIDTH]
    ideal_ns = max(compute_ns, memory_ns)
    return place | {"ideal_ns": ideal_ns, "utilization": ideal_ns / time_ns,
                    "bound": "compute" if compute_ns >= memory_ns else "memory", "why_absent": None}


def roofs_of(found: Mapping[str, pa.Table]) -> set[str]:
    """Names of the ceilings that a session's nodes are compared with; all where their element type is unknown.
    """
    if "kernels" not in found or "executed_nodes" not in found:
        return ROOFS
    types = dtypes(found["kernels"], found["executed_nodes"]).values()
    return {BANDWIDTH, *(PEAKS[dtype] for dtype in types if dtype in PEAKS)}


def dtypes(kernels: pa.Table, executed_nodes: pa.Table) -> dict[str, str | None]:
    """Return the type of each executed node's arithmetic, by the operator and the types that the capture saw it
    read.
    """
    columns = (executed_nodes[name].to_pylist() for name in ("name", "op_type", "domain"))
    operator = {name: (op_type, domain or "") for name, op_type, domain in zip(*columns, strict=True)}
    seen = zip(kernels["executed_node"].to_pylist(), kernels["dtypes"].to_pylist(), strict=True)
    return {name: computes_in(*operator[name], types or ()) for name, types in dict(seen).items() if name in operator}


def time_per_inference(window: Window) -> dict[str, float]:
    """Return the mean time of each executed node in an inference, ns."""
    grouped = window.kernels.group_by("executed_node").aggregate([("dur_ns", "sum")])
    totals = zip(grouped["executed_node"].to_pylist(), grouped["dur_ns_sum"].to_pylist(), strict=True)
    return {name: total / window.inferences for name, total in totals if name is not None}
