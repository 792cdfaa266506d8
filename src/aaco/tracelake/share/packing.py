"""Compressed streams that end with a seal: the SHA-256 of all that is before it, where other readers pass over it."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import pyarrow as pa

PIECE = 1 << 20
FAILURES = (OSError, EOFError, zlib.error, pa.ArrowException)  # of what cannot be unpacked
# Readers pass over a skippable frame of zstd (RFC 8878, 3.1.2) and over the comment of an empty gzip member (RFC 1952).
_ZST_SEAL = b"\x5a\x2a\x4d\x18" + (32).to_bytes(4, "little")
_GZ_SEAL = (b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x00\xffsha256:", b"\x00\x03\x00" + bytes(8))
SEAL_BYTES = {"zst": len(_ZST_SEAL) + 32, "gz": len(_GZ_SEAL[0]) + 64 + len(_GZ_SEAL[1]), "": 0}


def seal(packing: str, digest: bytes) -> bytes:
    """What to append to a file of this digest."""
    if packing == "zst":
        return _ZST_SEAL + digest
    return _GZ_SEAL[0] + digest.hex().encode() + _GZ_SEAL[1] if packing else b""


def is_sealed(file: IO[bytes], size: int, packing: str) -> bool:
    """Whether the file ends with the seal of its first `size` bytes."""
    if size < 0:
        return False
    digest = hashlib.sha256()
    while size and (piece := file.read(min(PIECE, size))):
        digest.update(piece)
        size -= len(piece)
    return file.read() == seal(packing, digest.digest())


@contextmanager
def packed(target: Any, packing: str) -> Iterator[IO[bytes]]:
    """Compresses what is written on the way to `target`; packing: zst, gz, or empty for none."""
    if packing == "zst":
        with pa.CompressedOutputStream(pa.PythonFile(target, "w"), "zstd") as stream:
            yield stream
    elif packing == "gz":
        with gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6, mtime=0) as stream:
            yield stream  # type: ignore[misc]
    else:
        yield target


@contextmanager
def unpacked(file: IO[bytes], size: int, packing: str) -> Iterator[IO[bytes]]:
    """The content of the first `size` bytes of a file; what fails while it is read is one of FAILURES."""
    body: Any = _Part(file, size)
    if packing == "zst":
        source = pa.CompressedInputStream(pa.PythonFile(body, "r"), "zstd")
        try:
            yield source
        finally:
            with suppress(*FAILURES):
                source.close()
    elif packing == "gz":
        with gzip.GzipFile(fileobj=body, mode="rb") as source:
            yield source  # type: ignore[misc]
    else:
        yield body


class _Part(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to so many of those that are left."""
        length = self._left if size < 0 else min(size, self._left)
        content = self._file.read(length)
        self._left -= len(content)
        return content


class Hashing(io.RawIOBase):
    """Writes on, and keeps the digest of everything written; closing it closes nothing."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash = file, hashlib.sha256()

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, content: Any) -> int:
        """All of it."""
        self.hash.update(content)
        return self._file.write(content)


class Nowhere(io.RawIOBase):
    """Where files go that are only checked."""

    def write(self, content: Any) -> int:
        """Read and discard the rest."""
        return len(content)
