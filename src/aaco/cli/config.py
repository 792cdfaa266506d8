"""`aaco config`: every setting, its value, and which layer decided it."""

from __future__ import annotations

import os
from pathlib import Path

from aaco.cli import manual, options, say


@manual.group()
def config() -> None:
    """Show every setting and where it comes from."""


@config.command()
@options.config_file
@options.sessions_dir
@options.preset
@options.as_json
def show(config_file: Path | None, sessions_dir: Path | None, preset: str | None, as_json: bool) -> None:
    """Print each setting with its value and origin: command line > environment > preset > file > default."""
    from aaco.core.config import unread as unknown

    settings = options.settings(config_file, sessions_dir, preset)
    values = settings.config.model_dump(mode="json")
    rows = {key: {"value": values[key.split(".")[0]][key.split(".")[1]], "origin": origin}
            for key, origin in settings.origins.items()}
    unread = unknown(os.environ)
    if as_json:
        say.document({"schema_version": 1, "settings": rows, "unread_variables": list(unread)})
        return
    for key, row in rows.items():
        value = "not set" if row["value"] is None else row["value"]
        say.line(f"{key:<30}{value!s:<28}{row['origin']}")
    for name in unread:
        say.line(f"{name:<30}{'read by nothing here':<28}environment")
