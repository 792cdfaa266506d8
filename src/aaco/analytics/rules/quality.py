"""Conditions of the measurement itself, shown beside the class: they do not name a bottleneck."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "METHODS sections 1 and 2"


@rule(label="warmup_instability", kind="condition", source=SOURCE,
      advice=("give it more warm-up: aaco run --warmup N, with N at least warmup_iterations_needed",))
def warmup_instability(warmup_shortfall: Reading) -> Iterator[Evidence]:
    """The first measured iterations still belong to the warm-up."""
    yield warmup_shortfall.above(1, "measured iterations before the steady state", essential=True)


@rule(label="noisy_latency", kind="condition", source=SOURCE,
      advice=("quiet the machine, or measure in more fresh processes: aaco run --processes 5, or of a command "
              "aaco profile --runs 20",))
def noisy_latency(latency_cov_pct: Reading) -> Iterator[Evidence]:
    """Latency varies so much that small changes cannot be seen."""
    yield latency_cov_pct.above(10, "coefficient of variation", essential=True)


@rule(label="scheduler_contention", kind="condition", source=SOURCE,
      advice=("find the other load with top, pin the run to idle cores, or stop what competes",))
def scheduler_contention(scheduler_interference: Reading) -> Iterator[Evidence]:
    """The measured threads often waited for a CPU."""
    yield scheduler_interference.above(0.05, "run-queue wait per second", essential=True)
