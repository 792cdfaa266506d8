"""The raw files of live sources: a header with the writer and its version, then records of one size.

Some writers describe their records between the two. Records are appended as they come, unbuffered, so that a kill loses
nothing that was written.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
from msgspec import Struct

from aaco.core import files
from aaco.core.errors import BadCapture

_HEADER = struct.Struct("<8sII")
_LENGTH = struct.Struct("<I")  # of the description that follows it


class RecordFormat(Struct, frozen=True):
    """A kind of file, its writer, and how to have it written again."""

    writer: str
    again: str
    magic: bytes
    version: int
    record: np.dtype[Any]

    @property
    def header(self) -> bytes:
        """Return the first bytes of a file of this version."""
        return _HEADER.pack(self.magic, self.version, self.record.itemsize)

    def described(self, description: bytes) -> bytes:
        """Return the first bytes of a file that describes its records; `read_described` returns the description."""
        return self.header + _LENGTH.pack(len(description)) + description

    def read(self, raw: Path) -> Any:
        """Return the whole records of a file as an array, without an unfinished last one. Raise BadCapture."""
        return self._records(self._read_content(raw), _HEADER.size)

    def read_described(self, raw: Path) -> tuple[bytes, Any]:
        """Return the description, cut where the file was cut, and the records after it. Raise BadCapture."""
        content, begin = self._read_content(raw), _HEADER.size + _LENGTH.size
        length = _LENGTH.unpack_from(content, _HEADER.size)[0] if len(content) >= begin else 0
        return content[begin:begin + length], self._records(content, min(begin + length, len(content)))

    def _read_content(self, raw: Path) -> bytes:
        try:
            content = raw.read_bytes()
        except OSError as error:
            raise BadCapture(f"{raw}: {error.strerror}", self.again) from error
        if not content.startswith(self.header):
            raise BadCapture(f"{raw}: not a recording of this version of aaco's {self.writer}", self.again)
        return content

    def _records(self, content: bytes, begin: int) -> Any:
        return np.frombuffer(content, self.record, (len(content) - begin) // self.record.itemsize, begin)


def begin(raw: Path, head: bytes) -> IO[bytes]:
    """Create a raw file with its first bytes and return it, unbuffered. Raise StorageError."""
    with files.storage(raw):
        raw.parent.mkdir(parents=True, exist_ok=True)
        file = raw.open("wb", buffering=0)
        append(file, head)
    return file


def append(file: IO[bytes], content: bytes | memoryview) -> None:
    """Write all of it to an unbuffered file. Raise OSError, also if a full disk took only a part."""
    if file.write(content) != len(content):  # the next record would lie askew
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))
