"""Pages of memory as blobs: compressed, named by their SHA-256, and checked against it when they are read."""

from __future__ import annotations

import hashlib
from typing import Protocol

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.replay.blobs import FIX, CaptureFileReader, blob_name
from aaco.replay.documents import CaptureDocument, CapturedRegion, When

LEVEL = 1  # of zstd


class Contents(Protocol):
    """Where the memory and the code of a capture come from."""

    def page(self, region: CapturedRegion, when: When, number: int) -> bytes:
        """Return a page of a region. Raise BadCapture, StorageError."""

    def code(self) -> bytes:
        """Return the code object. Raise BadCapture, StorageError."""

    def close(self) -> None:
        """Let go of the files."""


def compress(content: bytes) -> bytes:
    """Return a blob of this content."""
    return pa.Codec("zstd", LEVEL).compress(content, asbytes=True)


def most_compressed(size: int) -> int:
    """Return the bytes that a blob of this much content has at most: zstd's ZSTD_COMPRESSBOUND, rounded up."""
    return size + (size >> 7) + 1024


class Blobs:
    """The blobs of a capture of format 2."""

    def __init__(self, files: CaptureFileReader, document: CaptureDocument, where: str) -> None:
        self._files, self._document, self._where = files, document, where
        self._last = ("", b"")  # runs of equal pages are read once

    def page(self, region: CapturedRegion, when: When, number: int) -> bytes:
        """Return a page of a region. Raise BadCapture, StorageError."""
        digests, page_bytes = getattr(region, when), self._document.page_bytes
        return self._read(digests[number], min(page_bytes, region.size - number * page_bytes))

    def code(self) -> bytes:
        """Return the code object. Raise BadCapture, StorageError."""
        return self._read(self._document.code.sha256, self._document.code.bytes)

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()

    def _read(self, digest: str, size: int) -> bytes:
        if self._last[0] != digest or len(self._last[1]) != size:
            self._last = (digest, self._unpacked(digest, size))
        return self._last[1]

    def _unpacked(self, digest: str, size: int) -> bytes:
        name = blob_name(digest)
        packed = self._files.read(name, most_compressed(size))
        try:
            content: bytes = pa.decompress(packed, size, "zstd", asbytes=True)
        except (OSError, pa.ArrowException) as error:
            raise BadCapture(f"{self._where}: {name} is damaged, or no {size:,} bytes: {error}", FIX) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise BadCapture(f"{self._where}: {name} holds other bytes than its name says", FIX)
        return content
