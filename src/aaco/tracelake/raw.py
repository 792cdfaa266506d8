"""A capture's own file, kept in the session: text only, with every credential in it withheld."""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from aaco.core import files
from aaco.core.errors import BadCapture
from aaco.tracelake import text

BLOCK = 1 << 20
LONGEST = 16 << 20  # a stretch without any end of a record is cut after this
GZIP = b"\x1f\x8b"
_RECORD = re.compile(r"\},|\n")
_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "


def is_text(path: Path) -> bool:
    """Whether the file, unzipped if it is gzip, begins as text: binary formats cannot be redacted. Raises BadCapture.
    """
    try:
        with _opened(path) as file:
            head = file.read(1 << 16)
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    except (OSError, EOFError) as error:
        raise BadCapture(f"{path}: {error}", "check the file and its permissions") from error
    return b"\0" not in head


def keep(source: Path, target: Path) -> None:
    """Copy a text file without its credentials, zipped where it was. Memory: a few records. Raises StorageError."""
    with source.open("rb") as file:
        zipped = file.read(2) == GZIP

    def fill(raw: IO[bytes]) -> None:
        if not zipped:
            _copy(source, raw)
            return
        with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=3, mtime=0) as packed:
            _copy(source, packed)

    files.write_atomically(target, fill)


def _copy(source: Path, target: IO[bytes] | gzip.GzipFile) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    held = ""
    with _opened(source) as file:
        while block := file.read(BLOCK):
            held += decoder.decode(block)
            cut = _cut(held)
            target.write(_redacted(held[:cut]))
            held = held[cut:]
    target.write(_redacted(held + decoder.decode(b"", final=True)))


def _cut(held: str) -> int:
    """Where the text may be cut so that no credential is: after a record, and not inside a private key."""
    if len(held) > LONGEST:
        return len(held)
    ends = max(held.rfind("\n"), held.rfind("},") + 1) + 1
    key = held.rfind(_KEY_BEGIN, 0, ends)
    return key if key >= 0 and held.find(_KEY_END, key, ends) < 0 else ends


def _redacted(content: str) -> bytes:
    """Record by record, of which only the few that look like it are searched closely."""
    plain = content.encode(errors="surrogateescape").decode(errors="replace")
    kept = text.redacted(pa.chunked_array([pa.array(list(_records(plain)), pa.string())]))
    return "".join(kept.to_pylist()).encode()


def _records(content: str) -> Iterator[str]:
    start = 0
    for end in _RECORD.finditer(content):
        key = content.find(_KEY_BEGIN, start, end.end())
        if key < 0 or content.find(_KEY_END, key, end.end()) >= 0:
            yield content[start:end.end()]
            start = end.end()
    yield content[start:]


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
