"""Decide what limits a kernel, once for every screen, by what was recorded of its name (docs/concepts/taxonomy.md).

The first rule whose evidence all holds names the class: by counters, else by its operators' shapes under the roof of
the unit that it used, else by its name, else `unclear`. Missing values hold nothing. A kernel that is far from every
roof is called limited by latency only if its waits were counted, or too few waves ran to cover latency; a product hides
it within a wave, so of products only counted waits say so. The same decision gives the part of the time budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.bottleneck.costs import ShapedWork
from aaco.analytics.kernels import families
from aaco.analytics.roofline import units
from aaco.analytics.roofline.limiters import (
    COMPUTE_FAMILIES,
    FEW_WAVES_PCT,
    LONG_NS,
    MEMORY_FAMILIES,
    NARROW_TILE,
    SMALLEST_ITEMS,
    WAITS_FOR_MEMORY,
    Limiter,
    spins,
)
from aaco.analytics.roofline.placement import LATENCY as NOTHING_NEAR
from aaco.analytics.streaming.communication import communicates
from aaco.core.readings import Evidence, Reading
from aaco.tracelake.document_schemas.answers import ClassifiedKernel, KernelFacts, Signal

CLASSES = ("communication", "tiny", "divergence", "lds", "memory_bandwidth", "compute_throughput", "scalar",
           "occupancy", "memory_latency", "latency", "unclear")
Rule = tuple[str, tuple[Evidence, ...]]
# A kernel that reaches half of a ceiling has little else that limits it; below a third neither ceiling explains it.
NEAR, FAR = 0.5, 0.33
HALF_THE_LANES = 0.5
CONFLICTS = 0.3  # of the cycles in which local memory is indexed
ALL_SCALAR = 1.0  # scalar instructions for each vector instruction
FEW_WAVES = 0.25  # of the waves that fit
_NEAREST = {"compute_throughput": "arithmetic is the nearest roof", "memory_bandwidth": "memory is the nearest roof",
            "lds": "local memory is the nearest roof"}
_BY_NAME = ("median_ns", "tile_side")
_PARTS = {"communication": Limiter.COMMUNICATION, "compute_throughput": Limiter.COMPUTE,
          "memory_bandwidth": Limiter.MEMORY, "memory_latency": Limiter.MEMORY_LATENCY}
_OF_ITS_SIDE = ("tiny", "divergence", "scalar", "occupancy")  # no roof, but its time is spent on one side of the ridge


def classify(facts: KernelFacts) -> ClassifiedKernel:
    """Return one kernel name with its class."""
    looked_at: list[Evidence] = []
    for label, evidence in _rules(facts):
        if all(condition.holds for condition in evidence):
            return _classify_as(facts, label, evidence)
        looked_at += [condition for condition in evidence if condition.holds is not None]
    return _classify_as(facts, "unclear", tuple(dict.fromkeys(looked_at)))


def _classify_as(facts: KernelFacts, label: str, evidence: tuple[Evidence, ...]) -> ClassifiedKernel:
    signals = [Signal(signal=condition.reading.metric, value=condition.reading.value, threshold=condition.threshold,
                      direction=condition.direction, holds=condition.holds, because=condition.because)
               for condition in evidence]
    by_name = label in _NEAREST and all(condition.reading.metric in _BY_NAME for condition in evidence)
    values = facts.model_dump() | ({"by": "name"} if by_name else {})
    return ClassifiedKernel(**values, label=label, evidence=signals, part=_part(facts, label).name.lower())


def _part(facts: KernelFacts, label: str) -> Limiter:
    """Return the part of the time budget: of a class that names no roof the side of the ridge, as far as that shows."""
    if label in _OF_ITS_SIDE:
        label = next((roof for roof, evidence in (*_nearest(facts, 0.0), *_by_ridge(facts), *_by_name(facts, 0.0))
                      if all(condition.holds for condition in evidence)), "unclear")
    return _PARTS.get(label, Limiter.KERNEL)


def _rules(facts: KernelFacts) -> Iterator[Rule]:
    """Yield each class with all the evidence that it needs, in the order of the rules."""
    length = Reading("median_ns", "ns", facts.median_ns)
    if facts.communicates:
        yield "communication", (length.above(0.0, "moves data between devices: by its name"),)
    yield "tiny", (length.below(facts.short_ns, "shorter than a launch"),)
    if spins(facts.kernel_name):
        return
    lanes = _reading(facts, "lanes_ratio")
    yield "divergence", (lanes.below(HALF_THE_LANES, "most lanes idle in vector instructions"),)
    yield "lds", (_reading(facts, "conflict_ratio").above(CONFLICTS, "bank conflicts in local memory"),)
    yield from _near(facts)
    scalar = _reading(facts, "scalar_ratio").above(ALL_SCALAR, "more scalar than vector instructions")
    yield "scalar", (scalar, _far(facts)[0])
    yield from _waiting(facts, length)
    yield from _nearest(facts, NOTHING_NEAR)
    if facts.compute_share is None or facts.memory_share is None:
        yield from _by_ridge(facts)
        if facts.ridge_ratio is None:
            yield from _by_name(facts, LONG_NS)


def _near(facts: KernelFacts) -> Iterator[Rule]:
    """Yield the roofs; of several that are near, the nearest limits."""
    compute, memory, local = (_reading(facts, name) for name in ("compute_share", "memory_share", "lds_share"))
    lds = "lds", (local.above(NEAR, "local memory is near its roof"),)
    if (facts.lds_share or 0.0) >= max(facts.compute_share or 0.0, facts.memory_share or 0.0):
        yield lds
    if (facts.memory_share or 0.0) >= (facts.compute_share or 0.0):
        yield "memory_bandwidth", (memory.above(NEAR, "memory is near its roof"),)
    yield "compute_throughput", (compute.above(NEAR, "arithmetic is near its roof"),)
    yield "memory_bandwidth", (memory.above(NEAR, "memory is near its roof"),)
    yield lds


def _far(facts: KernelFacts) -> tuple[Evidence, ...]:
    far: tuple[Evidence, ...] = (_reading(facts, "compute_share").below(FAR, "far from the compute roof"),
                                 _reading(facts, "memory_share").below(FAR, "far from the memory roofs"))
    if facts.lds_share is not None:
        far += (_reading(facts, "lds_share").below(FAR, "far from local memory's roof"),)
    return far


def _waiting(facts: KernelFacts, length: Reading) -> Iterator[Rule]:
    """Yield the classes of kernels that wait: by counted waits, and where products are none by how few waves ran."""
    waves = _reading(facts, "occupancy_ratio")
    latency, waits = _latency(facts)
    far = _far(facts) if facts.memory_share is not None or waits else ()
    few_waves = (waves.below(FEW_WAVES_PCT / 100, "too few waves to cover latency"),
                 length.above(LONG_NS, "long enough to wait"))
    if facts.family in COMPUTE_FAMILIES:
        if waits:
            yield latency, (*waits, *far)
        return
    if facts.memory_share is None:
        yield latency, (*few_waves, *waits)
        return
    yield latency, (*few_waves, *waits, *far)
    yield "occupancy", (waves.below(FEW_WAVES, "few of the waves that fit"), *far)
    if waits:
        yield latency, (*waits, *far)


def _latency(facts: KernelFacts) -> tuple[str, tuple[Evidence, ...]]:
    """Return the class of a kernel that waits, by what most of its waits are for; memory's if they were not counted."""
    waits = _reading(facts, "memory_wait_share")
    if waits.value is None:
        return "memory_latency", ()
    if waits.value < WAITS_FOR_MEMORY:
        return "latency", (waits.below(WAITS_FOR_MEMORY, "most waits are for its own instructions"),)
    return "memory_latency", (waits.above(WAITS_FOR_MEMORY, "most waits are for memory"),)


