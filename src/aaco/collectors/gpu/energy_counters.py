"""Counters of energy: of the processor's packages by RAPL, of an NVIDIA device by its driver.

Either counts all that its hardware does, for any program. RAPL: Documentation/power/powercap/powercap.rst; since
Linux 5.10 only root reads its counters (CVE-2020-8694). NVML: nvmlDeviceGetTotalEnergyConsumption, in mJ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aaco.collectors.gpu.nvml import LIBRARY, Driver, answered
from aaco.collectors.gpu.visible import visible
from aaco.core.readings import Absent

POWERCAP = Path("/sys/class/powercap")
NO_COUNTER = "no counter of the processor's packages (RAPL)"


@dataclass(frozen=True)
class EnergyCounter:
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
    zones = sorted(zone for zone in root.glob("intel-rapl:*") if _text(zone / "name").startswith("package"))
    if not zones:
        raise Absent(NO_COUNTER)

    def read() -> tuple[int, ...]:
        return tuple(int(_text(zone / "energy_uj")) for zone in zones)

    ranges = tuple(int(_text(zone / "max_energy_range_uj")) + 1 for zone in zones)
    read()
    return EnergyCounter("the processor's packages", read, ranges, 1e6)


def of_device(number: int, environment: Mapping[str, str] = os.environ, library: str = LIBRARY) -> EnergyCounter:
    """Return the counter of the NVIDIA device that CUDA numbers so. Raise Absent."""
    driver = answered(lambda: Driver(library))
    try:
        devices = {device.index: device for device in driver.devices()}
        seen = visible([driver.seen(device) for device in devices.values()], environment)
        if "why_not" in seen:
            raise Absent(seen["why_not"])
        if number >= len(seen["devices"]) or not (seen["in_order"] or len(devices) == 1):
            raise Absent(f"which device is CUDA's number {number} is not known")
        device = devices[seen["devices"][number]]
        driver.energy_mj(device)
    except Absent:
        driver.close()
        raise
    return EnergyCounter("the device", lambda: (driver.energy_mj(device),), (1 << 64,), 1e3, driver.close)


def _text(path: Path) -> str:
    """Return a file's one line. Raise Absent."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise Absent(f"{path}: {error.strerror}") from error
