"""Folders of this machine, which no answer names."""

from __future__ import annotations

import re
from pathlib import Path

USUAL = {"home", "root", "tmp", "var", "mnt", "media", "opt", "srv", "usr", "data", "work", "Users"}
# Folders that are the same on every Linux, and this server's own routes.
NAMED = {"proc", "sys", "dev", "api", "static", "sessions", "compare", "history", "fleet", "pick", "metrics",
         "perfetto"}
TOP = "|".join(map(re.escape, ({path.name for path in Path("/").iterdir() if path.is_dir()} | USUAL) - NAMED))
FOLDERS = re.compile(rf"(?<![\w.+/-])/(?:{TOP})/(?:[^\s/\"'<>&`\\|;:,()\[\]{{}}]+/)*")


def without_folders(text: str) -> str:
    """Return the text with every absolute path cut to its last name."""
    return FOLDERS.sub("", text)
