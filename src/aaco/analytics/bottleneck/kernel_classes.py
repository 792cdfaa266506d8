"""What limits single kernels: METHODS' kernel classes, by rules over what was recorded of each kernel name.

The first rule whose evidence all holds names the class; what was not recorded holds nothing, so a kernel of which only
the name is known is `unclear` unless its family leaves no doubt. Shares are of the device's theoretical ceilings: by
counters (kernel_roofline) where there are any, else by the work that the shapes of its operators tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from aaco.analytics.bottleneck.limiters import (
    COMPUTE_FAMILIES,
    FEW_WAVES_PCT,
    LONG_NS,
    MEMORY_FAMILIES,
    SMALLEST_ITEMS,
    WAITS_FOR_MEMORY,
)
from aaco.core.readings import Evidence, Reading

CLASSES = ("tiny", "divergence", "lds", "memory_bandwidth", "compute_throughput", "scalar", "occupancy",
           "memory_latency", "latency", "unclear")
# A kernel that reaches half of a ceiling has little else that limits it; below a third neither ceiling explains it.
NEAR, FAR = 0.5, 0.33
HALF_THE_LANES = 0.5
CONFLICTS = 0.3  # of the cycles in which local memory is indexed
ALL_SCALAR = 1.0  # scalar instructions for each vector instruction
FEW_WAVES = 0.25  # of the waves that fit


@dataclass(frozen=True)
class Facts:
    """What is known of a kernel name; None where it was not recorded. Medians over its executions.

    compute_share, memory_share (DRAM and caches, the largest), lds_share: of the theoretical ceilings. lanes_ratio:
    active lanes of vector instructions. conflict_ratio: of cycles with indexed local memory. scalar_ratio: scalar
    instructions per vector instruction. occupancy_ratio: waves, of those that fit, as measured, estimated or allowed.
    memory_wait_share: waits for memory, of those for memory and for the kernel's own instructions. by: counters,
    shapes, or name.
    """

    kernel_name: str
    family: str | None
    calls: int
    total_ns: int
    median_ns: float
    short_ns: float
    compute_share: float | None = None
    memory_share: float | None = None
    lds_share: float | None = None
    lanes_ratio: float | None = None
    conflict_ratio: float | None = None
    scalar_ratio: float | None = None
    occupancy_ratio: float | None = None
    memory_wait_share: float | None = None
    by: str = "name"


@dataclass(frozen=True)
class KernelClass:
    """A kernel name with its class and the evidence that decided; of an unclear one, what was looked at."""

    facts: Facts
    label: str
    evidence: tuple[Evidence, ...]

    def document(self) -> dict[str, Any]:
        """One entry of kernel_classes.json."""
        known = {field.name: getattr(self.facts, field.name) for field in fields(Facts)}
        return {**known, "class": self.label, "evidence": [
            {"signal": one.reading.metric, "value": one.reading.value, "threshold": one.threshold,
             "direction": one.direction, "holds": one.holds, "because": one.because} for one in self.evidence]}


def classify(facts: Facts) -> KernelClass:
    """The class of one kernel name."""
    looked_at: list[Evidence] = []
    for label, evidence in _rules(facts):
        if all(one.holds for one in evidence):
            return KernelClass(facts, label, evidence)
        looked_at += [one for one in evidence if one.holds is not None]
    return KernelClass(facts, "unclear", tuple(dict.fromkeys(looked_at)))


def _rules(facts: Facts) -> Iterator[tuple[str, tuple[Evidence, ...]]]:
    """Each class with all the evidence it takes, in the order in which they are asked."""
    compute, memory = _of(facts, "compute_share"), _of(facts, "memory_share")
    length, waves = Reading("median_ns", "ns", facts.median_ns), _of(facts, "occupancy_ratio")
    far: tuple[Evidence, ...] = (compute.below(FAR, "far from the compute roof"),
                                 memory.below(FAR, "far from the memory roofs"))
    if facts.lds_share is not None:
        far += (_of(facts, "lds_share").below(FAR, "far from local memory's roof"),)
    yield "tiny", (length.below(facts.short_ns, "shorter than a launch"),)
    yield "divergence", (_of(facts, "lanes_ratio").below(HALF_THE_LANES, "most lanes idle in vector instructions"),)
    yield "lds", (_of(facts, "conflict_ratio").above(CONFLICTS, "bank conflicts in local memory"),)
    local = _of(facts, "lds_share").above(NEAR, "local memory is near its roof")
    if (facts.lds_share or 0.0) >= max(facts.compute_share or 0.0, facts.memory_share or 0.0):
        yield "lds", (local,)  # of several roofs that are near, the nearest limits
    if (facts.memory_share or 0.0) >= (facts.compute_share or 0.0):
        yield "memory_bandwidth", (memory.above(NEAR, "memory is near its roof"),)
    yield "compute_throughput", (compute.above(NEAR, "arithmetic is near its roof"),)
    yield "memory_bandwidth", (memory.above(NEAR, "memory is near its roof"),)
    yield "lds", (local,)
    yield "scalar", (_of(facts, "scalar_ratio").above(ALL_SCALAR, "more scalar than vector instructions"), far[0])
    latency, waits = _latency(facts)
    lonely = (waves.below(FEW_WAVES_PCT / 100, "too few waves to cover latency"),
              length.above(LONG_NS, "long enough to wait"))
    yield latency, (*lonely, *waits, *far)
    yield "occupancy", (waves.below(FEW_WAVES, "few of the waves that fit"), *far)
    yield latency, (waves.above(FEW_WAVES, "enough waves"), *waits, *far)
    if facts.memory_share is None and facts.family not in COMPUTE_FAMILIES:
        yield latency, (*lonely, *waits)
    if facts.memory_share is None and facts.family in MEMORY_FAMILIES:
        yield "memory_bandwidth", (length.above(LONG_NS, f"{facts.family} kernels pass over memory: by their family"),)


def _latency(facts: Facts) -> tuple[str, tuple[Evidence, ...]]:
    """The class of a kernel that waits, by what most of its waits are for; memory's where they were not counted."""
    waits = _of(facts, "memory_wait_share")
    if waits.value is None:
        return "memory_latency", ()
    if waits.value < WAITS_FOR_MEMORY:
        return "latency", (waits.below(WAITS_FOR_MEMORY, "most waits are for its own instructions"),)
    return "memory_latency", (waits.above(WAITS_FOR_MEMORY, "most waits are for memory"),)


