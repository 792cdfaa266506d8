"""From where on a device is warm, and which reasons for its clock are throttling."""

from __future__ import annotations

from collections.abc import Iterable

WARM_C = 75.0  # where device_temperature_max_c stops to be fine
# By the names NVML gives them: an idle device, a clock that was asked for, and a clock that follows another device's.
NOT_HELD_DOWN = frozenset(("gpu_idle", "applications_clocks_setting", "display_clock_setting", "sync_boost"))


def throttling(reasons: Iterable[str]) -> list[str]:
    """Those of a clock's reasons that hold it down, for heat, power or current; a bit without a name is none."""
    return [reason for reason in reasons if reason not in NOT_HELD_DOWN and not reason.startswith("bit_")]
