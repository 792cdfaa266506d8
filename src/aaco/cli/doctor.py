"""`aaco doctor`: what works on this machine, and what to fix first."""

from __future__ import annotations

import click

from aaco.cli import manual, options, say
from aaco.core.records import as_dict


@manual.command()
@click.option("--full", is_flag=True, help="Every check with its detail, or why it failed and the fix.")
@click.option("--prepare", is_flag=True, help="Print the commands that make the machine quiet; change nothing.")
@options.as_json
def doctor(full: bool, prepare: bool, as_json: bool) -> None:
    """What works on this machine, and what to fix first."""
    if prepare:
        _prepare(as_json)
        return
    from aaco.collectors.capabilities import examine
    from aaco.report.sections import capabilities

    checks = examine()
    say.answer(as_json, {"schema_version": 1, "capabilities": [as_dict(check) for check in checks]},
               lambda _: capabilities.full_lines(checks) if full else capabilities.lines(checks))


def _prepare(as_json: bool) -> None:
    from aaco.steps import lab_session

    advice = lab_session.advice()
    if as_json:
        say.document({"schema_version": 1, "advice": [as_dict(piece) for piece in advice]})
        return
    for piece in advice:
        refused = piece.why_not if not piece.commands else None
        state = refused or ("to do" if piece.commands else "already done")
        say.line(f"{piece.knob:<18}{piece.meaning}: {state}")
        for command in piece.commands:
            say.line(f"    {command}")
        if piece.commands and piece.why_not:
            say.line(f"    note: {piece.why_not}")
    say.line("Nothing was changed. `aaco lab enter --level strict` does it; `aaco lab exit` restores it.")
