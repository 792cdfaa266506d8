"""The file that a traced program leaves: a block that says how it stands, then chunks that are whole or not there.

The block is rewritten in place, so that a full disk still lets it say what was lost. Layout, little-endian:
16 bytes MAGIC; STATE - 16 bytes of JSON padded with spaces; then chunks of CHUNK (tag, CRC-32 of the payload, its
length) and the payload. HEAD: JSON, once, first. SIZE: JSON, {kind: bytes of a record}. NAME: JSON, {address: text}.
CALL: JSON, {kind: {number: name}}. DATA: a buffer of CUPTI's records. What a buffer refers to stands before it, or, of
a long trace, behind all of them.
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


class Spool:
    """An open capture. Nothing in here raises for a full disk: `state` says what was lost."""

    def __init__(self, path: str) -> None:
        """A new file. Raises OSError where there can be none."""
        self.path = path
        self.state: dict[str, Any] = {"ended": None, "dropped": 0, "lost_bytes": 0, "forks": 0}
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o644)
        self._end = STATE
        os.pwrite(self._file, MAGIC + b" " * (STATE - len(MAGIC)), 0)
        self.tell()

    def say(self, tag: bytes, document: dict[Any, Any]) -> None:
        """Add a chunk of JSON."""
        self.add(tag, json.dumps(document).encode())

    def add(self, tag: bytes, payload: Any) -> int:
        """Add a chunk; where its payload stands, 0 if nowhere. After the first that the disk refuses, all are counted
        as lost: a hole would be no capture.

        payload: bytes, or a view of some: nothing is copied, and the program goes on meanwhile.
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
        """Write the parts one behind the other, at the end; where they end. Raises OSError."""
        rest, at = [memoryview(part) for part in parts if len(part)], self._end
        while rest:
            written = os.pwritev(self._file, rest, at)
            at += written
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][written:]
        return at

    def read(self, place: int, length: int) -> bytes:
        """What stands there. Raises OSError."""
        return os.pread(self._file, length, place)

    def tell(self) -> None:
        """Bring the block at the front up to date. Raises OSError where the file is gone."""
        text = json.dumps(self.state).encode()[:STATE - len(MAGIC)]
        os.pwrite(self._file, text.ljust(STATE - len(MAGIC)), len(MAGIC))

    def close(self) -> None:
        """Close the file, once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
