"""The counter of energy of an NVIDIA device, by its driver: nvmlDeviceGetTotalEnergyConsumption, in mJ."""

from __future__ import annotations

import os
from collections.abc import Mapping

from aaco.collectors.gpu.nvml import LIBRARY, Driver, answered
from aaco.collectors.gpu.visible import visible
from aaco.collectors.host.rapl import EnergyCounter
from aaco.core.readings import Absent


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
