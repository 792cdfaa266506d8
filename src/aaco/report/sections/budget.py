"""Where the wall time of a trace went by what limited it, as a row of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aaco.analytics.explanation import Explanation
from aaco.report.rows import Row

PARTS = {"arithmetic": "compute_limited_pct", "memory": "memory_limited_pct",
         "single reads": "memory_latency_limited_pct", "kernels of unknown limit": "unplaced_kernel_pct",
         "transfers": "transfer_limited_pct", "launching": "launch_limited_pct", "pauses of the host": "host_pause_pct",
         "waits of the host": "sync_limited_pct", "another process on the device": "shared_device_limited_pct"}
OF_CPUS = {"arithmetic": "node_compute_pct", "memory": "node_memory_pct", "nodes of unknown limit": "node_unplaced_pct",
           "overhead of the runtime": "runtime_overhead_pct", "own threads": "thread_wait_pct",
           "other load": "contended_pct", "not explained": "unexplained_pct"}
LEAST_PCT = 0.5


def rows(explanation: Explanation) -> Iterator[Row]:
    """The shares that are half a per cent or more, the largest first; no row where no budget was made."""
    yield from _row(explanation, PARTS, "device_limited_pct", "of the {}")
    yield from _row(explanation, OF_CPUS, "node_compute_pct", "of the clean inferences; other load by the {}")


def _row(explanation: Explanation, parts: Mapping[str, str], told_by: str, whole: str) -> Iterator[Row]:
    read = {label: reading.value for label, metric in parts.items()
            if (reading := explanation.readings.get(metric)) is not None and reading.value is not None}
    shown = sorted(((value, label) for label, value in read.items()), reverse=True)
    text = ", ".join(f"{label} {value:.0f} %" for value, label in shown if value >= LEAST_PCT)
    if text:
        yield Row("Wall time", f"{text} ({whole.format(explanation.readings[told_by].method)})", told_by)
