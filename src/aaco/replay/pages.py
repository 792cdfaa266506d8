"""Pages of memory as blobs: compressed, named by their SHA-256, and checked against it when they are read."""

from __future__ import annotations

import hashlib
from typing import Protocol

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.replay.blobs import FIX, CaptureFileReader, blob_name
from aaco.replay.documents import CaptureDocument, CapturedRegion, When

LEVEL = 1  # of zstd


class StoredMemory(Protocol):
    """Where the memory and the code of a capture come from."""

    def page(self, region: CapturedRegion, when: When, number: int) -> bytes:
        """Return a page of a region. Raise BadCapture, StorageError."""

    def code(self) -> bytes:
        """Return the code object. Raise BadCapture, StorageError."""

    def unused(self) -> frozenset[str]:
        """Return the names of blobs that the document does not name."""

    def close(self) -> None:
        """Let go of the files."""


def compress(content: bytes) -> bytes:
    """Return a blob of this content."""
    return pa.Codec("zstd", LEVEL).compress(content, asbytes=True)


def most_compressed(size: int) -> int:
    """Return the bytes that a blob of this much content has at most: zstd's ZSTD_COMPRESSBOUND, rounded up."""
    return size + (size >> 7) + 1024


def digests_of(document: CaptureDocument) -> set[str]:
    """Return the digest of every blob that a document names."""
    pages = {digest for region in document.regions for state in (region.before, region.after) for digest in state or ()}
    return pages | {document.code.sha256 or ""}


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
        code = self._document.code
        return self._read(code.sha256 or "", code.bytes)

    def unused(self) -> frozenset[str]:
        """Return the names of blobs that the document does not name."""
        return frozenset(name for name in self._files.names() if name.startswith("blobs/")) - {
            blob_name(digest) for digest in digests_of(self._document)}

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
