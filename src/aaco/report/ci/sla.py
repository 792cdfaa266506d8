"""The outcomes of objectives as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aaco.report import format

if TYPE_CHECKING:
    from aaco.governance.sla import Outcome, Report

COLUMNS = 80
ORDER = ("fail", "warn", "skip", "pass")


def render(report: Report) -> str:
    """Return the text of a report, the worst objective first."""
    return "\n".join(_lines(report)) + "\n"


def headline(report: Report) -> str:
    """Return the report in one line."""
    counts = [f"{count} {status}" for status in ORDER
              if (count := sum(outcome.status == status for outcome in report.objectives))]
    return f"{report.status.upper()}: session {report.session_id} against policy {report.policy}: {', '.join(counts)}"


def line(outcome: Outcome) -> str:
    """Return an objective in one line: the measured value and the limit."""
    relation = "≤" if outcome.direction == "max" else "≥"
    limit = format.quantity(outcome.limit, outcome.unit)
    if outcome.value is None:
        return f"{outcome.metric} {relation} {limit}: n/a: {outcome.why}"
    value = format.quantity(outcome.value, outcome.unit, *(outcome.ci or (None, None)))
    return f"{outcome.metric} {value} {relation} {limit}: {outcome.why}"


def _lines(report: Report) -> Iterator[str]:
    yield from format.wrap(headline(report), COLUMNS)
    yield ""
    for outcome in sorted(report.objectives, key=lambda outcome: ORDER.index(outcome.status)):
        yield from format.hung(f"{outcome.status:<6}", line(outcome), COLUMNS)
