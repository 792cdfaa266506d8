"""A session as one file, format 1.0.0: a list of every file with its SHA-256 first, then the files, then seals.

`tar.zst` and `tar.gz` are ordinary archives that tar(1) unpacks into a session's folder; `json` and `json.gz` hold the
same in one document. What is read back must be what this module would have written, byte for byte: a name, mode, owner,
link or padding that could carry something else is not interpreted but refused, and a changed byte is found wherever it
lies. That shows damage and careless edits; a rewritten archive is found by its digest, sent separately.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Literal

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from aaco.core import files
from aaco.core.errors import BadBundle, UsageError, first_problem
from aaco.core.session import LATEST
from aaco.core.show import SILENT
from aaco.tracelake.share import packing
from aaco.tracelake.share.packing import PIECE
from aaco.tracelake.share.ustar import BLOCK, headers

FORMAT, VERSION = "aaco-bundle", "1.0.0"
LIST, SEAL = "bundle.json", "bundle.sha256"
SUFFIXES = {".aaco": "tar.zst", ".tar.zst": "tar.zst", ".tar.gz": "tar.gz", ".tgz": "tar.gz", ".json": "json",
            ".json.gz": "json.gz"}
MOST_LIST = 32 << 20  # bytes of the list of files
MOST_FILES = 100_000
MOST_BYTES = 16 << 30  # unpacked, unless it is said otherwise
MOST_JSON = 256 << 20  # what a document of JSON may hold: it is read as a whole
DIGEST = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,150}")
REMEDY = "have it sent again, and compare its digest with the sender's (aaco bundle verify FILE)"
class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class File(_Listed):
    """A file of the session, as it is in the archive."""

    name: str = Field(max_length=4096)
    bytes: int = Field(ge=0, lt=2**53)
    sha256: DIGEST
    redacted: bool = Field(default=False, description="credentials in it were replaced")


class Contents(_Listed):
    """bundle.json. Fields are added, never renamed; the format's first number rises when a meaning changes."""

    format: Literal["aaco-bundle"] = "aaco-bundle"
    format_version: str = Field(default=VERSION, pattern=r"^1\.\d+\.\d+$")
    session_id: str = Field(pattern=f"^{ID.pattern}$")
    status: str
    tool_version: str
    files: list[File] = Field(min_length=1, max_length=MOST_FILES)
    withheld: dict[str, str] = Field(default={}, description="files that were left out, and why")

    @field_validator("files")
    @classmethod
    def _of_one_folder(cls, members: list[File]) -> list[File]:
        names = {file.name for file in members}
        if len(names) < len(members):
            raise ValueError("a file is listed twice")
        for name in names:
            if not _may_be_named(name) or any(str(folder) in names for folder in PurePosixPath(name).parents):
                raise ValueError(f"{name[:80]!r} cannot be a file of a session")
        return members

    @model_validator(mode="after")
    def _is_a_session(self) -> Contents:
        if "session.json" not in {file.name for file in self.files}:
            raise ValueError("it lists no session.json")
        if self.session_id == LATEST:
            raise ValueError(f"{LATEST} names the newest session, none of its own")
        return self

    @property
    def unpacked(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)


class Checked(Struct):
    """What an archive was found to be. problems: by the file that they are about; empty for a whole archive."""

    sha256: str
    contents: Contents | None = None
    problems: dict[str, str] = field(default_factory=dict)


class _Broken(Exception):
    """The archive cannot be read on."""


Open = Callable[[str], IO[bytes]]
Progress = Callable[[int, int], None]


def form_of(path: Path) -> str:
    """The form that a file's name asks for. Raises UsageError."""
    suffix = max((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), key=len, default=None)
    if suffix is None:
        raise UsageError(f"{path}: its name does not say which form it is to have", f"one of {', '.join(SUFFIXES)}")
    return SUFFIXES[suffix]


def write(path: Path, contents: Contents, opened: Open, form: str) -> None:
    """Write the archive atomically; the same contents give the same bytes. Raises StorageError, BadBundle.

    opened: a file of the session by its name, ready to be read.
    """
    container, _, kind = form.partition(".")

    def fill(file: IO[bytes]) -> None:
        target = packing.Hashing(file)
        with packing.packed(target, kind) as packed:
            (_write_tar if container == "tar" else _write_json)(packed, contents, opened)
        file.write(packing.seal(kind, target.hash.digest()))

    files.write_atomically(path, fill)