def _of(facts: Facts, name: str) -> Reading:
    value = getattr(facts, name)
    return Reading(name, "ratio", value, "" if value is not None else "not recorded")


def facts_of(row: Mapping[str, Any], short_ns: float, counters: Mapping[str, float], placed: Mapping[str, Any] | None,
             shaped: tuple[float, float] | None) -> Facts:
    """The facts of one kernel name.

    row: kernel_name, family, calls, total_ns, median_ns, occupancy_pct (0: unknown), items. counters: sums by name.
    placed: medians of kernel_roofline. shaped: shares of the compute and memory ceilings by its operators' shapes.
    """
    shares: dict[str, float | None] = {}
    if placed and placed.get("compute_share") is not None:
        memory = [value for name in ("dram_share", "l2_share", "l1_share") if (value := placed.get(name)) is not None]
        shares = {"compute_share": placed["compute_share"], "memory_share": max(memory, default=None),
                  "lds_share": placed.get("lds_share")}
    elif shaped:
        shares = {"compute_share": shaped[0], "memory_share": shaped[1]}
    waves = row["occupancy_pct"] or (placed or {}).get("occupancy_limit_pct") or _at_most(row.get("items"))
    return Facts(
        row["kernel_name"], row["family"], row["calls"], row["total_ns"], row["median_ns"], short_ns,
        lanes_ratio=_ratio(counters, "SQ_THREAD_CYCLES_VALU", "SQ_ACTIVE_INST_VALU", 64),
        conflict_ratio=_ratio(counters, "SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"),
        scalar_ratio=_ratio(counters, "SQ_INSTS_SALU", "SQ_INSTS_VALU"),
        occupancy_ratio=None if waves is None else waves / 100,
        memory_wait_share=(placed or {}).get("memory_wait_share"),
        by="counters" if placed and shares else "shapes" if shares else "name", **shares)


COUNTERS = ("SQ_THREAD_CYCLES_VALU", "SQ_ACTIVE_INST_VALU", "SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE",
            "SQ_INSTS_SALU", "SQ_INSTS_VALU")


def _at_most(items: float | None) -> float | None:
    """The most of a device, in per cent, that so many work-items fill; None where that is no bound."""
    return 100 * items / SMALLEST_ITEMS if items and items <= SMALLEST_ITEMS else None


def _ratio(counters: Mapping[str, float], above: str, below: str, scale: float = 1.0) -> float | None:
    """Of two counters; None where one was not recorded, or the divisor read zero."""
    if above not in counters or not counters.get(below):
        return None
    return counters[above] / (counters[below] * scale)
