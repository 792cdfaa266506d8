"""A capture's own file, kept in the session: text only, with every credential in it redacted."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path
from typing import IO

import pyarrow as pa

from aaco.core import files
from aaco.core.errors import BadCapture
from aaco.core.redaction.columns import redact_column
from aaco.core.redaction.pieces import safe_cut, split_records

BLOCK = 1 << 20
GZIP = b"\x1f\x8b"


def is_text(path: Path) -> bool:
    """Return whether the file, unzipped if it is gzip, begins as text; no other can be redacted. Raise BadCapture."""
    try:
        with _opened(path) as file:
            head = file.read(1 << 16)
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    except (OSError, EOFError) as error:
        raise BadCapture(f"{path}: {error}", "check the file and its permissions") from error
    return b"\0" not in head


def write_redacted(source: Path, target: Path) -> None:
    """Copy a text file without its credentials, zipped where it was. Memory: a few records. Raise StorageError."""
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
            cut = safe_cut(held)
            target.write(_redact_records(held[:cut]))
            held = held[cut:]
    target.write(_redact_records(held + decoder.decode(b"", final=True)))


def _redact_records(content: str) -> bytes:
    """Redact record by record: only the few that look like it are searched closely."""
    plain = content.encode(errors="surrogateescape").decode(errors="replace")
    records = redact_column(pa.chunked_array([pa.array(list(split_records(plain)), pa.string())]))
    return "".join(records.to_pylist()).encode()


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
