"""What of a session may leave this machine: every file without the credentials in it, or the reason why it stays.

What this tool writes has been filtered when it was recorded (core/secrets.py); this is the second look before a session
is handed to somebody else, at all that is in its folder by now. Text is redacted, of tables their text columns; a file
that is neither and shows a credential is withheld.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import files, secrets
from aaco.core.errors import AacoError
from aaco.core.session import RECORD, Session
from aaco.tracelake import manifest, raw, text

LOCAL: dict[str, Any] = {"owner": None, "kept_by": []}  # of session.json: processes and paths of this machine
PIECE = 1 << 20
IN_PICTURE = "the drawing that it is a picture of shows a credential"
_WORD = re.compile(rb"[\x20-\x7e]{8,}")
IN_BINARY = "it is binary and shows a credential, which cannot be taken out"


@dataclass(frozen=True)
class Disclosed:
    """A file as it may be handed out: where its bytes are, and whether credentials were taken out."""

    name: str
    path: Path
    redacted: bool


def disclose(session: Session, folder: Path) -> tuple[list[Disclosed], dict[str, str]]:
    """Every file of the session, in order, and why others are withheld. Raises AacoError.

    folder: an empty one, for copies of the files that had to be changed.
    """
    found, withheld = list[Disclosed](), dict[str, str]()
    for index, name in enumerate(manifest.content(session)):
        path, copy = session.folder / name, folder / str(index)
        changed, why = _redacted(path, copy)
        if why:
            withheld[name] = why
        else:
            found.append(Disclosed(name, copy if changed else path, changed))
    sealed = [_manifest(session, folder / "manifest", found, withheld)] if manifest.is_sealed(session) else []
    return [_record(session, folder / "record"), *sealed, *found], withheld


def _redacted(path: Path, copy: Path) -> tuple[bool, str]:
    """Whether the copy is to be taken in place of the file, and why neither may."""
    if path.suffix == ".parquet":
        return _table(path, copy)
    try:
        if not raw.is_text(path):
            return False, IN_BINARY if _shows_a_credential(path) else IN_PICTURE if _pictured(path, copy) else ""
        raw.keep(path, copy)
    except AacoError as error:
        return False, f"it cannot be read: {error.what.removeprefix(f'{path}: ')}"
    return _content(path) != _content(copy), ""


def _pictured(path: Path, copy: Path) -> bool:
    """Whether it is the picture of a drawing out of whose text a credential has to be taken."""
    drawing = path.with_suffix(".svg")
    if path.suffix != ".png" or not drawing.is_file():
        return False
    raw.keep(drawing, copy)
    return _content(drawing) != _content(copy)


def _table(path: Path, copy: Path) -> tuple[bool, str]:
    """A table whose texts are redacted, group by group, if any of them has to be."""
    try:
        with files.storage(path), path.open("rb") as source, pq.ParquetFile(source) as file:
            names = [each.name for each in file.schema_arrow if _is_text(each.type)]
            groups = range(file.num_row_groups)
            if not any(_differs(file.read_row_group(group, columns=names)) for group in groups if names):
                return False, ""
            with pq.ParquetWriter(copy, file.schema_arrow, compression="zstd") as writer:
                for group in groups:
                    writer.write_table(_clean(file.read_row_group(group)))
    except (pa.ArrowException, UnicodeDecodeError, AacoError) as error:
        return False, f"its text cannot be searched: {type(error).__name__}"
    return True, ""


def _is_text(kind: Any) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_list(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _plain(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _differs(table: pa.Table) -> bool:
    return any(not text.redacted(_plain(column)).equals(_plain(column)) for column in table.columns)


def _clean(table: pa.Table) -> pa.Table:
    for place, each in enumerate(table.schema):
        if _is_text(each.type):
            clean = text.redacted(_plain(table.column(place)))
            table = table.set_column(place, each, clean.cast(each.type) if clean.type != each.type else clean)
    return table


def _shows_a_credential(path: Path) -> bool:
    """Looks at stretches of plain letters, as strings(1) does; one that lies across two pieces is looked at whole."""
    rest = b""
    with files.storage(path), path.open("rb") as file:
        while piece := file.read(PIECE):
            rest += piece
            if any(secrets.found(word.decode()) for word in _WORD.findall(rest)):
                return True
            tail = re.search(rb"[\x20-\x7e]{0,4096}\Z", rest)
            rest = tail[0] if tail else b""
    return False


def _record(session: Session, copy: Path) -> Disclosed:
    """session.json without what is of this machine alone."""
    plain = json.dumps(session.read_json(RECORD) | LOCAL)
    clean = secrets.redact(plain)
    files.write_json(copy, json.loads(clean))
    return Disclosed(RECORD, copy, clean != plain)


def _manifest(session: Session, copy: Path, found: list[Disclosed], withheld: dict[str, str]) -> Disclosed:
    """manifest.json over the files as they are handed out."""
    document = manifest.read(session)
    changed = {each.name: each.path for each in found if each.redacted}
    entries = {name: entry | _entry(changed[name]) if name in changed else entry
               for name, entry in document["files"].items() if name not in withheld}
    lacking = document["absent"] | {name: f"withheld from the bundle: {why}" for name, why in withheld.items()}
    if not changed and not withheld:
        return Disclosed(manifest.NAME, session.folder / manifest.NAME, False)
    files.write_json(copy, document | {"files": entries, "absent": lacking})
    return Disclosed(manifest.NAME, copy, False)


def _entry(path: Path) -> dict[str, Any]:
    return {"sha256": files.sha256(path), "bytes": path.stat().st_size}


def _content(path: Path) -> bytes:
    """The digest of what a file holds, unpacked if it is gzip."""
    with files.storage(path), path.open("rb") as file:
        zipped = file.read(2) == raw.GZIP
        file.seek(0)
        stream: Any = gzip.GzipFile(fileobj=file) if zipped else file
        digest = hashlib.sha256()
        for piece in _pieces(stream):
            digest.update(piece)
    return digest.digest()


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    yield from iter(lambda: stream.read(PIECE), b"")