def check(path: Path, most_bytes: int = MOST_BYTES, progress: Progress = SILENT.progress) -> Checked:
    """Read the whole archive and say everything that is wrong with it. Raises UsageError, StorageError.

    progress: receives how many of the files are read.
    """
    return _read(path, most_bytes, None, progress)


def extract(path: Path, folder: Path, most_bytes: int = MOST_BYTES, progress: Progress = SILENT.progress,
            only: Collection[str] | None = None) -> Contents:
    """Unpack into an empty folder, nothing outside it. Raises BadBundle for the first thing that is wrong.

    only: the files that are written; every byte of the others is checked all the same. None: all.
    """
    checked = _read(path, most_bytes, folder, progress, only)
    for name, problem in checked.problems.items():
        raise BadBundle(f"{path}: {name}: {problem}", REMEDY)
    assert checked.contents
    return checked.contents


def _read(path: Path, most_bytes: int, folder: Path | None, progress: Progress,
          only: Collection[str] | None = None) -> Checked:
    form = form_of(path)
    container, _, kind = form.partition(".")
    if not files.is_file(path):
        raise UsageError(f"{path}: no such file", "name a bundle that `aaco bundle export` made")
    checked = Checked(files.sha256(path))
    with files.storage(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size - packing.SEAL_BYTES[kind]
        if kind and not packing.is_sealed(file, size, kind):
            checked.problems["the archive"] = "its bytes are not those that were written"
            if folder:
                return checked
        file.seek(0)
        reader = _BundleReader(checked, most_bytes, folder, progress, only)
        try:
            with packing.unpacked(file, max(size, 0), kind) as stream:
                (reader.tar if container == "tar" else reader.json)(stream)
        except _Broken as reason:
            checked.problems.setdefault(reader.at, str(reason))
    return checked


class _BundleReader:
    """Reads one archive; `at` is the file it has come to."""

    def __init__(self, checked: Checked, most_bytes: int, folder: Path | None, progress: Progress,
                 only: Collection[str] | None) -> None:
        self.found, self.most_bytes, self.folder, self.progress = checked, most_bytes, folder, progress
        self.only = only
        self.at = LIST

    def tar(self, stream: IO[bytes]) -> None:
        """Every member must be the one that the list names next, with only its content."""
        text = self._member(stream)
        contents = self._contents(text)
        for number, member in enumerate(contents.files):
            self.at = member.name
            self.progress(number, len(contents.files))
            name = f"{contents.session_id}/{member.name}"
            self._expect(stream, b"".join(headers(name, member.bytes)), "the archive has something else in its place")
            self._take(member, _pieces(stream, member.bytes))
            self._expect(stream, bytes(-member.bytes % BLOCK), "what fills up its last block is not empty")
        self.at = SEAL
        if self._member(stream) != _digest_line(text):
            self.found.problems.setdefault(LIST, "changed since it was written")
        self._expect(stream, bytes(2 * BLOCK), "no end where it should be")
        if _some(stream, 1):
            raise _Broken("something follows the end")

    def json(self, stream: IO[bytes]) -> None:
        """The document must be spelt as this module spells it."""
        raw = _some(stream, 2 * MOST_JSON)
        try:
            document = json.loads(raw)
            content = document.pop("content")
            seal = document.pop("seal")
            same = raw == _spelled(document, content, seal)
        except (ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
            raise _Broken(f"not a bundle in JSON: {type(error).__name__}") from error
        if not same:
            self.found.problems.setdefault(LIST, "changed since it was written")
        text = (json.dumps(document, indent=1) + "\n").encode()
        contents = self._contents(text)
        if seal != _list_digest(text) or list(content) != [member.name for member in contents.files]:
            self.found.problems.setdefault(LIST, "changed since it was written")
        for number, member in enumerate(contents.files):
            self.at = member.name
            self.progress(number, len(contents.files))
            self._take(member, iter([_decoded(content.get(member.name))]))

    def _contents(self, text: bytes) -> Contents:
        try:
            contents = Contents.model_validate_json(text)
        except ValidationError as error:
            raise _Broken(f"not the list of a bundle that this version knows: {first_problem(error)}") from error
        if contents.unpacked > self.most_bytes:
            raise _Broken(f"{contents.unpacked:,} bytes unpacked, more than the {self.most_bytes:,} that are allowed")
        self.found.contents = contents
        return contents

    def _member(self, stream: IO[bytes]) -> bytes:
        """Return a member of any size under its name."""
        header = _exactly(stream, BLOCK)
        try:
            size = int(header[124:135], 8)
        except ValueError:
            size = -1
        if not 0 <= size <= MOST_LIST or header != b"".join(headers(self.at, size)):
            raise _Broken("not where it should be: this is no bundle, or a damaged one")
        text = _exactly(stream, size)
        self._expect(stream, bytes(-size % BLOCK), "what fills up its last block is not empty")
        return text

    def _take(self, member: File, pieces: Iterator[bytes]) -> None:
        """Write one file if requested, and verify it by the list."""
        digest, size = hashlib.sha256(), 0
        with self._target(member.name) as target:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                target.write(piece)
        if size != member.bytes or digest.hexdigest() != member.sha256:
            self.found.problems[member.name] = "changed since it was written"

    @contextmanager
    def _target(self, name: str) -> Iterator[IO[bytes]]:
        if self.folder is None or (self.only is not None and name not in self.only):
            yield packing.Nowhere()  # type: ignore[misc]
            return
        path = self.folder / name
        with files.storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                yield file

    def _expect(self, stream: IO[bytes], expected: bytes, otherwise: str) -> None:
        if _exactly(stream, len(expected)) != expected:
            raise _Broken(otherwise)


def _may_be_named(name: str) -> bool:
    """Whether a file of a session may have this name: below its folder, and printable."""
    parts = name.split("/")
    return (name.isprintable() and "\\" not in name and len(parts) <= 32
            and all(part not in ("", ".", "..") and len(part.encode(errors="replace")) <= 255 for part in parts))


def _write_tar(target: IO[bytes], contents: Contents, opened: Open) -> None:
    text = _listed(contents)
    _put(target, LIST, text)
    for member in contents.files:
        target.write(b"".join(headers(f"{contents.session_id}/{member.name}", member.bytes)))
        for piece in _whole(member, opened):
            target.write(piece)
        target.write(bytes(-member.bytes % BLOCK))
    _put(target, SEAL, _digest_line(text))
    target.write(bytes(2 * BLOCK))


def _write_json(target: IO[bytes], contents: Contents, opened: Open) -> None:
    if contents.unpacked > MOST_JSON:
        raise UsageError(f"{contents.unpacked:,} bytes are more than a document of JSON should hold",
                         "export it as .tar.zst")
    document = json.loads(_listed(contents))
    content = {member.name: base64.b64encode(b"".join(_whole(member, opened))).decode() for member in contents.files}
    target.write(_spelled(document, content, _list_digest(_listed(contents))))


def _whole(member: File, opened: Open) -> Iterator[bytes]:
    """A file's content, as it was when the list was made. Raises BadBundle."""
    digest = hashlib.sha256()
    with opened(member.name) as file:
        for piece in iter(lambda: file.read(PIECE), b""):
            digest.update(piece)
            yield piece
    if digest.hexdigest() != member.sha256:
        raise BadBundle(f"{member.name}: it changed while the session was exported", "export it again")


def _put(target: IO[bytes], name: str, text: bytes) -> None:
    target.write(b"".join(headers(name, len(text))) + text + bytes(-len(text) % BLOCK))


def _listed(contents: Contents) -> bytes:
    return (json.dumps(contents.model_dump(mode="json"), indent=1) + "\n").encode()


def _spelled(document: Mapping[str, Any], content: Mapping[str, Any], seal: Any) -> bytes:
    return (json.dumps({**document, "seal": seal, "content": content}, indent=1) + "\n").encode()


def _list_digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _digest_line(text: bytes) -> bytes:
    """As sha256sum(1) writes and checks it."""
    return f"{_list_digest(text)}  {LIST}\n".encode()


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise _Broken("it is not there")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Broken("its content is not base64") from error


def _pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    for start in range(0, size, PIECE):
        yield _exactly(stream, min(PIECE, size - start))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = _some(stream, size)
    if len(content) < size:
        raise _Broken("the archive ends in it")
    return content


def _some(stream: IO[bytes], size: int) -> bytes:
    """Up to this many bytes, fewer only at the end."""
    parts = []
    try:
        while size and (part := stream.read(size)):
            parts.append(part)
            size -= len(part)
    except packing.FAILURES as error:
        raise _Broken("it cannot be unpacked") from error
    return b"".join(parts)
