"""What this machine's devices tell at this moment, for exporters: nothing is started and nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from aaco.collectors import amd_sensors, amd_sysfs, nvml
from aaco.core.host import Host
from aaco.core.readings import Absent


class Now(NamedTuple):
    """Rows as of gpu_events, with `vendor` and `name`, what is not told left out; and why a vendor has none."""

    devices: list[Mapping[str, Any]]
    absent: list[str]


def now(host: Host | None = None, library: str = nvml.LIBRARY) -> Now:
    """Ask every NVIDIA and AMD device of this machine once."""
    told = Now([], [])
    for ask in (partial(nvml.answered, partial(_nvidia, library)), partial(_amd, host or Host())):
        try:
            told.devices.extend(ask())
        except Absent as reason:
            told.absent.append(str(reason))
    return told


def _nvidia(library: str) -> list[Mapping[str, Any]]:
    driver = nvml.Driver(library)
    try:
        return [{"vendor": "nvidia", "name": device.name,
                 **nvml.columns(dict(zip(nvml.FIELDS, driver.sample(device), strict=True)))}
                for device in driver.devices()]
    finally:
        driver.close()


def _amd(host: Host) -> list[Mapping[str, Any]]:
    rows = [(device, amd_sensors.told(device)) for device in amd_sensors.devices(host)]
    return [{"vendor": "amd", "device_id": device.index, **amd_sysfs.columns(told)} for device, told in rows]
