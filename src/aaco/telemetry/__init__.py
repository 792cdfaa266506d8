"""What this machine's devices tell at this moment, for exporters: nothing is started and nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from aaco.collectors import amd_sensors, amd_sysfs, nvml
from aaco.core.host import Host
from aaco.core.readings import Absent

_NVML = {"power_mw": ("power_w", 1e3), "power_cap_mw": ("power_cap_w", 1e3), "energy_mj": ("energy_j", 1e3)}


class Now(NamedTuple):
    """Rows as of gpu_events, with `vendor` and `name`, what is not told left out; and why a vendor has none."""

    devices: list[Mapping[str, Any]]
    absent: list[str]


def now(host: Host | None = None, library: str = nvml.LIBRARY) -> Now:
    """Ask every NVIDIA and AMD device of this machine once."""
    told = Now([], [])
    for ask in (partial(_nvidia, library), partial(_amd, host or Host())):
        try:
            told.devices.extend(ask())
        except Absent as reason:
            told.absent.append(str(reason))
    return told


def _nvidia(library: str) -> list[Mapping[str, Any]]:
    driver = nvml.Driver(library)
    try:
        return [_of_nvml(device.name, dict(zip(nvml.FIELDS, driver.sample(device), strict=True)))
                for device in driver.devices()]
    finally:
        driver.close()


def _of_nvml(name: str, told: dict[str, int]) -> Mapping[str, Any]:
    known = {field: value for field, value in told.items() if value >= 0}
    row: dict[str, Any] = {"vendor": "nvidia", "name": name}
    if "reasons" in known:
        row["throttle_reasons"] = nvml.named(known.pop("reasons"))
    for field, value in known.items():
        column, units = _NVML.get(field, (field, 1.0))
        row[column] = value / units
    return row | {"device_id": told["device_id"]}


def _amd(host: Host) -> list[Mapping[str, Any]]:
    rows = [(device, amd_sensors.told(device)) for device in amd_sensors.devices(host)]
    return [{"vendor": "amd", "device_id": device.index, **amd_sysfs.columns(told)} for device, told in rows]