def _nearest(facts: KernelFacts, least: float) -> Iterator[Rule]:
    """Yield the roof that needs most of the kernel's time, if that is at least this share."""
    shares = {"memory_bandwidth": facts.memory_share, "compute_throughput": facts.compute_share,
              "lds": facts.lds_share}
    if shares["memory_bandwidth"] is not None and shares["compute_throughput"] is not None:
        roof = max(shares, key=lambda name: shares[name] or 0.0)
        name = {"memory_bandwidth": "memory_share", "compute_throughput": "compute_share"}.get(roof, "lds_share")
        yield roof, (_reading(facts, name).above(least, _NEAREST[roof]),)


def _by_ridge(facts: KernelFacts) -> Iterator[Rule]:
    """Yield the side of the ridge that shapes say, where no share of a roof is known."""
    ratio = _reading(facts, "ridge_ratio")
    if facts.compute_share is None:
        sides = ("compute_throughput", ratio.above(1.0, "its shapes need more time for arithmetic than for bytes")), \
            ("memory_bandwidth", ratio.below(1.0, "its shapes need more time for bytes than for arithmetic"))
        yield from ((roof, (evidence,)) for roof, evidence in sides)


def _by_name(facts: KernelFacts, least_ns: float) -> Iterator[Rule]:
    """Yield what only the name says."""
    length, side = Reading("median_ns", "ns", facts.median_ns), _reading(facts, "tile_side")
    if facts.family in MEMORY_FAMILIES:
        yield "memory_bandwidth", (length.above(least_ns, f"{facts.family} kernels pass over memory: by their family"),)
    elif facts.family == "conv":
        yield "compute_throughput", (length.above(least_ns, "convolutions compute: by their family"),)
    elif facts.family in ("gemm", "attention"):
        yield "memory_bandwidth", (side.below(NARROW_TILE, "a product with few rows or columns: by its name"),)
        yield "compute_throughput", (side.above(NARROW_TILE + 1, "a product of large tiles: by its name"),)


