"""From where on a device is warm or at its power limit, and which reasons for its clock are throttling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

WARM_C = 75.0  # where device_temperature_max_c stops to be fine
# By the names NVML gives them: an idle device, a requested clock, and a clock that follows another device's.
NOT_HELD_DOWN = frozenset(("gpu_idle", "applications_clocks_setting", "display_clock_setting", "sync_boost"))
# device_temperature_max_c beyond WARM_C, and shares of the power limit.
TEMPERATURE_LIMITS = ((95.0, "critically hot"), (85.0, "too hot"), (WARM_C, "warm"))
POWER_LIMITS = ((1.0, "at"), (0.9, "near"))


def throttling(reasons: Iterable[str]) -> list[str]:
    """Return those of a clock's reasons that hold it down, for heat, power or current; a bit without a name is none."""
    return [reason for reason in reasons if reason not in NOT_HELD_DOWN and not reason.startswith("bit_")]


def guard(temp_c: float | None, power_w: float | None, cap_w: float | None,
          reasons: Iterable[str] | None) -> Iterator[str]:
    """Yield warnings of a device's temperature and power during a measurement; nothing if all is well or unknown."""
    if held := throttling(reasons or ()):
        yield f"the clock was held down: {', '.join(held)}"
    if temp_c is not None and (hot := next((word for limit, word in TEMPERATURE_LIMITS if temp_c >= limit), None)):
        yield f"{hot}: {temp_c:g} degC"
    if power_w is not None and cap_w and (near := next(
            (word for share, word in POWER_LIMITS if power_w >= share * cap_w), None)):
        yield f"{near} its power limit: {power_w:.0f} of {cap_w:.0f} W"
