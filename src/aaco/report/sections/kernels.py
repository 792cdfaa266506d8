"""The kernels of a session: where they ran, how long each took, and where each of the capture went."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow.compute as pc

from aaco.analytics.explanation import Explanation
from aaco.analytics.kernels.places import ran_on
from aaco.core import inputs, tables
from aaco.core.readings import known
from aaco.report import format
from aaco.report.sections import start_skew
from aaco.report.svg import COLOURS

NO_KERNELS, NO_TIMES = "no kernel capture", "no kernel has a time"
UNNAMED = "a kernel without a name"


def window(explanation: Explanation) -> inputs.Window | None:
    """The profiled inferences of a run; None for an import, and where none can be distinguished."""
    found = explanation.tables
    if explanation.captures or "kernels" not in found or "api_calls" not in found:
        return None
    return known(inputs.window, found["kernels"], found["api_calls"])


def place(explanation: Explanation) -> str:
    """Where the kernels ran: "host CPU", "GPU", "GPU and host CPU", a device that was not traced, or empty."""
    if explanation.captures:
        return str(explanation.captures["kernels_ran_on"])
    kernels = explanation.tables.get("kernels")
    if kernels is None:
        return ""
    return ran_on(kernels.num_rows, kernels["device_id"].null_count, kernels["timed"].to_pylist().count("dispatch"))


def groups(explanation: Explanation) -> list[dict[str, Any]]:
    """Rows of the kernel_groups table that took time, largest total first; empty without one."""
    table = explanation.tables.get("kernel_groups")
    rows: list[dict[str, Any]] = table.to_pylist() if table else []
    timed = [row | {"kernel_name": row["kernel_name"] or UNNAMED,
                    "pct_of_kernel_time": row["pct_of_kernel_time"] or 0.0}
             for row in rows if row["total_ns"] is not None and row["mean_ns"] is not None]
    return sorted(timed, key=lambda row: (-row["total_ns"], row["kernel_name"]))


def families(explanation: Explanation) -> dict[str, int]:
    """Kernel time in ns by family, largest first."""
    total: dict[str, int] = defaultdict(int)
    for row in groups(explanation):
        total[row["family"] or "unknown family"] += row["total_ns"]
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def looks(explanation: Explanation) -> dict[str, str]:
    """The colour of each family in every picture: by its rank in time; those beyond the colours share the last."""
    return {name: f"c{min(rank, COLOURS - 1)}" for rank, name in enumerate(families(explanation))}


def skew_notes(explanation: Explanation) -> list[str]:
    """Return for each kernel name with such waiting a sentence that says how much of its time that is."""
    return [f"{format.kernel(row['kernel_name'], 60)}: {start_skew.note(row['skew_ns'])}"
            for row in groups(explanation) if row.get("skew_ns")]


def inferences(explanation: Explanation) -> int:
    """Inferences of the profiled window; 0 without a capture, or where it is of another tool."""
    kernels = None if explanation.captures else explanation.tables.get("kernels")
    return 0 if kernels is None else int(pc.count_distinct(kernels["iteration"]).as_py())


def coverage(explanation: Explanation) -> list[tuple[str, int, int]]:
    """Where every kernel of the capture went: what, how many, and their time in ns. Empty without a capture."""
    found = explanation.coverage
    if found is None:
        return []
    dropped = [(f"dropped: {reason}", *part) for reason, part in found.dropped.items()]
    loose = [("of the used, not traced to a graph node", *found.unattributed)] if found.unattributed else []
    return [("in the file", *found.in_file), ("used", *found.used), *dropped, *loose]


def why_none(explanation: Explanation) -> str:
    """The reason there is no kernel capture, or no time in it."""
    recorded = explanation.tables.get("kernels")
    otherwise = NO_TIMES if recorded is not None and recorded.num_rows else NO_KERNELS
    return format.unavailable(explanation.absent.get(tables.KERNELS.file, otherwise))
