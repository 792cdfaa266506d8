"""The settings of a command: the configuration, with the options of the command line on top."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aaco.cli import say

if TYPE_CHECKING:
    from aaco.core.config import Settings


def settings(config_file: Path | None = None, sessions_dir: Path | None = None, preset: str | None = None,
             **sections: dict[str, Any]) -> Settings:
    """Return the resolved configuration with the command line on top; None on the command line means not given."""
    from aaco.core import config  # pydantic and YAML: not for commands that need no settings

    for name, meant in config.unread(os.environ).items():
        if meant:
            say.aside(f"warning: {name} is read by nothing here; did you mean {meant}?", "warning")
    if sessions_dir is not None:
        sections.setdefault("storage", {})["sessions_dir"] = sessions_dir
    overrides = {name: {key: value for key, value in keys.items() if value is not None}
                 for name, keys in sections.items()}
    return config.resolve(config_file, preset, {name: keys for name, keys in overrides.items() if keys})
