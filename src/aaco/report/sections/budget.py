"""Where the wall time went by what limited it, as a row of text for every report; and the words for its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from aaco.analytics.diagnosis import ONLY_CAPTURED
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
IDLE = ("launch_tax_pct", "host_pause_pct", "sync_limited_pct", "shared_device_limited_pct", "other_idle_pct")
UNSURE = "idle, or work that was not recorded"
LEAST = 0.005  # of the wall


class WallTime(Struct, frozen=True):
    """What limited the wall time: (metric, words, share of 1) of each part, largest first; they sum to 1.

    whole: what it is the time of. metric: the reading of its method.
    """

    whole: str
    metric: str
    shares: tuple[tuple[str, str, float], ...]

    @property
    def named(self) -> tuple[tuple[str, str, float], ...]:
        """Return the parts of half a per cent or more."""
        return tuple(part for part in self.shares if part[2] >= LEAST)


def budgets(explanation: Explanation) -> Iterator[WallTime]:
    """Yield the budget of the devices, and that of a run on CPUs; neither where none was made, nor where the trace
    check says that no share of the time holds, nor of the capture of a graph, which ran nothing of the work.
    """
    if explanation.trust.harm("times") or explanation.diagnosis.abstained_because == ONLY_CAPTURED:
        return
    yield from _budget(explanation, OF_DEVICES, "device_limited_pct", "of the {}")
    yield from _budget(explanation, OF_CPUS, "node_compute_pct", "of the clean inferences; other load by the {}")


def rows(explanation: Explanation) -> Iterator[Row]:
    """Yield the shares that are half a per cent or more, the largest first; no row where no budget was made."""
    for budget in budgets(explanation):
        text = ", ".join(f"{words} {format.percent(share)}" for _, words, share in budget.named)
        if text:
            yield Row("Wall time", f"{text} ({budget.whole})", budget.metric)


def _budget(explanation: Explanation, words: Mapping[str, str], metric: str, whole: str) -> Iterator[WallTime]:
    reading = explanation.readings.get(metric)
    if reading is None or reading.value is None:
        return
    values = {name: part.value for name in words
              if (part := explanation.readings.get(name)) is not None and part.value is not None}
    parts = [(name, words[name], value / 100) for name, value in values.items()]
    if explanation.trust.harm("records"):
        parts = _one_idle_part(parts)
    yield WallTime(whole.format(reading.method), metric, tuple(sorted(parts, key=lambda part: (-part[2], part[1]))))


def _one_idle_part(parts: list[tuple[str, str, float]]) -> list[tuple[str, str, float]]:
    """Return the parts with all idle time as one: where records are missing nothing says why a device was idle."""
    idle = sum(share for name, _, share in parts if name in IDLE)
    return [part for part in parts if part[0] not in IDLE] + [("gpu_active_ratio", UNSURE, idle)]
