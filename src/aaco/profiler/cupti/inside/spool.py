"""The file that a traced program writes: a block of state, then chunks that are complete or absent.

The block is rewritten in place, so that it can record losses even on a full disk. Layout, little-endian: 16 bytes
MAGIC; STATE - 16 bytes of JSON padded with spaces; then chunks of CHUNK (tag, CRC-32 of the payload, its length) and
the payload. HEAD: JSON, once, first. SIZE: JSON, {kind: bytes of a record}. NAME: JSON, {address: text}. CALL: JSON,
{kind: {number: name}}. DATA: a buffer of CUPTI's records. The chunks that a buffer refers to precede it, or, in a long
trace, follow all buffers.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any

MAGIC = b"AACO CUPTI 1\n\0\0\0"
STATE = 4096
CHUNK = struct.Struct("<4sIQ")
HEAD, SIZE, NAME, CALL, DATA = b"HEAD", b"SIZE", b"NAME", b"CALL", b"DATA"


class CuptiSpool:
    """An open capture. No method raises for a full disk: `state` records the losses."""

    def __init__(self, path: str) -> None:
        """Create the file. Raise OSError if that fails."""
        self.path = path
        self.state: dict[str, Any] = {"ended": None, "dropped": 0, "lost_bytes": 0, "forks": 0}
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o644)
        self._end = STATE
        os.pwrite(self._file, MAGIC + b" " * (STATE - len(MAGIC)), 0)
        self.write_state()

    def add_json(self, tag: bytes, document: dict[Any, Any]) -> None:
        """Add a chunk of JSON."""
        self.add(tag, json.dumps(document).encode())

    def add(self, tag: bytes, payload: Any) -> int:
        """Add a chunk; return the place of its payload, 0 if it was not written. After the first chunk that the disk
        refuses, all
        are counted as lost: a capture must have no holes.

        payload: bytes, or a view: nothing is copied, and the program continues during the write.
        """
        if self.state["lost_bytes"]:
            self.state["lost_bytes"] += len(payload)
            return 0
        try:
            end = self._write(CHUNK.pack(tag, zlib.crc32(payload), len(payload)), payload)
        except OSError as error:
            self.state["lost_bytes"], self.state["refused"] = max(len(payload), 1), str(error)
            os.ftruncate(self._file, self._end)
            return 0
        self._end = end
        return self._end - len(payload)

    def _write(self, *parts: Any) -> int:
        """Write the parts one after the other, at the end; return where they end. Raise OSError."""
        remaining, at = [memoryview(part) for part in parts if len(part)], self._end
        while remaining:
            written = os.pwritev(self._file, remaining, at)
            at += written
            while remaining and written >= len(remaining[0]):
                written -= len(remaining.pop(0))
            if remaining:
                remaining[0] = remaining[0][written:]
        return at

    def read(self, place: int, length: int) -> bytes:
        """Return the bytes at a place. Raise OSError."""
        return os.pread(self._file, length, place)

    def write_state(self) -> None:
        """Update the block at the front. Raise OSError if the file is gone."""
        text = json.dumps(self.state).encode()[:STATE - len(MAGIC)]
        os.pwrite(self._file, text.ljust(STATE - len(MAGIC)), len(MAGIC))

    def close(self) -> None:
        """Close the file, once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
