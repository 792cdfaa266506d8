"""Waits before a timed pass until the devices are cool: below the warning limit, and with no clock held down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from aaco.analytics.quality.thermal import WARM_C, throttling
from aaco.collectors.gpu import nvml
from aaco.core.host import Host
from aaco.core.show import Show
from aaco.steps.device import telemetry_now

PERIOD_S = 1.0


class Heat(Struct, frozen=True):
    """The thermal state that one device reports now; None if it does not."""

    device: str
    temp_c: float | None
    reasons: tuple[str, ...] | None = None


class Waited(Struct, frozen=True):
    """How long a pass waited, for what at first (empty: nothing), and what was still so at its end.

    unknown: why no temperature could be read; None where one was.
    """

    waited_s: float
    because: tuple[str, ...]
    left: tuple[str, ...]
    unknown: str | None = None


Read = Callable[[], Sequence[Heat]]


def too_hot(heats: Sequence[Heat], limit_c: float = WARM_C) -> tuple[str, ...]:
    """Return why the devices are not cool, a phrase each; a missing reading is no reason to wait."""
    warm = [f"{heat.device} is at {heat.temp_c:g} degC" for heat in heats if heat.temp_c is not None
            and heat.temp_c >= limit_c]
    held = [f"{heat.device} is held down: {reason}" for heat in heats for reason in throttling(heat.reasons or ())]
    return (*warm, *held)


def wait(read: Read, at_most_s: float, clock: Callable[[], float] = time.monotonic,
         sleep: Callable[[float], None] = time.sleep) -> Waited:
    """Look once a second until the devices are cool, at most so many seconds."""
    began, heats = clock(), read()
    if all(heat.temp_c is None for heat in heats):
        return Waited(0.0, (), (), "no device reports its temperature (aaco doctor)")
    because = left = too_hot(heats)
    while left and (remains := at_most_s - (clock() - began)) > 0:
        sleep(min(PERIOD_S, remains))
        left = too_hot(read())
    return Waited(clock() - began if because else 0.0, because, left)


def before(at_most_s: float | None, show: Show) -> dict[str, Any] | None:
    """Wait for this machine's devices and say so. Return the record of it, or None if no wait was requested."""
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
        return f"cooldown: not waited: {waited.unknown}"
    if not waited.because:
        return "cooldown: the devices are cool"
    ending = f"; measured all the same: {', '.join(waited.left)}" if waited.left else ""
    return f"cooldown: waited {waited.waited_s:.1f} s, for {', '.join(waited.because)}{ending}"


@contextmanager
def devices(host: Host | None = None, library: str = nvml.LIBRARY) -> Iterator[Read]:
    """Yield what reads the heat of every NVIDIA and AMD device that there is."""
    with telemetry_now.reader(host, library) as read:
        yield lambda: [_heat(row) for row in read().devices]


def _heat(row: telemetry_now.Row) -> Heat:
    """By the edge, or by the junction where the edge has no sensor, as device_temperature_max_c.

    Throttle reasons count only for NVIDIA: some AMD devices need two readings for them.
    """
    nvidia = row["vendor"] == telemetry_now.NVIDIA
    reasons = row.get("throttle_reasons") if nvidia else None
    return Heat(f"{'NVIDIA' if nvidia else 'AMD'} device {row['device_id']}", row.get("temp_c", row.get("hotspot_c")),
                None if reasons is None else tuple(reasons))
