"""A gate's report as one comment on a change, the worst first; empty if nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aaco.report.ci import gate
from aaco.report.renderers.markdown import code, plain, table

if TYPE_CHECKING:
    from aaco.governance.gate import Check, Report

MOST = 30
HEADER = ("", "benchmark", "metric", "change", "from -> to", "smallest visible", "noise")
LIMIT = 60_000  # letters: GitHub takes 65,536


def marker(report: Report) -> str:
    """Return the hidden line that identifies this suite's comment, so that it can be replaced."""
    return f"<!-- aaco-ci: {report.suite} -->"


def render(report: Report) -> str:
    """Return the comment with its marker; empty if there is nothing to read."""
    return "" if report.silent else summary(report)


def summary(report: Report) -> str:
    """Return the comment for a page that readers open on purpose: not empty if nothing changed."""
    text = "\n\n".join(_parts(report)) + "\n"
    if len(text) <= LIMIT:
        return text
    return text[:text.rfind("\n", 0, LIMIT)] + "\n\ncut here; the rest is in aaco-ci.json\n"


def _parts(report: Report) -> Iterator[str]:
    yield marker(report)
    yield f"**{plain(gate.headline(report))}**"
    loud = [check for check in report.checks if check.outcome not in gate.QUIET]
    if loud:
        yield table(HEADER, [_row(check) for check in loud[:MOST]])
    if len(loud) > MOST:
        yield f"and {len(loud) - MOST} more, in aaco-ci.json"
    if loud:
        yield "\n".join(f"- {code(check.benchmark)} {code(check.metric)}: {plain(check.why)}" for check in loud[:MOST])
    if notes := list(gate.notes(report)):
        yield "\n".join(f"- {plain(note)}" for note in notes[:MOST])
    again = [benchmark.reproduce_command for benchmark in report.benchmarks if benchmark.outcome == "regressed"]
    if again:
        yield "Look closer: " + ", ".join(code(command) for command in again[:MOST] if command)


def _row(check: Check) -> tuple[str, ...]:
    if check.kind == "objective":
        return (check.outcome, code(check.benchmark), code(check.metric), "", plain(gate.measured(check)), "", "")
    values = gate.measured(check).partition(", ")[0]
    return (check.outcome, code(check.benchmark), code(check.metric), plain(gate.effect(check)), plain(values),
            gate.percent(check.mde80_pct), gate.percent(check.noise_pct))
