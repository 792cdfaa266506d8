"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from aaco.core.presets import PRESETS

if TYPE_CHECKING:
    from aaco.core.config import Settings

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
config_file = click.option("--config", "config_file", type=click.Path(path_type=Path), help="Configuration file.")
sessions_dir = click.option("--sessions-dir", type=click.Path(path_type=Path), help="Where sessions are kept.")
preset = click.option("--preset", type=click.Choice(list(PRESETS)), help="A named set of settings.")


def session_reference(required: bool = False) -> Callable[[F], F]:
    """A session given by position or as --session; `latest` when neither is."""

    def add(function: F) -> F:
        function = click.option("--session", "named", metavar="SESSION", help="The same, as an option.")(function)
        return click.argument("session", required=required)(function)

    return add


def style() -> Literal["plain", "colour"]:
    """Colour for a person at a terminal (https://no-color.org), plain text for everything else."""
    return "colour" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else "plain"


def settings(config_file: Path | None = None, sessions_dir: Path | None = None, preset: str | None = None,
             **sections: dict[str, Any]) -> Settings:
    """Resolve the configuration with what the command line says on top; None on the command line means not given."""
    from aaco.core import config  # pydantic and YAML: not for commands that need no settings

    if sessions_dir is not None:
        sections.setdefault("storage", {})["sessions_dir"] = sessions_dir
    given = {name: {key: value for key, value in keys.items() if value is not None}
             for name, keys in sections.items()}
    return config.resolve(config_file, preset, {name: keys for name, keys in given.items() if keys})
