"""The files of a capture: a folder, or a zip of stored entries; both hold capture.json and blobs/SHA256.zst.

A name that is none of those is refused, so nothing in a capture is ever taken as a path. What is written becomes
visible by one rename, after everything reached the disk.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from aaco.core import files
from aaco.core.errors import BadCapture, UsageError

SUFFIX = ".aacocap"
DOCUMENT, ROLES = "capture.json", "roles.json"
NAME = re.compile(r"capture\.json|roles\.json|blobs/[0-9a-f]{64}\.zst")
MOST_DOCUMENT = 256 << 20
MOST_ENTRIES = 1 << 20
END, END64 = 22, 22 + 20 + 56  # bytes of the zip's last records (APPNOTE 4.3.14 to 4.3.16), without a comment
FIX = "copy it again, or capture the kernel again"


def blob_name(digest: str) -> str:
    """Return the name of the blob that has this SHA-256."""
    return f"blobs/{digest}.zst"


class CaptureFileReader(Protocol):
    """The files of a capture, to be read."""

    def names(self) -> frozenset[str]:
        """Return the names of all files."""

    def read(self, name: str, most: int) -> bytes:
        """Return a file of at most so many bytes. Raise BadCapture, StorageError."""

    def close(self) -> None:
        """Let go of the files."""


class FolderReader:
    """A capture that is a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> frozenset[str]:
        """Return the names of all files. Raise BadCapture for a name that no capture has."""
        with files.storage(self.path):
            listed = frozenset(str(file.relative_to(self.path)) for file in self.path.rglob("*")
                               if file.is_symlink() or not file.is_dir())
        _check_names(self.path, listed)
        return listed

    def read(self, name: str, most: int) -> bytes:
        """Return a file of at most so many bytes. Raise BadCapture, StorageError."""
        path = self.path / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BadCapture(f"{path}: missing", FIX) from error
        except OSError as error:
            raise BadCapture(f"{path}: {error.strerror}", FIX) from error
        with files.storage(path), os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                raise BadCapture(f"{path}: no file of at most {most:,} bytes", FIX)
            return file.read(most)

    def close(self) -> None:
        """Nothing is open between reads."""


class ZipReader:
    """A capture that is one file."""

    def __init__(self, path: Path) -> None:
        """Raise BadCapture where the file is no zip of stored entries with names of a capture, StorageError."""
        self.path = path
        with files.storage(path):
            _check_directory(path)
            try:
                self._zip = zipfile.ZipFile(path)
            except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
                raise BadCapture(f"{path}: not a capture in one file: {error}", FIX) from error
        entries = self._zip.infolist()
        self._entries = {entry.filename: entry for entry in entries}
        _check_names(path, frozenset(self._entries))
        if len(self._entries) < len(entries):
            raise BadCapture(f"{path}: a name is in it twice", FIX)
        if sum(entry.compress_size for entry in entries) > path.stat().st_size:
            raise BadCapture(f"{path}: its entries overlap", FIX)

    def names(self) -> frozenset[str]:
        """Return the names of all entries."""
        return frozenset(self._entries)

    def read(self, name: str, most: int) -> bytes:
        """Return an entry of at most so many bytes. Raise BadCapture, StorageError."""
        entry = self._entries.get(name)
        if entry is None:
            raise BadCapture(f"{self.path}: {name} is missing", FIX)
        if entry.flag_bits & 1 or not entry.file_size == entry.compress_size <= most:
            raise BadCapture(f"{self.path}: {name} is not stored as at most {most:,} plain bytes", FIX)
        with files.storage(self.path):
            try:
                return self._zip.read(entry)
            except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError) as error:
                raise BadCapture(f"{self.path}: {name}: {error}", FIX) from error

    def close(self) -> None:
        """Close the file."""
        self._zip.close()


def reader_of(path: Path) -> CaptureFileReader:
    """Return what reads the capture at a path. Raise UsageError if nothing is there, BadCapture, StorageError."""
    if files.is_folder(path):
        return FolderReader(path)
    if not files.is_file(path):
        raise UsageError(f"{path}: no such capture", "give the folder or the .aacocap file of a capture")
    return ZipReader(path)


