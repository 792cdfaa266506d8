"""Groups of counters by what they answer, for one who does not know their names: `--pmc memory,compute`.

A group is the counters of the formulas of its quantities (formulas.py). Counters of one quantity make sense together
only: they are a unit, which one execution counts. Of several formulas of a quantity the first is taken whose counters
the GPU has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from aaco.analytics.roofline.formulas import (
    L1,
    L2,
    LDS,
    MEMORY_WAIT,
    NVIDIA,
    OWN_WAIT,
    READ,
    WRITTEN,
    Formulas,
)

QUANTITIES = {"memory": (READ, WRITTEN), "compute": ("vector_", "matrix_"), "cache": (L2, L1, LDS),
              "occupancy": (MEMORY_WAIT, OWN_WAIT)}
# How full the compute units were: AMD's own derived counters, and Nsight Compute's. NVIDIA counts waits beside it.
OCCUPANCY_AMD = (("OccupancyPercent",), ("MeanOccupancyPerCU",), ("SQ_WAVES",))
OCCUPANCY_NVIDIA = (("sm__warps_active.avg.pct_of_peak_sustained_active",),)

Unit = tuple[str, ...]


def units(group: str, formulas: Formulas, listed: Collection[str] | None) -> list[Unit]:
    """Return the group's counters as the tool lists them, a unit per quantity; empty where the GPU counts nothing of
    it.

    listed: the names that the tool knows; None where it could not list them, and every one is taken to be there.
    """
    every = [_named(unit, listed) for unit in _wanted(group, formulas)]
    taken: dict[str, Unit] = {}
    for (quantity, _), unit in zip(_wanted(group, formulas), every, strict=True):
        if unit is not None:
            taken.setdefault(quantity, unit)
    return list(dict.fromkeys(taken.values()))


def _wanted(group: str, formulas: Formulas) -> Iterator[tuple[str, Unit]]:
    """Yield the quantities of a group, each with the counters of a formula of it, the best first."""
    for formula in formulas.quantities:
        if formula.quantity.startswith(QUANTITIES[group]):
            yield formula.quantity, tuple(formula.weights)
    if group == "compute":
        yield from ((name, (name,)) for name in formulas.matrix_work)
    if group == "occupancy":
        yield from ((unit[0], unit) for unit in (OCCUPANCY_NVIDIA if formulas is NVIDIA else OCCUPANCY_AMD))


def _named(wanted: tuple[str, Unit], listed: Collection[str] | None) -> Unit | None:
    """Return the counters by the names the tool has for them; None where one is not there."""
    found = [next((name for name in _spellings(counter) if listed is None or _base(name) in listed), None)
             for counter in wanted[1]]
    return None if None in found else tuple(name for name in found if name)


def _spellings(counter: str) -> list[str]:
    """Return the names a tool may have for a counter: the sum over a block's instances, EA0 or, before gfx940, EA."""
    names = [counter, *([counter.replace("TCC_EA0_", "TCC_EA_")] if counter.startswith("TCC_EA0_") else [])]
    summed = counter.startswith(("TCC_", "TCP_", "GL2C_"))
    return [*(f"{name}_sum" for name in names if summed), *names]


def _base(name: str) -> str:
    return name.partition(".")[0] if "__" in name else name
