"""Read a whole JSON file into a declared type, or raise one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.profiler.io import encodings
from aaco.profiler.io.readable import readable

T = TypeVar("T")
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what a column can hold


def decode(path: Path, kind: type[T], most_bytes: int, fix: str) -> T:
    """Return the file as `kind`. Raise BadCapture, which suggests `fix`, if it is not that or has over `most_bytes`."""
    try:
        return msgspec.json.decode(content(path, most_bytes), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCapture(f"{path}: not the JSON that belongs there, or cut short: {error}", fix) from error


def text(path: Path, most_bytes: int, fix: str) -> str:
    """Return the file's text. Raise BadCapture, which suggests `fix`, if it is not UTF-8 or has over `most_bytes`."""
    try:
        return content(path, most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadCapture(f"{path}: not the JSON that belongs there, or cut short: {error}", fix) from error


@contextmanager
def sound(path: Path, fix: str) -> Iterator[None]:
    """Raise BadCapture for impossible values inside the block, such as numbers beyond 64 bits."""
    try:
        yield
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise BadCapture(f"{path}: not as the tool writes it: {str(error)[:300]}", fix) from error


def head(path: Path, count: int = 400) -> bytes:
    """Return the first bytes of a file, none if it cannot be read. Never raise."""
    try:
        with path.open("rb") as file:
            return encodings.as_utf8(file).read(count)
    except (OSError, UnicodeError):
        return b""


def content(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file. Raise BadCapture if it cannot be read or has over `most_bytes`."""
    content = beginning(path, most_bytes + 1)
    if len(content) > most_bytes:
        raise BadCapture(f"{path}: larger than {most_bytes >> 20} MiB, which no such file has",
                         "check that it is the file the profiler wrote")
    return content


def beginning(path: Path, most_bytes: int = 1) -> bytes:
    """Return at most `most_bytes` of a file's beginning. Raise BadCapture if it is missing or cannot be read."""
    try:
        with readable(path), path.open("rb") as file:
            return encodings.as_utf8(file).read(most_bytes)
    except UnicodeError as error:
        raise BadCapture(f"{path}: marked as UTF-16, which it is not: {error}", "write it again") from error
