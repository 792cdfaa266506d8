"""Readings of this machine's devices at this moment, for exporters and for the cooldown; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from aaco.collectors.gpu import amd_sensors, amd_sysfs, nvml
from aaco.core.host import Host
from aaco.core.readings import Absent

NVIDIA, AMD = "nvidia", "amd"

Row = Mapping[str, Any]


class Now(NamedTuple):
    """Rows as of gpu_events, with `vendor` and `name`, without missing values; and why a vendor has none."""

    devices: list[Row]
    absent: list[str]


def now(host: Host | None = None, library: str = nvml.LIBRARY) -> Now:
    """Return one reading of every NVIDIA and AMD device of this machine."""
    with reader(host, library) as read:
        return read()


@contextmanager
def reader(host: Host | None = None, library: str = nvml.LIBRARY) -> Iterator[Callable[[], Now]]:
    """Yield a function that asks every device once; NVIDIA's library stays open from one call to the next."""
    ask_amd = partial(_read_amd, host or Host())
    try:
        driver = nvml.answered(partial(nvml.Driver, library))
    except Absent as reason:
        refused = partial(_refuse, str(reason))
        yield lambda: _ask(refused, ask_amd)
        return
    try:
        yield lambda: _ask(partial(nvml.answered, partial(_read_nvidia, driver)), ask_amd)
    finally:
        with suppress(Absent):
            nvml.answered(driver.close)


def _ask(*vendors: Callable[[], list[Row]]) -> Now:
    answers = Now([], [])
    for ask in vendors:
        try:
            answers.devices.extend(ask())
        except Absent as reason:
            answers.absent.append(str(reason))
    return answers


def _refuse(reason: str) -> list[Row]:
    raise Absent(reason)


def _read_nvidia(driver: nvml.Driver) -> list[Row]:
    return [{"vendor": NVIDIA, "name": device.name,
             **nvml.columns(dict(zip(nvml.FIELDS, driver.sample(device), strict=True)))}
            for device in driver.devices()]


def _read_amd(host: Host) -> list[Row]:
    return [{"vendor": AMD, "device_id": device.index, **amd_sysfs.columns(amd_sensors.read_values(device))}
            for device in amd_sensors.devices(host)]
