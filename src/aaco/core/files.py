"""Files that are whole or not there: atomic writes, and JSON that fails with a clear error."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from aaco.core.errors import BadBundle, StorageError

HALF = re.compile(r"\\u[dD][89a-fA-F]")  # in JSON: half of a surrogate pair, whose other half may be there
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns any refusal of the disk inside the block into a StorageError that names `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}", _remedy(error)) from error


def write_atomically(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Let `fill` write to a temporary file in the same folder, then rename it over `path`.

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


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write all of it. A disk that fills up takes a part and refuses the rest, which raises OSError."""
    while content:
        content = content[os.write(descriptor, content):]


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document atomically; a NaN is a ValueError, because absent is null with a reason.

    Bytes of a name that are no text, which Python holds as halves of a surrogate pair, are written as escapes: none
    could read the document otherwise.
    """
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if HALF.search(text):
        text = json.dumps(_readable(document), indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def is_text(text: str) -> bool:
    """Whether a name or path is UTF-8, as what is in a document has to be, and what ONNX Runtime opens."""
    return readable(text) == text


def readable(text: str) -> str:
    """The text with an escape in place of each half of a surrogate pair, as which Python holds what is no UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def _readable(value: Any) -> Any:
    """The document with an escape in place of each half of a surrogate pair."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, Mapping):
        return {_readable(name): _readable(inner) for name, inner in value.items()}
    return [_readable(inner) for inner in value] if isinstance(value, list | tuple) else value


def overwrite(path: Path, content: bytes) -> None:
    """Write over a file within the room that it has on the disk: what can still be written when the disk is full.

    A kill in the midst of it may leave a mixture, so that this is for where write_atomically has failed. What is
    shorter than before is filled up with spaces. Raises StorageError where it does not fit; the file is as it was then.
    """
    with storage(path), path.open("r+b", buffering=0) as file:
        there = os.fstat(file.fileno())
        if len(content) > there.st_blocks * 512:  # the unit of st_blocks: stat(2)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.write(content.ljust(there.st_size))


def finite(value: Any) -> Any:
    """The value as plain JSON: mappings and sequences copied, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(name): finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> Any:
    """The document, or BadBundle when the file is missing or is not JSON; NaN and infinities are not."""
    try:
        return parse_json(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        raise BadBundle(f"{path}: missing", "aaco ls  # which sessions are complete") from error
    except ValueError as error:  # a null character in the path
        raise BadBundle(f"{path}: {error}", "aaco ls  # which sessions are complete") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", "check the file's permissions") from error


def parse_json(content: bytes, where: str) -> Any:
    """Return the document of a file's bytes. Raise BadBundle where they are not JSON; NaN and infinities are not."""
    try:
        return json.loads(content, parse_constant=_finite, parse_float=_finite)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadBundle(f"{where}: not valid JSON: {error}", "aaco info SESSION  # checks every file's hash") from error


def is_file(path: Path) -> bool:
    """Return whether a regular file, or a link to one, is at a path that a person gave; False for what can be no path.

    Raises StorageError where the system does not let us look. Path.is_file raises OSError for that, and for a name
    that is too long.
    """
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Return whether a folder, or a link to one, is at a given path. Raise StorageError as is_file does."""
    return stat.S_ISDIR(_mode(path))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's advisory lock (flock(2), freed by the kernel if this process dies); no file stays."""
    with storage(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        with storage(folder):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Hex digest of a file, read in blocks. Raises StorageError."""
    with storage(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except ValueError:  # a null character
        return 0
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return 0
        raise StorageError(f"{path}: {error.strerror}", _remedy(error)) from error


def _finite(text: str) -> float:
    """A number of a document. Raises ValueError for the spellings that Python takes and JSON does not."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space (aaco gc --dry-run shows what can go) or point AACO_SESSION_DIR elsewhere"
    if error.errno == errno.EISDIR:
        return "name a file: a folder is in its place"
    if error.errno == errno.EIO:
        return "check the file, and the disk it is on"
    return ("check the path and its permissions, or choose another: -o FILE, or for sessions --sessions-dir DIR or "
            "AACO_SESSION_DIR=DIR")
