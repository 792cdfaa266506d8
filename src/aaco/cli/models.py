"""`aaco models`: the names that --model and --backend take."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aaco.cli import options


@click.command()
@options.config_file
@options.as_json
def models(config_file: Path | None, as_json: bool) -> None:
    """List the models and backends that can be named, built in and from your configs."""
    from aaco.runner import registry

    storage = options.settings(config_file).config.storage
    entries = registry.models([storage.models_file])
    backends = registry.backends([storage.backends_file])
    if as_json:
        click.echo(json.dumps({"schema_version": 1,
                               "models": {name: entry.model_dump(mode="json") for name, entry in entries.items()},
                               "backends": {name: entry.model_dump(mode="json") for name, entry in backends.items()}},
                              indent=2))
        return
    click.echo(f"{'model':<16}{'from':<28}inputs")
    for name, entry in entries.items():
        click.echo(f"{name:<16}{entry.origin:<28}{entry.shapes_text}")
    click.echo(f"\n{'backend':<16}{'provider':<28}install")
    for name, backend in backends.items():
        click.echo(f"{name:<16}{backend.provider:<28}{backend.install}")
