"""Waits before a timed pass until the devices are cool: below the warning limit, and with no clock held down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aaco.analytics.heat import WARM_C, throttling
from aaco.collectors import amd_sensors, nvml
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.core.show import Show

PERIOD_S = 1.0


@dataclass(frozen=True)
class Heat:
    """What one device tells of its heat now; None where it does not."""

    device: str
    temp_c: float | None
    reasons: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Waited:
    """How long a pass waited, for what at first (empty: nothing), and what was still so at its end.

    unknown: why no temperature could be read; None where one was.
    """

    waited_s: float
    because: tuple[str, ...]
    left: tuple[str, ...]
    unknown: str | None = None


Read = Callable[[], Sequence[Heat]]


def too_hot(heats: Sequence[Heat], limit_c: float = WARM_C) -> tuple[str, ...]:
    """Why the devices are not cool, a phrase each; what a device does not tell is no reason to wait."""
    warm = [f"{one.device} is at {one.temp_c:g} degC" for one in heats if one.temp_c is not None
            and one.temp_c >= limit_c]
    held = [f"{one.device} is held down: {reason}" for one in heats for reason in throttling(one.reasons or ())]
    return (*warm, *held)


def wait(read: Read, at_most_s: float, clock: Callable[[], float] = time.monotonic,
         sleep: Callable[[float], None] = time.sleep) -> Waited:
    """Look once a second until the devices are cool, at most so many seconds."""
    began, heats = clock(), read()
    if all(one.temp_c is None for one in heats):
        return Waited(0.0, (), (), "no device tells its temperature (aaco doctor)")
    because = left = too_hot(heats)
    while left and (remains := at_most_s - (clock() - began)) > 0:
        sleep(min(PERIOD_S, remains))
        left = too_hot(read())
    return Waited(clock() - began if because else 0.0, because, left)


def before(at_most_s: float | None, show: Show) -> dict[str, Any] | None:
    """Wait for this machine's devices and say so; the account of it, or None where no wait was asked for."""
    if at_most_s is None:
        return None
    with devices() as read:
        waited = wait(read, at_most_s)
    show.step(said(waited))
    return {"waited_s": waited.waited_s, "because": list(waited.because), "left": list(waited.left),
            "unknown": waited.unknown}


def said(waited: Waited) -> str:
    """One line for a person."""
    if waited.unknown:
        return f"cooling: not waited: {waited.unknown}"
    if not waited.because:
        return "cooling: the devices are cool"
    ending = f"; measured all the same: {', '.join(waited.left)}" if waited.left else ""
    return f"cooling: waited {waited.waited_s:.1f} s, for {', '.join(waited.because)}{ending}"


@contextmanager
def devices(host: Host | None = None, library: str = nvml.LIBRARY) -> Iterator[Read]:
    """Reads the heat of every NVIDIA and AMD device that there is."""
    try:
        driver = nvml.answered(partial(nvml.Driver, library))
    except Absent:
        yield lambda: _amd(host or Host())
        return
    try:
        yield lambda: [*_nvidia(driver), *_amd(host or Host())]
    finally:
        with suppress(Absent):
            nvml.answered(driver.close)


def _nvidia(driver: nvml.Driver) -> list[Heat]:
    try:
        facts = nvml.answered(partial(_told, driver))
    except Absent:
        return []
    return [Heat(f"NVIDIA device {one.index}", None if told["temp_c"] < 0 else told["temp_c"],
                 None if told["reasons"] < 0 else tuple(nvml.named(told["reasons"]))) for one, told in facts]


def _told(driver: nvml.Driver) -> list[tuple[nvml.Device, dict[str, int]]]:
    return [(one, dict(zip(nvml.FIELDS, driver.sample(one), strict=True))) for one in driver.devices()]


def _amd(host: Host) -> list[Heat]:
    """By the edge, or by the junction where the edge has no sensor, as device_temperature_max_c."""
    try:
        found = [(one, amd_sensors.told(one)) for one in amd_sensors.devices(host)]
    except Absent:
        return []
    degrees = [(one, told.get("edge_millidegree", told.get("junction_millidegree"))) for one, told in found]
    return [Heat(f"AMD device {one.index}", None if degree is None else degree / 1000) for one, degree in degrees]
