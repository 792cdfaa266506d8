"""`aaco env`: environments side by side."""

from __future__ import annotations

import click

from aaco.cli import manual, options, say


@manual.group()
def env() -> None:
    """Compare the environments of two sessions."""


@env.command()
@click.argument("first", shell_complete=options.of_kind("session"))
@click.argument("second", shell_complete=options.of_kind("session"))
@options.with_settings
@options.as_json
def diff(first: str, second: str, settings: options.Settings, as_json: bool) -> None:
    """Print what differs between the environments of FIRST and SECOND; what changes with every run is left out."""
    from aaco.collectors.inventory import environment
    from aaco.core.session import find
    from aaco.tracelake import documents, layout

    root = settings.config.storage.sessions_dir
    lockboxes = [documents.require(find(reference, root), layout.ENVIRONMENT) for reference in (first, second)]
    differences = environment.diff(*lockboxes)
    if as_json:
        rows = [{"key": item.key, "first": item.a, "second": item.b} for item in differences]
        say.document({"schema_version": 1, "differences": rows})
        return
    for item in differences:
        say.lines((item.key, f"  {first}: {item.a}", f"  {second}: {item.b}"))
    say.line(f"{len(differences)} differences")