def _reading(facts: KernelFacts, name: str) -> Reading:
    value = getattr(facts, name)
    return Reading(name, "ratio", value, "" if value is not None else "not recorded")


def facts_of(row: Mapping[str, Any], short_ns: float, counters: Mapping[str, float], placed: Mapping[str, Any] | None,
             shaped: ShapedWork | None) -> KernelFacts:
    """Return the facts of one kernel name.

    row: kernel_name, family, calls, total_ns, median_ns, occupancy_pct (0: unknown), items. counters: sums by name.
    placed: medians of kernel_roofline. shaped: what its operators' shapes say.
    """
    shares, by = _shares(placed or {}, shaped)
    waves = row["occupancy_pct"] or (placed or {}).get("occupancy_limit_pct") or _at_most(row.get("items"))
    return KernelFacts(
        kernel_name=row["kernel_name"], family=row["family"], calls=row["calls"], total_ns=row["total_ns"],
        median_ns=row["median_ns"], short_ns=short_ns,
        lanes_ratio=_ratio(counters, "SQ_THREAD_CYCLES_VALU", "SQ_ACTIVE_INST_VALU", 64),
        conflict_ratio=_ratio(counters, "SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"),
        scalar_ratio=_ratio(counters, "SQ_INSTS_SALU", "SQ_INSTS_VALU"),
        occupancy_ratio=None if waves is None else waves / 100,
        memory_wait_share=(placed or {}).get("memory_wait_share"),
        tile_side=_tile_side(row["kernel_name"], row["family"]),
        communicates=communicates(row["kernel_name"]), by=by, **shares)


def _shares(placed: Mapping[str, Any], shaped: ShapedWork | None) -> tuple[dict[str, Any], str]:
    """Return the shares of the roofs, and their source."""
    memory = [value for name in ("dram_share", "l2_share", "l1_share") if (value := placed.get(name)) is not None]
    whole = placed.get("compute_share") is not None and memory
    if whole or (shaped is None and (placed.get("compute_share") is not None or memory)):
        return {"compute_share": placed.get("compute_share"), "memory_share": max(memory, default=None),
                "lds_share": placed.get("lds_share"), "rate": placed.get("rate")}, "counters"
    if shaped is None:
        return {}, "name"
    return {"compute_share": shaped.compute_share, "memory_share": shaped.memory_share, "rate": shaped.rate,
            "ridge_ratio": shaped.ridge_ratio}, "shapes"


def _tile_side(name: str, family: str | None) -> int | None:
    """Return the shorter side of a product's tile, 1 of a product with a vector; None if the name has none."""
    if family == "attention":
        return 1 if units.reads_a_cache(name) else None
    if family != "gemm":
        return None
    if units.is_matvec(name):
        return 1
    sides = [int(side) for side in (families.decode(name).tile or "").split("x")[:2] if side.isdigit()]
    return min(sides) if len(sides) == 2 else None


COUNTERS = ("SQ_THREAD_CYCLES_VALU", "SQ_ACTIVE_INST_VALU", "SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE",
            "SQ_INSTS_SALU", "SQ_INSTS_VALU")


def _at_most(items: float | None) -> float | None:
    """Return the largest part of a device, in per cent, that so many work-items fill; None if that is no bound."""
    return 100 * items / SMALLEST_ITEMS if items and items <= SMALLEST_ITEMS else None


def _ratio(counters: Mapping[str, float], above: str, below: str, scale: float = 1.0) -> float | None:
    """Return the ratio of two counters; None if one was not recorded, or the divisor is zero."""
    if above not in counters or not counters.get(below):
        return None
    return counters[above] / (counters[below] * scale)