def _check_names(path: Path, names: frozenset[str]) -> None:
    strange = min((name for name in names if not NAME.fullmatch(name)), default=None)
    if strange is not None:
        raise BadCapture(f"{path}: {strange[:200]!r} is no file of a capture", FIX)


def _check_directory(path: Path) -> None:
    """Raise BadCapture if a zip's directory is cut off, or names more entries than a capture has; OSError.

    zipfile reads the whole directory into memory, so its size is looked at before.
    """
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - END64))
        tail = file.read()
    end = tail[-END:]
    if len(end) < END or not end.startswith(b"PK\5\6"):
        raise BadCapture(f"{path}: cut short, or not a capture in one file", FIX)
    count, size = int.from_bytes(end[10:12], "little"), int.from_bytes(end[12:16], "little")
    if len(tail) == END64 and tail.startswith(b"PK\6\6"):
        count, size = int.from_bytes(tail[32:40], "little"), int.from_bytes(tail[40:48], "little")
    if count > MOST_ENTRIES or size > 256 * MOST_ENTRIES:
        raise BadCapture(f"{path}: its directory has {count:,} entries in {size:,} bytes", FIX)


class PartialCapture:
    """A capture in the making, under a hidden name next to its path; close() removes what was not published."""

    def __init__(self, path: Path, replacing: bool = False) -> None:
        """Raise UsageError if there is something at the path that is not to be replaced, StorageError."""
        self.path = path = path.absolute()
        if os.path.lexists(path) and not replacing:
            raise UsageError(f"{path}: exists already", "choose another name, or remove it")
        self._partial = _hidden(path)
        self._written: set[str] = set()
        with files.storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._zip = zipfile.ZipFile(self._partial, "x") if path.suffix == SUFFIX else None
            if self._zip is None:
                self._partial.mkdir(mode=0o700)
                (self._partial / "blobs").mkdir()
            else:
                self._partial.chmod(0o600)  # memory may hold secrets

    def __contains__(self, name: str) -> bool:
        """Return whether a file of this name was written."""
        return name in self._written

    def write(self, name: str, content: bytes) -> None:
        """Add a file. Raise StorageError."""
        with files.storage(self._partial):
            if self._zip is not None:
                self._zip.writestr(zipfile.ZipInfo(name), content)
            else:
                _write_synced(self._partial / name, content)
        self._written.add(name)

    def publish(self) -> None:
        """Make the capture visible under its path, all of it on the disk. Raise StorageError."""
        with files.storage(self.path):
            if self._zip is not None:
                self._zip.close()
            else:
                _sync(self._partial / "blobs")
            _sync(self._partial)
            self._partial.rename(self.path)
            _sync(self.path.parent)

    def close(self) -> None:
        """Remove what was not published. Raise StorageError."""
        if self._zip is not None and self._zip.fp is not None:
            unfinished, self._zip.fp = self._zip.fp, None  # ZipFile.close would end the file as if it were whole
            with suppress(OSError):  # what it still holds back does not fit on a full disk
                unfinished.close()
        with files.storage(self.path):
            if self._partial.is_dir():
                shutil.rmtree(self._partial)
            self._partial.unlink(missing_ok=True)


def add_file(path: Path, name: str, content: bytes, most: int) -> None:
    """Put a small file into a finished capture, in place of the one that it has. Raise BadCapture, StorageError.

    most: bytes of the longest file that a capture may hold. The one file is copied, so that a kill leaves it whole.
    """
    if files.is_folder(path):
        partial_file = _hidden(path)
        with files.storage(path):
            _write_synced(partial_file, content)
            partial_file.replace(path / name)
            _sync(path)
        return
    source, partial = ZipReader(path), PartialCapture(path, replacing=True)
    try:
        for kept in sorted(source.names() - {name}):
            partial.write(kept, source.read(kept, most))
        partial.write(name, content)
        partial.publish()
    finally:
        source.close()
        partial.close()


def _hidden(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(6)}.partial"


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
