"""What of a session may leave this machine: every file without the credentials in it, or the reason why it stays.

What this tool writes was redacted when it was recorded (core/redaction); this is the second look before a session is
shared, at everything in its folder. Text is redacted, of tables their text columns; a file
that is neither and shows a credential is left out.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from aaco.core import files
from aaco.core.errors import AacoError
from aaco.core.redaction import redact
from aaco.core.redaction.columns import is_text, redact_table
from aaco.core.redaction.pieces import shows_credential
from aaco.core.session import RECORD, Session
from aaco.tracelake import manifest, outputs, raw

LOCAL: dict[str, Any] = {"owner": None, "kept_by": []}  # of session.json: processes and paths of this machine
PIECE = 1 << 20
PNG, PNG_HEAD, PNG_CHECKSUM, PIXELS = b"\x89PNG\r\n\x1a\n", struct.Struct(">I4s"), 4, b"IDAT"  # ISO/IEC 15948, 5
IN_PICTURE = "the drawing that it is a picture of shows a credential"
IN_CAPTURE = "it holds the memory of a captured kernel: to share it, send the capture itself"
CAPTURED = re.compile(r"(.*/)?blobs/[0-9a-f]{64}\.zst|.*\.aacocap")  # as aaco.replay names its files
IN_BINARY = "it is binary and shows a credential, which cannot be taken out"


class RedactedFile(Struct, frozen=True):
    """A file as it may be handed out: where its bytes are, and whether credentials were taken out."""

    name: str
    path: Path
    redacted: bool


def redact_session(session: Session, folder: Path) -> tuple[list[RedactedFile], dict[str, str]]:
    """Return every file of the session, in order, and why others are left out. Raise AacoError.

    folder: an empty one, for copies of the files that had to be changed.
    """
    redacted_files, left_out = list[RedactedFile](), dict[str, str]()
    for index, name in enumerate(manifest.content(session)):
        path, copy = session.folder / name, folder / str(index)
        changed, why = (False, IN_CAPTURE) if CAPTURED.fullmatch(name) else _redact_file(path, copy)
        if why:
            left_out[name] = why
        else:
            redacted_files.append(RedactedFile(name, copy if changed else path, changed))
    sealed = [_redact_manifest(session, folder / "manifest", redacted_files, left_out)] \
        if manifest.is_sealed(session) else []
    return [_redact_record(session, folder / "record"), *sealed, *redacted_files], left_out


def _redact_file(path: Path, copy: Path) -> tuple[bool, str]:
    """Return whether the copy is to be taken in place of the file, and why neither may."""
    if path.suffix == ".parquet":
        return _redact_table(path, copy)
    try:
        if not raw.is_text(path):
            return False, _why_binary_stays(path, copy)
        raw.write_redacted(path, copy)
    except AacoError as error:
        return False, f"it cannot be read: {error.what.removeprefix(f'{path}: ')}"
    return _digest(path) != _digest(copy), ""


def _why_binary_stays(path: Path, copy: Path) -> str:
    """Return why a binary file may not be handed out; empty where it may."""
    with files.storage(path), path.open("rb") as file:
        if shows_credential(_searched(file)) and not (path.match(outputs.FILE) and outputs.are_numbers(path)):
            return IN_BINARY
    return IN_PICTURE if _is_picture_of_redacted(path, copy) else ""


def _is_picture_of_redacted(path: Path, copy: Path) -> bool:
    """Return whether it is the picture of a drawing with a credential in its text."""
    drawing = path.with_suffix(".svg")
    if path.suffix != ".png" or not drawing.is_file():
        return False
    raw.write_redacted(drawing, copy)
    return _digest(drawing) != _digest(copy)


def _redact_table(path: Path, copy: Path) -> tuple[bool, str]:
    """Redact the texts of a table, group by group, if any of them has to be."""
    try:
        with files.storage(path), path.open("rb") as source, pq.ParquetFile(source) as file:
            names = [field.name for field in file.schema_arrow if is_text(field.type)]
            groups = range(file.num_row_groups)
            texts = (file.read_row_group(group, columns=names) for group in groups if names)
            if all(redact_table(table).equals(table) for table in texts):
                return False, ""
            with pq.ParquetWriter(copy, file.schema_arrow, compression="zstd") as writer:
                for group in groups:
                    writer.write_table(redact_table(file.read_row_group(group)))
    except (pa.ArrowException, UnicodeDecodeError, AacoError) as error:
        return False, f"its text cannot be searched: {type(error).__name__}"
    return True, ""


def _redact_record(session: Session, copy: Path) -> RedactedFile:
    """Write session.json without what concerns only this machine."""
    plain = json.dumps(session.read_json(RECORD) | LOCAL)
    clean = redact(plain)
    files.write_json(copy, json.loads(clean))
    return RedactedFile(RECORD, copy, clean != plain)


def _redact_manifest(session: Session, copy: Path, redacted_files: Sequence[RedactedFile],
                     left_out: Mapping[str, str]) -> RedactedFile:
    """Write manifest.json over the files as they are handed out."""
    document = manifest.read(session)
    changed = {file.name: file.path for file in redacted_files if file.redacted}
    entries = {name: entry | {"sha256": files.sha256(changed[name]), "bytes": changed[name].stat().st_size}
               if name in changed else entry
               for name, entry in document["files"].items() if name not in left_out}
    absent = document["absent"] | {name: f"left out of the bundle: {why}" for name, why in left_out.items()}
    if not changed and not left_out:
        return RedactedFile(manifest.NAME, session.folder / manifest.NAME, False)
    files.write_json(copy, document | {"files": entries, "absent": absent})
    return RedactedFile(manifest.NAME, copy, False)


def _digest(path: Path) -> bytes:
    """Return the digest of what a file holds, unpacked if it is gzip."""
    with files.storage(path), path.open("rb") as file:
        zipped = file.read(2) == raw.GZIP
        file.seek(0)
        stream: Any = gzip.GzipFile(fileobj=file) if zipped else file
        return hashlib.file_digest(stream, "sha256").digest()


def _searched(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a binary file without the packed pixels of a picture: they show letters only by chance."""
    picture, length = file.read(len(PNG)) == PNG, file.seek(0, os.SEEK_END)
    file.seek(len(PNG) if picture else 0)
    while picture and len(head := file.read(PNG_HEAD.size)) == PNG_HEAD.size:
        size, kind = PNG_HEAD.unpack(head)
        if kind == PIXELS and file.tell() + size < length:
            file.seek(size + PNG_CHECKSUM, os.SEEK_CUR)
            continue
        yield head
        if size > PIECE:  # no text of a picture is that long: all that follows is searched
            break
        yield file.read(size + PNG_CHECKSUM)
    yield from _pieces(file)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    yield from iter(lambda: stream.read(PIECE), b"")
