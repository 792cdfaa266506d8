"""Writes the kept text over the user's source: once, atomically, and only if it is still what was measured."""

from __future__ import annotations

import os
from pathlib import Path

from aaco.core import files
from aaco.core.errors import UsageError


def require_writable(source: Path) -> None:
    """Raise UsageError if the source could not be written, before anything is measured."""
    if not os.access(source, os.W_OK) or not os.access(source.parent, os.W_OK):
        raise UsageError(f"{source}: it is read-only", "leave out --apply: the change is printed as a diff")


def apply(source: Path, measured: bytes, text: bytes) -> Path:
    """Write the text, and what was there to NAME.orig; return that path. Raise UsageError, StorageError.

    measured: what the search read. A kill at any moment leaves the source whole: before or after the change.
    """
    require_writable(source)
    original = source.with_name(source.name + ".orig")
    with files.storage(source):
        if source.read_bytes() != measured:
            raise UsageError(f"{source}: it was changed while the search ran", "run the search again")
        if original.exists() and original.read_bytes() != measured:
            raise UsageError(f"{original}: it exists already and is another text", "move it away first")
    files.write_atomically(original, lambda file: file.write(measured))
    files.write_atomically(source, lambda file: file.write(text))
    return original
