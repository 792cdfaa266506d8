"""A file of a capture that cannot be read: one error, whatever reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaco.core.errors import BadCapture


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise BadCapture for every error of the operating system inside the block."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadCapture(f"{path}: no such file", "check the path") from error
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the file and its permissions") from error
