"""Where the wall time went by what limited it, as a row of text for every report; and the words for its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aaco.analytics.explanation import Explanation
from aaco.report import format
from aaco.report.rows import Row

WORDS = {"compute": "arithmetic", "memory": "memory", "memory_latency": "memory latency",
         "kernel": "kernels of unknown limit", "communication": "communication",
         "straggler": "waiting for a late rank", "local_copy": "copies on the device", "transfer": "transfers",
         "copy_wait": "waits in copies", "launch": "launching", "pause": "pauses of the host",
         "sync": "waits of the host", "relaunch": "launching again after waits",
         "shared_device": "another process on the device", "kernel_wait": "the way from kernel to kernel",
         "noise": "noise of the system", "throttled": "throttling", "unknown": "idle for no known reason"}
# The readings that together are the whole budget (budget.SHARES), each in the words of its largest part.
OF_DEVICES = {"compute_limited_pct": WORDS["compute"], "memory_limited_pct": WORDS["memory"],
              "memory_latency_limited_pct": WORDS["memory_latency"], "unplaced_kernel_pct": WORDS["kernel"],
              "exposed_communication_pct": WORDS["communication"], "straggler_limited_pct": WORDS["straggler"],
              "transfer_limited_pct": WORDS["transfer"], "launch_tax_pct": WORDS["launch"],
              "host_pause_pct": WORDS["pause"], "sync_limited_pct": WORDS["sync"],
              "shared_device_limited_pct": WORDS["shared_device"], "other_idle_pct": "idle for other reasons"}
OF_CPUS = {"node_compute_pct": "arithmetic", "node_memory_pct": "memory", "node_unplaced_pct": "nodes of unknown limit",
           "runtime_overhead_pct": "overhead of the runtime", "thread_wait_pct": "own threads",
           "contended_pct": "other load", "unexplained_pct": "not explained"}
LEAST = 0.005  # of the wall


def rows(explanation: Explanation) -> Iterator[Row]:
    """Yield the shares that are half a per cent or more, the largest first; no row where no budget was made."""
    yield from _row(explanation, OF_DEVICES, "device_limited_pct", "of the {}")
    yield from _row(explanation, OF_CPUS, "node_compute_pct", "of the clean inferences; other load by the {}")


def _row(explanation: Explanation, words: Mapping[str, str], told_by: str, whole: str) -> Iterator[Row]:
    if not (budget := explanation.readings.get(told_by)) or budget.value is None:
        return
    shares = {metric: reading.value / 100 for metric in words
              if (reading := explanation.readings.get(metric)) is not None and reading.value is not None}
    largest = sorted(shares, key=lambda metric: (-shares[metric], words[metric]))
    text = ", ".join(f"{words[metric]} {format.percent(shares[metric])}" for metric in largest
                     if shares[metric] >= LEAST)
    if text:
        yield Row("Wall time", f"{text} ({whole.format(budget.method)})", told_by)
