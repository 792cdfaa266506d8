"""What limits the kernels that took most of a session's time, by kernel name."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.bottleneck import costs
from aaco.analytics.bottleneck.alike import COLUMNS, Alike
from aaco.analytics.bottleneck.kernel_classes import COUNTERS, KernelClass, classify, facts_of
from aaco.analytics.devices.ceilings import Ceilings
from aaco.analytics.lanes import Ints, Keys, grow, integers
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import COUNTERS as COUNTERS_TABLE
from aaco.core.tables import KERNEL_GROUPS, KERNEL_ROOFLINE, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.examinations import node_shares
from aaco.examinations.device_work import ceilings_of
from aaco.tracelake import documents, layout, queries, store

SCHEMA_VERSION = 1
FILE = layout.EXAMINED["kernel_classes"]
Names32 = NDArray[np.int32]
MOST = 200  # kernel names, those that took most time
_PLACED = """SELECT kernel_name, median(compute_share) AS compute_share, median(dram_share) AS dram_share,
    median(l2_share) AS l2_share, median(l1_share) AS l1_share, median(lds_share) AS lds_share,
    median(occupancy_limit_pct) AS occupancy_limit_pct, median(memory_wait_share) AS memory_wait_share
    FROM kernel_roofline WHERE error IS NULL GROUP BY kernel_name"""
_MAPPED = ("kernel_id", "operator_id", "share_ns")
_COSTS = ("operator_id", "dtypes", "flops", "bytes", "device_ns")


def examine(session: Session, settings: Analysis) -> None:
    """Write kernel_classes.json; not where no kernel ran on a device. Raises BadBundle, StorageError."""
    found, total_ns = find(session, settings)
    documents.replace(session, FILE, {"schema_version": SCHEMA_VERSION, "kernel_ns": total_ns,
                                      "kernels": [one.document() for one in found]} if found else None)


def find(session: Session, settings: Analysis) -> tuple[list[KernelClass], int]:
    """The classes of the kernel names that took most time, the longest first, and the time of all kernels of devices.
    Raises BadBundle."""
    if not queries.has_values(session, KERNELS, "device_id") or not store.holds(session, KERNEL_GROUPS):
        return [], 0
    alike, name_of = _kernels(session)
    placed = _placed(session)
    counted, shaped = _counted(session, alike.names.known, name_of), _shaped(session, alike.names.known, name_of)
    rows = alike.rows(MOST, _medians(session))
    return [classify(facts_of(row, 1000 * settings.microkernel_us, counted.get(row["kernel_name"], {}),
                              placed.get(row["kernel_name"]), shaped.get(row["kernel_name"]))) for row in rows
            ], alike.total_ns


def _kernels(session: Session) -> tuple[Alike, Names32]:
    """The kernels by name, and by kernel_id the number of each one's name (-1: none)."""
    alike, name_of = Alike(), np.full(queries.rows(session, KERNELS), -1, np.int32)
    for batch in queries.batches(session, KERNELS, ["kernel_id", *COLUMNS]):
        name_of[integers(batch.column(0))] = np.maximum(alike.feed(batch), -1)
    return alike, name_of


def _medians(session: Session) -> dict[str, float]:
    """The median duration by name, of the family that has the longest."""
    found: dict[str, float] = {}
    for batch in queries.batches(session, KERNEL_GROUPS, ["kernel_name", "p50_ns"]):
        for row in batch.to_pylist():
            if row["p50_ns"] is not None and row["kernel_name"] is not None:
                found[row["kernel_name"]] = max(row["p50_ns"], found.get(row["kernel_name"], 0.0))
    return found


def _placed(session: Session) -> dict[str, dict[str, Any]]:
    """By kernel name the medians of its kernels' places under the roofs."""
    if not store.holds(session, KERNEL_ROOFLINE):
        return {}
    found = queries.Session(session.folder).sql(_PLACED, sealed=False).to_pylist()  # analyze has written some anew
    return {row["kernel_name"]: row for row in found}


def _counted(session: Session, names: list[str], name_of: Names32) -> dict[str, dict[str, float]]:
    """By kernel name the sums of the counters that classes ask for."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for batch in queries.batches(session, COUNTERS_TABLE, ["kernel_id", "counter", "value"]):
        rows = batch.filter(pc.is_in(batch.column(1).cast(pa.string()), pa.array(COUNTERS)))
        name = _of(integers(rows.column(0)), name_of)
        for number, counter, value in zip(name.tolist(), *(rows.column(at).to_pylist() for at in (1, 2)), strict=True):
            if number >= 0 and value is not None:
                found[names[number]][counter] += value
    return found


def _shaped(session: Session, names: list[str], name_of: Names32) -> dict[str, tuple[float, float]]:
    """By kernel name its shares of the compute and memory ceilings, by the shapes of its operators, of a run's nodes;
    of one type alone.
    """
    if isinstance(session, queries.Part):
        return node_shares.of(session)
    ceilings = ceilings_of(session) if store.holds(session, OPERATORS) else None
    if ceilings is None:
        return {}
    costs_of = {row["operator_id"]: row for batch in queries.batches(session, OPERATORS, _COSTS)
                for row in batch.to_pylist()
                if row["flops"] is not None and row["bytes"] is not None and (row["device_ns"] or 0) > 0}
    work: dict[int, list[tuple[dict[str, Any], int]]] = defaultdict(list)
    for (name, operator), ns in _shares(session, name_of).items():
        if name >= 0 and operator in costs_of:
            work[name].append((costs_of[operator], ns))
    found = {names[name]: _of_one_type(parts, ceilings) for name, parts in work.items()}
    return {name: shares for name, shares in found.items() if shares}


def _shares(session: Session, name_of: Names32) -> dict[tuple[int, ...], int]:
    """By kernel name and operator the time that the map of kernels gives them."""
    pairs, spent = Keys(), np.zeros(0, np.int64)
    for batch in queries.batches(session, OP_TO_KERNEL_MAP, _MAPPED):
        kernel, operator, ns = (integers(batch.column(at)) for at in range(len(_MAPPED)))
        pair = pairs.numbers(_of(kernel, name_of), operator)
        spent = grow(spent, len(pairs), 0)
        np.add.at(spent, pair, np.maximum(ns, 0))
    return dict(zip(pairs.known, spent.tolist(), strict=True))


def _of_one_type(parts: list[tuple[dict[str, Any], int]], ceilings: Ceilings) -> tuple[float, float] | None:
    dtypes = {cost["dtypes"] for cost, _ in parts} - {None}
    if len(dtypes) != 1:
        return None
    flops, moved = (sum(cost[each] * ns / cost["device_ns"] for cost, ns in parts) for each in ("flops", "bytes"))
    return costs.shares(dtypes.pop(), flops, moved, sum(ns for _, ns in parts), ceilings)


def _of(kernel_id: Ints, name_of: Names32) -> Ints:
    """The numbers of the kernels' names; -1 where a kernel is not there."""
    there = (kernel_id >= 0) & (kernel_id < len(name_of))
    return np.where(there, name_of[np.where(there, kernel_id, 0)] if len(name_of) else -1, -1).astype(np.int64)
