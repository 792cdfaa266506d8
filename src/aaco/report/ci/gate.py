"""A gate's report as text for a terminal, and the texts of a check that every form uses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from aaco.core.words import in_percent
from aaco.report import format

if TYPE_CHECKING:
    from aaco.governance.gate import Check, Report

COLUMNS, LABEL = 100, 13
_row = partial(format.labelled, width=LABEL, columns=COLUMNS)
QUIET = ("equivalent", "kept", "skipped")


def render(report: Report) -> str:
    """Return the report as lines, the worst first. Unchanged checks are only counted."""
    return "\n".join(_lines(report)) + "\n"


def headline(report: Report) -> str:
    """Return the report in one line."""
    counts = dict.fromkeys((check.outcome for check in report.checks), 0)
    for check in report.checks:
        counts[check.outcome] += 1
    failed = sum(benchmark.error_code is not None for benchmark in report.benchmarks)
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items()]
    parts += [f"{format.plural(failed, 'benchmark')} failed to run"] if failed else []
    missing = sum(benchmark.outcome == "no_baseline" for benchmark in report.benchmarks)
    parts += [f"{missing} without a baseline"] if missing else []
    return f"{report.status.upper()}: suite {report.suite}: {', '.join(parts) or 'nothing was compared'}"


def measured(check: Check) -> str:
    """Return the effect with its interval, the smallest detectable change, and the noise."""
    if check.kind == "objective":
        if check.current_value is None or check.limit is None:
            return format.NA
        value = format.quantity(check.current_value, check.unit, *(check.ci or (None, None)))
        return f"{value}, limit {format.quantity(check.limit, check.unit)}"
    if check.effect_pct is None or check.baseline_value is None or check.current_value is None:
        return format.NA
    before, after = (format.quantity(value, check.unit) for value in (check.baseline_value, check.current_value))
    seen = f"smallest visible {percent(check.mde80_pct)}, noise {percent(check.noise_pct)}"
    return f"{before} -> {after}, {effect(check)}; {seen}"


def effect(check: Check) -> str:
    """Return the change with its interval; positive is worse."""
    if check.kind == "objective" or check.effect_pct is None:
        return ""
    return format.change(check.effect_pct, *(check.ci or (None, None)))


def percent(value: float | None) -> str:
    """Return a percentage, or that it is not known."""
    return "not known" if value is None else in_percent(value)


def notes(report: Report) -> Iterator[str]:
    """Yield what is not a check: failures of the tool, missing baselines, and stale entries of the ignore list."""
    for benchmark in report.benchmarks:
        if benchmark.error_code is not None:
            yield (f"{benchmark.name}: the tool failed (exit {benchmark.error_code}), which says nothing of its speed: "
                   f"{benchmark.why}")
        if benchmark.outcome == "no_baseline":
            yield f"{benchmark.name}: no baseline: {benchmark.why}"
    for entry in report.ignored:
        if entry.state == "expired":
            yield (f"ignore of {entry.metric} of {entry.benchmark} ended on {entry.until} and overlooks nothing any "
                   f"more: {entry.reason}")
        elif entry.state == "unused":
            yield f"ignore of {entry.metric} of {entry.benchmark} overlooks nothing: {entry.reason}"


def _lines(report: Report) -> Iterator[str]:
    yield headline(report)
    loud = [check for check in report.checks if check.outcome not in QUIET]
    if loud:
        yield ""
    for check in loud:
        yield from _row(check.outcome, f"{check.benchmark} {check.metric}: {measured(check)}; {check.why}")
    if listed := list(notes(report)):
        yield ""
        for note in listed:
            yield from _row("note", note)
