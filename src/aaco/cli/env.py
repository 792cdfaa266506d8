"""`aaco env`: environments side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aaco.cli import options


@click.group()
def env() -> None:
    """Compare the environments of two sessions."""


@env.command()
@click.argument("first")
@click.argument("second")
@options.config_file
@options.sessions_dir
@options.as_json
def diff(first: str, second: str, config_file: Path | None, sessions_dir: Path | None, as_json: bool) -> None:
    """Print what differs between the environments of FIRST and SECOND; what changes with every run is left out."""
    from aaco.collectors import environment
    from aaco.core.session import find
    from aaco.tracelake import layout

    root = options.settings(config_file, sessions_dir).config.storage.sessions_dir
    lockboxes = [find(reference, root).read_json(layout.ENVIRONMENT) for reference in (first, second)]
    found = environment.diff(*lockboxes)
    if as_json:
        rows = [{"key": item.key, "first": item.a, "second": item.b} for item in found]
        click.echo(json.dumps({"schema_version": 1, "differences": rows}, indent=2))
        return
    for item in found:
        click.echo(f"{item.key}\n  {first}: {item.a}\n  {second}: {item.b}")
    click.echo(f"{len(found)} differences")
