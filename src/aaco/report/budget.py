"""Where the wall time of a trace went by what limited it, as a row of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.explanation import Explanation
from aaco.report.rows import Row

PARTS = {"arithmetic": "compute_limited_pct", "memory": "memory_limited_pct",
         "single reads": "memory_latency_limited_pct", "kernels of unknown limit": "unplaced_kernel_pct",
         "transfers": "transfer_limited_pct", "launching": "launch_limited_pct", "pauses of the host": "host_pause_pct",
         "waits of the host": "sync_limited_pct"}
LEAST_PCT = 0.5


def rows(explanation: Explanation) -> Iterator[Row]:
    """The shares that are half a per cent or more, the largest first; no row where no budget was made."""
    known = {label: found for label, metric in PARTS.items()
             if (found := explanation.readings.get(metric)) is not None and found.value is not None}
    shown = sorted(((found.value or 0.0, label) for label, found in known.items()), reverse=True)
    text = ", ".join(f"{label} {value:.0f} %" for value, label in shown if value >= LEAST_PCT)
    if text:
        method = explanation.readings["device_limited_pct"].method
        yield Row("Wall time", f"{text} (of the {method})", "device_limited_pct")
