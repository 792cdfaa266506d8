"""Where the clean inferences of a run on CPUs spent their wall time, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

LARGEST = 5
PARTS = {
    "compute": ("Nodes, arithmetic", "node_compute_pct"), "memory": ("Nodes, memory", "node_memory_pct"),
    "unplaced": ("Nodes, limit unknown", "node_unplaced_pct"), "overhead": ("Runtime overhead", "runtime_overhead_pct"),
    "threads": ("Waits of own threads", "thread_wait_pct"), "other_load": ("Other load", "contended_pct"),
    "stolen": ("Hypervisor", "contended_pct"), "quota": ("CPU quota", "quota_pct"),
    "unexplained": ("Not explained", "unexplained_pct")}


@finding_view("cpu_budget", "where the clean inferences of a run on CPUs spent their wall time, and its largest nodes",
              place=1, title="Time of the clean inferences")
def _rows(document: Mapping[str, Any]) -> Iterator[Row]:
    wall, count = document["wall_ns"], document["inferences"]
    for name, (label, metric) in PARTS.items():
        part = document["parts_ns"][name]
        if part:
            yield Row(label, f"{format.percent(part / wall)}, {format.duration(part / count)} per inference", metric)
    for node in document["largest"][:LARGEST]:
        roof = f", {format.percent(node['ideal_ns'] / node['work_ns'])} of its roof" \
            if node["ideal_ns"] and node["work_ns"] else ""
        yield Row(format.name(node["name"], 80),
                  f"{format.duration(node['work_ns'])} in the profile, {node['side']}{roof}")
    yield Row("Evidence", f"{document['told_by']}; {format.plural(document['nodes'], 'node')}, "
                         f"{format.plural(count, 'inference')}")
