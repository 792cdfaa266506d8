"""Counters of energy: of the processor's packages by RAPL, and what any counter of energy has.

A counter counts all that its hardware does, for any program. Documentation/power/powercap/powercap.rst; since Linux
5.10 only root reads RAPL's (CVE-2020-8694).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from aaco.core.host import text
from aaco.core.readings import Absent

POWERCAP = Path("/sys/class/powercap")
NO_COUNTER = "no counter of the processor's packages (RAPL)"


class EnergyCounter(Struct, frozen=True):
    """Counters that are read together. what: of which hardware; read: their values, each from 0 again after its range;
    per_joule: of their unit.
    """

    what: str
    read: Callable[[], tuple[int, ...]]
    ranges: tuple[int, ...]
    per_joule: float
    close: Callable[[], None] = lambda: None

    def joules(self, before: tuple[int, ...], after: tuple[int, ...]) -> float:
        """Return the energy between two readings, J; a counter may have started again once."""
        steps = ((end - start) % most for start, end, most in zip(before, after, self.ranges, strict=True))
        return sum(steps) / self.per_joule


def of_packages(root: Path = POWERCAP) -> EnergyCounter:
    """Return the counter of all packages of the processor. Raise Absent where there is none, or it cannot be read."""
    zones = sorted(zone for zone in root.glob("intel-rapl:*") if text(zone / "name").startswith("package"))
    if not zones:
        raise Absent(NO_COUNTER)

    def read() -> tuple[int, ...]:
        return tuple(int(text(zone / "energy_uj")) for zone in zones)

    ranges = tuple(int(text(zone / "max_energy_range_uj")) + 1 for zone in zones)
    read()
    return EnergyCounter("the processor's packages", read, ranges, 1e6)
