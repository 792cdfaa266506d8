"""What limits the prefill, decode and mixed steps of a serving engine: the rules of a session, on each phase's budget.

The budget of a phase is the time from step to step: its kernels by what limits them, and the time in which the device
waits. Why it waits is known of the whole session only, so a phase is of a class of the device, or of none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aaco.analytics.bottleneck.budget import PROFILED
from aaco.analytics.diagnosis import UNCHECKED, UNKNOWN, diagnose
from aaco.analytics.serving.annotations import DECODE, MIXED, PREFILL
from aaco.analytics.serving.summary import COPIES, IDLE, IDLE_BEFORE, PhaseClass
from aaco.analytics.truth.trust import Trust
from aaco.core.advice import FactValues
from aaco.core.readings import Reading

IDLE_PARTS = (IDLE, IDLE_BEFORE)
# Readings that follow from a phase's budget, each with the parts that it sums.
SHARES: Mapping[str, tuple[str, ...]] = {
    "compute_limited_pct": ("compute",), "memory_limited_pct": ("memory",),
    "memory_latency_limited_pct": ("memory_latency",), "unplaced_kernel_pct": ("kernel",),
    "exposed_communication_pct": ("communication",), "transfer_limited_pct": (COPIES,),
    "device_limited_pct": ("compute", "memory", "memory_latency", "kernel", "communication"),
    "host_limited_pct": IDLE_PARTS}


def phase_classes(budgets: Iterable[tuple[str | None, int, Mapping[str, float]]], absent: Mapping[str, Reading],
                  facts: FactValues | None, trust: Trust = UNCHECKED, why_none: str = ""
                  ) -> tuple[PhaseClass, ...]:
    """Return the class of each phase that has steps, in the order of a request.

    budgets: phase, steps, and by part of the time budget the ns, of any number of groups of steps. absent: a reading of
    every metric; those that a budget does not give are absent here. facts: of the workload. trust: of the trace.
    why_none: why no phase has a class, "" where they may.
    """
    groups = list(budgets)
    return tuple(_class(phase, sum(count for _, count, _ in same), [parts for _, _, parts in same], absent, facts,
                        trust, why_none)
                 for phase in (PREFILL, DECODE, MIXED) if (same := [group for group in groups if group[0] == phase]))


def _class(phase: str, steps: int, budgets: Iterable[Mapping[str, float]], absent: Mapping[str, Reading],
           facts: FactValues | None, trust: Trust, why_none: str) -> PhaseClass:
    parts: dict[str, float] = {}
    for budget in budgets:
        for part, ns in budget.items():
            parts[part] = parts.get(part, 0.0) + ns
    if why_none:
        return PhaseClass(phase, steps, parts, None, None, why_none)
    verdict = diagnose(_readings(parts, phase, absent), facts, trust)
    why = verdict.abstained_because or ("" if verdict.confidence is not None else verdict.why_no_confidence)
    label = None if verdict.label == UNKNOWN else verdict.label
    return PhaseClass(phase, steps, parts, label, verdict.confidence, why)


def _readings(parts: Mapping[str, float], phase: str, absent: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return the readings of a phase: shares of its time, and all others absent."""
    total = sum(parts.values())
    idle = sum(parts.get(part, 0.0) for part in IDLE_PARTS) / total if total else 0.0
    why = f"the device waits {100 * idle:.0f} % of the time of {phase} steps; why is judged of the whole session alone"
    readings = {name: Reading(name, reading.unit, None, why) for name, reading in absent.items()}
    for name, summed in SHARES.items():
        share = 100 * sum(parts.get(part, 0.0) for part in summed) / total if total else None
        readings[name] = Reading(name, "pct", share, "" if total else "its steps ran nothing on a device",
                                 method=f"{PROFILED}, {phase} steps")
    return readings
