"""A gate's report as workflow commands, which GitHub shows as annotations of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aaco.report.ci import gate
from aaco.report.format import clean

if TYPE_CHECKING:
    from aaco.governance.gate import Report

LEVELS = {"regressed": "error", "missed": "error", "suspect": "warning", "unconfirmed": "notice", "ignored": "notice",
          "near": "warning"}
MOST = 10  # of each level: GitHub shows no more of a step


def lines(report: Report, file: str) -> Iterator[str]:
    """Yield one command per line. file: the suite's path from the root of the repository."""
    shown = dict.fromkeys(("error", "warning", "notice"), 0)
    for check in report.checks:
        level = LEVELS.get(check.outcome)
        if level and shown[level] < MOST:
            shown[level] += 1
            title = f"{check.outcome}: {check.benchmark} {check.metric}"
            yield command(level, f"{gate.measured(check)}; {check.why}", file=file, title=title)
    for note in gate.notes(report):
        if shown["warning"] < MOST:
            shown["warning"] += 1
            yield command("warning", note, file=file, title="aaco ci")


def command(level: str, message: str, **properties: str) -> str:
    """Return a workflow command. No text in it can begin a line or another command.

    Escapes as in actions/toolkit, packages/core/src/command.ts.
    """
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {listed}::{_message(message)}"


def _message(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
