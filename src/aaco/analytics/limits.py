"""Compare readings with the limits in the settings: fine, a warning, or bad."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from aaco.core.config import Analysis
from aaco.core.readings import Reading

LEVELS = ("ok", "warning", "bad")


class Level(Struct, frozen=True):
    """A reading's level, and the limit that it reached (for "ok": the one that it did not reach)."""

    reading: Reading
    level: str
    limit: float


def levels(readings: Mapping[str, Reading], settings: Analysis) -> list[Level]:
    """Return the level of every measured reading that has limits, the worst first."""
    limits = {name: value for name, value in settings.model_dump().items() if isinstance(value, tuple)}
    judged = [_level(readings[name], *limits[name]) for name in limits
              if name in readings and readings[name].value is not None]
    return sorted(judged, key=lambda row: -LEVELS.index(row.level))


def _level(reading: Reading, warning: float, bad: float) -> Level:
    value = reading.value or 0.0
    if value >= bad:
        return Level(reading, "bad", bad)
    return Level(reading, "warning" if value >= warning else "ok", warning)
