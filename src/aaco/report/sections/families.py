"""The kernels of an imported session by family: what its devices computed, by the names of the kernels."""

from __future__ import annotations

from typing import Any

from aaco.analytics.explanation import Explanation
from aaco.analytics.kernels import kernel_groups
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import start_skew

MOST = 10  # families listed one by one
UNTOLD = "unknown"


def rows(explanation: Explanation) -> list[Row]:
    """Time by family, largest first; empty for a run of this product: its kernels are graph operators."""
    groups = explanation.tables.get("kernel_groups")
    if not explanation.captures or groups is None:
        return []
    found = [row for row in kernel_groups.by_family(groups).to_pylist() if row["total_ns"]]
    rest = sum(row["total_ns"] for row in found[MOST:])
    others = [Row("others", f"{format.duration(rest)} of {_families(len(found) - MOST)}")] if rest else []
    return [Row(row["family"] or UNTOLD, _told(row)) for row in found[:MOST]] + others


def _families(count: int) -> str:
    return "1 family" if count == 1 else f"{count} families"


def _told(row: dict[str, Any]) -> str:
    share = format.percent(row["pct_of_kernel_time"] / 100)
    named = format.plural(int(row["kernels"]), "kernel")
    waits = start_skew.note(row["skew_ns"])
    return (f"{share}, {format.duration(row['total_ns'])} in {format.plural(int(row['calls']), 'call')} of {named}"
            + (f"; {waits}" if waits else ""))
