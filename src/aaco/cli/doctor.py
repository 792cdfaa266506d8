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

    found = examine()
    if as_json:
        say.document({"schema_version": 1, "capabilities": [asdict(item) for item in found]})
        return
    width = max(len(item.name) for item in found)
    for item in found:
        mark, text = ("yes", item.detail) if item.available else ("no", item.why_not)
        say.line(f"{item.name:<{width}}  {mark:<4}{text}")
        if not item.available and item.fix:
            say.line(f"{'':<{width}}      try: {item.fix}")


def _prepare(as_json: bool) -> None:
    from aaco import capsule

    found = capsule.advice()
    if as_json:
        say.document({"schema_version": 1, "advice": [asdict(each) for each in found]})
        return
    for each in found:
        state = each.why_not if each.why_not and not each.commands else "to do" if each.commands else "is so already"
        say.line(f"{each.knob:<18}{each.meaning}: {state}")
        for command in each.commands:
            say.line(f"    {command}")
        if each.commands and each.why_not:
            say.line(f"    note: {each.why_not}")
    say.line("nothing was changed; aaco lab enter --level strict does it and aaco lab exit puts it back")
