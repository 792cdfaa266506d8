"""A line of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from aaco.core.readings import Reading
from aaco.report import format

if TYPE_CHECKING:
    from aaco.analytics.explanation import Explanation


class Row(Struct, frozen=True):
    """One line of a report: label, text, and the metric that defines it (empty for a plain fact)."""

    label: str
    text: str
    metric: str = ""


def readings(explanation: Explanation, rows: tuple[tuple[str, str], ...]) -> Iterator[Row]:
    """Yield a row for each (label, metric): the value, or why it is absent."""
    for label, metric in rows:
        reading = explanation.readings.get(metric) or Reading(metric, "", None, "this version does not compute it")
        yield Row(label, format.banded(reading), metric)
