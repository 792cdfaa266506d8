"""`aaco doctor`: capability, whether it is there, why not, how to fix it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from aaco.cli import options


@click.command()
@options.as_json
def doctor(as_json: bool) -> None:
    """What works on this machine, what does not, and how to fix it."""
    from aaco.collectors.capabilities import examine

    found = examine()
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "capabilities": [asdict(item) for item in found]}, indent=2))
        return
    width = max(len(item.name) for item in found)
    for item in found:
        mark, text = ("yes", item.detail) if item.available else ("no", item.why_not)
        click.echo(f"{item.name:<{width}}  {mark:<4}{text}")
        if not item.available and item.fix:
            click.echo(f"{'':<{width}}      try: {item.fix}")
