"""The energy of the loads of a sweep: the readings of a single load, as text for a row of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aaco.analytics.llm.load_sweep import ENERGY
from aaco.core.readings import Reading
from aaco.report import format

MOST_REASONS = 3  # that a line gives; every session has its own


def text(readings: Mapping[str, Reading]) -> str:
    """Return the energy of an output token and the power during the load; empty if both are absent."""
    return "; ".join(filter(None, (
        _of("devices", readings, "device_energy_per_output_token_j", "device_power_mean_w"),
        _of("processor", readings, "package_energy_per_output_token_j", "package_power_mean_w"))))


def absent(loads: Iterable[Mapping[str, Reading]]) -> str:
    """Return the reasons of the readings that are absent; empty if all were measured."""
    reasons = list(dict.fromkeys(reading.why_absent for readings in loads for reading in readings.values()
                                 if reading.metric in ENERGY and reading.value is None))
    more = [f"and {format.plural(len(reasons) - MOST_REASONS, 'other reason')}"] if len(reasons) > MOST_REASONS else []
    return "; ".join(reasons[:MOST_REASONS] + more)


def _of(hardware: str, readings: Mapping[str, Reading], energy: str, power: str) -> str:
    """Return those of both readings that were measured, of one kind of hardware."""
    shown = [format.reading(reading) + per for name, per in ((energy, " per output token"), (power, ""))
             if (reading := readings.get(name)) and reading.value is not None]
    return f"{hardware} {', '.join(shown)}" if shown else ""
