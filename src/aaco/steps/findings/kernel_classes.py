"""What limits the kernels that took most of a session's time, by kernel name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.bottleneck import costs, kernel_limits
from aaco.analytics.bottleneck.alike import COLUMNS, Alike
from aaco.analytics.bottleneck.costs import ShapedWork
from aaco.analytics.bottleneck.kernel_classes import COUNTERS, classify, facts_of
from aaco.analytics.roofline.devices.ceilings import Ceilings, Identity, identified, theoretical
from aaco.analytics.streaming.stream_ids import integers
from aaco.core.arrays import Ints, Ints32
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COUNTERS as COUNTERS_TABLE
from aaco.core.tables import KERNEL_GROUPS, KERNEL_ROOFLINE, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.steps.findings import node_shares, operator_time
from aaco.steps.findings.operator_time import TimeByOperator
from aaco.tracelake import documents, layout, queries, store
from aaco.tracelake.document_schemas.answers import ClassifiedKernel, KernelClasses

MOST = 200  # kernel names, those that took most time
_PLACED = """SELECT kernel_name, median(compute_share) AS compute_share, median(dram_share) AS dram_share,
    median(l2_share) AS l2_share, median(l1_share) AS l1_share, median(lds_share) AS lds_share,
    median(occupancy_limit_pct) AS occupancy_limit_pct, median(memory_wait_share) AS memory_wait_share,
    mode(dominant) AS rate
    FROM kernel_roofline WHERE error IS NULL GROUP BY kernel_name"""
_COSTS = ("operator_id", "family", "dtypes", "flops", "bytes", "device_ns")


@finding(reads=(KERNEL_GROUPS,), after=("attribution", "operator_costs", "roofline"),
         writes=("kernel_classes", KERNEL_GROUPS, OPERATORS, "roofline"), report="kernel_classes")
def kernel_classes(session: Session, settings: Analysis) -> Results:
    """What limits each kernel, by its name: decided once, for every screen."""
    is_mapped = store.holds(session, OPERATORS) and store.holds(session, OP_TO_KERNEL_MAP)
    time = operator_time.by_name(session) if is_mapped else {}
    classes, total_ns = find(session, settings, time)
    if not classes:
        return
    yield "kernel_classes", encode(KernelClasses(kernel_ns=total_ns, kernels=classes[:MOST]))
    yield KERNEL_GROUPS, kernel_limits.of_groups(store.read(session, KERNEL_GROUPS), classes)
    limits = {kernel.kernel_name: kernel.label for kernel in classes}
    if is_mapped:
        yield OPERATORS, kernel_limits.of_operators(store.read(session, OPERATORS), time, limits)
    if rooflines := documents.read(session, layout.finding("roofline")):
        operators = store.read(session, OPERATORS) if store.holds(session, OPERATORS) else OPERATORS.build()
        yield "roofline", kernel_limits.of_roofline(rooflines, operators, limits)


def find(session: Session, settings: Analysis, time: TimeByOperator) -> tuple[list[ClassifiedKernel], int]:
    """The classes of all kernel names, those that took most time first, and the time of all kernels of devices. Raises
    BadBundle.

    time: of the kernels, by name and operator.
    """
    if not queries.has_values(session, KERNELS, "device_id") or not store.holds(session, KERNEL_GROUPS):
        return [], 0
    alike, name_of = _kernels(session)
    placed, rows = _placed(session), alike.rows(_medians(session))
    family_of = {row["kernel_name"]: row["family"] for row in rows}
    counted, shaped = _counted(session, alike.names.known, name_of), _shaped(session, family_of, time)
    return [classify(facts_of(row, 1000 * settings.microkernel_us, counted.get(row["kernel_name"], {}),
                              placed.get(row["kernel_name"]), shaped.get(row["kernel_name"]))) for row in rows
            ], alike.total_ns


def _kernels(session: Session) -> tuple[Alike, Ints32]:
    """The kernels by name, and by kernel_id the number of each one's name (-1: none)."""
    alike, name_of = Alike(), np.full(queries.rows(session, KERNELS), -1, np.int32)
    for batch in queries.batches(session, KERNELS, ["kernel_id", *COLUMNS]):
        name_of[integers(batch.column(0))] = np.maximum(alike.feed(batch), -1)
    return alike, name_of


def _medians(session: Session) -> dict[str, float]:
    """The median duration by name, of the family that has the longest."""
    medians: dict[str, float] = {}
    for batch in queries.batches(session, KERNEL_GROUPS, ["kernel_name", "p50_ns"]):
        for row in batch.to_pylist():
            if row["p50_ns"] is not None and row["kernel_name"] is not None:
                medians[row["kernel_name"]] = max(row["p50_ns"], medians.get(row["kernel_name"], 0.0))
    return medians


def _placed(session: Session) -> dict[str, dict[str, Any]]:
    """By kernel name the medians of its kernels' places under the roofs."""
    if not store.holds(session, KERNEL_ROOFLINE):
        return {}
    kernels = queries.QueryableSession(session.folder).sql(_PLACED, sealed=False)  # analyze has written some anew
    return {kernel["kernel_name"]: kernel for kernel in kernels.to_pylist()}


def _counted(session: Session, names: list[str], name_of: Ints32) -> dict[str, dict[str, float]]:
    """By kernel name the sums of the counters that classes ask for."""
    counts_by_name: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for batch in queries.batches(session, COUNTERS_TABLE, ["kernel_id", "counter", "value"]):
        rows = batch.filter(pc.is_in(batch.column(1).cast(pa.string()), pa.array(COUNTERS)))
        name = _of(integers(rows.column(0)), name_of)
        for number, counter, value in zip(name.tolist(), *(rows.column(at).to_pylist() for at in (1, 2)), strict=True):
            if number >= 0 and value is not None:
                counts_by_name[names[number]][counter] += value
    return counts_by_name


def _shaped(session: Session, family_of: Mapping[str, str | None], time: TimeByOperator) -> dict[str, ShapedWork]:
    """By kernel name what the shapes of its operators say; of a run, of its nodes under measured roofs."""
    if isinstance(session, queries.SessionPart):
        return node_shares.of(session)
    if not store.holds(session, OPERATORS):
        return {}
    ceilings = ceilings_of(session)
    costs_of = {row["operator_id"]: row for batch in queries.batches(session, OPERATORS, _COSTS)
                for row in batch.to_pylist()
                if row["flops"] is not None and row["bytes"] is not None and (row["device_ns"] or 0) > 0}
    parts = operator_time.parts(costs_of, time, family_of)
    works = {name: costs.shaped(name, family_of[name], listed, ceilings) for name, listed in parts.items()}
    return {name: work for name, work in works.items() if work}


def ceilings_of(session: Session) -> Ceilings | None:
    """What the devices of the captures can do at most, where they are all of one kind."""
    device = device_of(session)
    return theoretical(identified(device)) if device else None


def device_of(session: Session) -> Identity | None:
    """What the devices of the captures are, where they are all of one kind."""
    captures = documents.read(session, layout.CAPTURES).get("captures", [])
    kinds = {(device["arch"], device["compute_units"], device["name"], device["vram_bytes"])
             for capture in captures for device in capture["devices"]}
    return Identity(*kinds.pop()) if len(kinds) == 1 else None


def _of(kernel_id: Ints, name_of: Ints32) -> Ints:
    """The numbers of the kernels' names; -1 where a kernel is not there."""
    there = (kernel_id >= 0) & (kernel_id < len(name_of))
    return np.where(there, name_of[np.where(there, kernel_id, 0)] if len(name_of) else -1, -1).astype(np.int64)
