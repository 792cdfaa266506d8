"""`aaco doctor`: capability, whether it is there, why not, how to fix it."""

from __future__ import annotations

from dataclasses import asdict

import click

from aaco.cli import manual, options, say


@manual.command()
@click.option("--prepare", is_flag=True, help="What would make the machine quiet, as commands; changes nothing.")
@options.as_json
def doctor(prepare: bool, as_json: bool) -> None:
    """What works on this machine, what does not, and how to fix it."""
    if prepare:
        _prepare(as_json)
        return
    from aaco.collectors.capabilities import examine

    capabilities_here = examine()
    if as_json:
        say.document({"schema_version": 1, "capabilities": [asdict(item) for item in capabilities_here]})
        return
    width = max(len(item.name) for item in capabilities_here)
    for item in capabilities_here:
        mark, text = ("yes", item.detail) if item.available else ("no", item.why_not)
        say.line(f"{item.name:<{width}}  {mark:<4}{text}")
        if not item.available and item.fix:
            say.line(f"{'':<{width}}      try: {item.fix}")


def _prepare(as_json: bool) -> None:
    from aaco.steps import lab_session

    advice = lab_session.advice()
    if as_json:
        say.document({"schema_version": 1, "advice": [asdict(piece) for piece in advice]})
        return
    for piece in advice:
        refused = piece.why_not if not piece.commands else None
        state = refused or ("to do" if piece.commands else "is so already")
        say.line(f"{piece.knob:<18}{piece.meaning}: {state}")
        for command in piece.commands:
            say.line(f"    {command}")
        if piece.commands and piece.why_not:
            say.line(f"    note: {piece.why_not}")
    say.line("nothing was changed; aaco lab enter --level strict does it and aaco lab exit puts it back")
