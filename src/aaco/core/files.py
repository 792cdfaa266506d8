"""Files that are whole or not there: atomic writes, and JSON that fails with a clear error."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from aaco.core.errors import BadBundle, StorageError


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns any refusal of the disk inside the block into a StorageError that names `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}", _remedy(error)) from error


def write_atomically(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Let `fill` write to a temporary neighbour, then rename it over `path`.

    A reader sees the old file or the new one, never a part. Raises StorageError and leaves no half file.
    """
    path = path.resolve()  # a link stays a link: what it points to is replaced
    with storage(path):
        if path.exists() and not path.is_file():  # a device or pipe is written to, never renamed over
            with path.open("wb") as file:
                fill(file)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document atomically; a NaN is a ValueError, because absent is null with a reason."""
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Any:
    """The document, or BadBundle when the file is missing or is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BadBundle(f"{path}: missing", "aaco ls  # which sessions are complete") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadBundle(f"{path}: not valid JSON: {error}", "aaco info SESSION  # checks every file's hash") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", "check the file's permissions") from error


def sha256(path: Path) -> str:
    """Hex digest of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remedy(error: OSError) -> str:
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return "free some space (aaco gc --dry-run shows what can go) or point AACO_SESSION_DIR elsewhere"
    return "choose a folder you can write to: --sessions-dir DIR or AACO_SESSION_DIR=DIR"
