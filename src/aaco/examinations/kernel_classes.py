"""What limits the kernels that took most of a session's time, by kernel name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from aaco.analytics.bottleneck import costs
from aaco.analytics.bottleneck.kernel_classes import COUNTERS, KernelClass, classify, facts_of
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.examinations.device_work import ceilings_of
from aaco.tracelake import documents, layout, queries, store

SCHEMA_VERSION = 1
FILE = layout.EXAMINED["kernel_classes"]
MOST = 200  # kernel names, those that took most time
# The value in the middle of all calls of a name.
_MIDDLE = """middle_{column} AS (SELECT kernel_name, min({column}) AS {column} FROM (
        SELECT kernel_name, {column}, 2 * sum(calls) OVER (PARTITION BY kernel_name ORDER BY {column}) AS twice_so_far,
            sum(calls) OVER (PARTITION BY kernel_name) AS every FROM alike WHERE {column} IS NOT NULL)
        WHERE twice_so_far >= every GROUP BY kernel_name)"""
# Launches alike are counted together first: there are few of them, so memory does not grow with the trace. The median
# duration is that of kernel_groups, which sorts on disk.
_KERNELS = f"""WITH alike AS (
        SELECT kernel_name, occupancy_pct, any_value(family) AS family, count(*) AS calls, sum(dur_ns) AS ns,
            grid_x::DOUBLE * greatest(coalesce(grid_y, 1), 1) * greatest(coalesce(grid_z, 1), 1) AS items
        FROM kernels WHERE device_id IS NOT NULL AND dur_ns IS NOT NULL AND kernel_name IS NOT NULL
        GROUP BY kernel_name, items, occupancy_pct),
    middle_ns AS (SELECT kernel_name, max(p50_ns) AS median_ns FROM kernel_groups GROUP BY kernel_name),
    {_MIDDLE.format(column="items")}, {_MIDDLE.format(column="occupancy_pct")}
    SELECT kernel_name, any_value(family) AS family, sum(calls)::BIGINT AS calls, sum(ns)::BIGINT AS total_ns,
        any_value(median_ns) AS median_ns, any_value(middle_occupancy_pct.occupancy_pct) AS occupancy_pct,
        any_value(middle_items.items) AS items
    FROM alike JOIN middle_ns USING (kernel_name) LEFT JOIN middle_items USING (kernel_name)
        LEFT JOIN middle_occupancy_pct USING (kernel_name)
    GROUP BY kernel_name ORDER BY total_ns DESC, kernel_name LIMIT {MOST}"""
_TOTAL = "SELECT sum(dur_ns)::BIGINT AS ns FROM kernels WHERE device_id IS NOT NULL"
_PLACED = """SELECT kernel_name, median(compute_share) AS compute_share, median(dram_share) AS dram_share,
    median(l2_share) AS l2_share, median(l1_share) AS l1_share, median(lds_share) AS lds_share,
    median(occupancy_limit_pct) AS occupancy_limit_pct
    FROM kernel_roofline WHERE error IS NULL GROUP BY kernel_name"""
_COUNTED = f"""SELECT kernel_name, counter, sum(value) AS value FROM counters JOIN kernels USING (kernel_id)
    WHERE counter IN ({', '.join(f"'{name}'" for name in COUNTERS)}) GROUP BY kernel_name, counter"""
_SHAPED = """SELECT kernel_name, any_value(operators.dtypes) AS dtypes, sum(m.share_ns)::BIGINT AS ns,
    sum(operators.flops::DOUBLE * m.share_ns / operators.device_ns) AS flops,
    sum(operators.bytes::DOUBLE * m.share_ns / operators.device_ns) AS bytes
    FROM op_to_kernel_map AS m JOIN operators USING (operator_id) JOIN kernels USING (kernel_id)
    WHERE operators.flops IS NOT NULL AND operators.bytes IS NOT NULL AND operators.device_ns > 0
    GROUP BY kernel_name HAVING count(DISTINCT operators.dtypes) = 1"""


def examine(session: Session, settings: Analysis) -> None:
    """Write kernel_classes.json; not where no kernel ran on a device. Raises BadBundle, StorageError."""
    found = find(session, settings)
    documents.replace(session, FILE, {
        "schema_version": SCHEMA_VERSION, "kernel_ns": _rows(session, _TOTAL, "kernels")[0]["ns"],
        "kernels": [one.document() for one in found]} if found else None)


def find(session: Session, settings: Analysis) -> list[KernelClass]:
    """The classes of the kernel names that took most time, the longest first. Raises BadBundle."""
    if not queries.has_values(session, KERNELS, "device_id"):
        return []
    placed = {row["kernel_name"]: row for row in _rows(session, _PLACED, "kernel_roofline")}
    counted: dict[str, dict[str, float]] = defaultdict(dict)
    for row in _rows(session, _COUNTED, "counters"):
        counted[row["kernel_name"]][row["counter"]] = row["value"]
    shaped = _shaped(session)
    return [classify(facts_of(row, 1000 * settings.microkernel_us, counted.get(row["kernel_name"], {}),
                              placed.get(row["kernel_name"]), shaped.get(row["kernel_name"])))
            for row in _rows(session, _KERNELS, "kernels", "kernel_groups")]


def _shaped(session: Session) -> Mapping[str, tuple[float, float]]:
    """By kernel name its shares of the compute and memory ceilings, by the shapes of its operators."""
    ceilings = ceilings_of(session)
    rows = _rows(session, _SHAPED, "operators", "op_to_kernel_map") if ceilings else []
    found = {row["kernel_name"]: costs.shares(row["dtypes"], row["flops"], row["bytes"], row["ns"], ceilings)
             for row in rows if ceilings}
    return {name: shares for name, shares in found.items() if shares}


def _rows(session: Session, query: str, *needed: str) -> list[dict[str, Any]]:
    if not all(store.holds(session, tables.ALL[name]) for name in needed):
        return []
    return queries.Session(session.folder).sql(query, sealed=False).to_pylist()  # analyze has written some anew
