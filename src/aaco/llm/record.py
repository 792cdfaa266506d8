"""The raw record of a load: every read of every connection with its times, appended in compressed blocks.

A block is its header, the fixed-width rows, and the bytes of those rows one after the other. A kill loses the rows that
are not written yet, at most a second of them; a torn last block is left out when the record is read.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aaco.core import files
from aaco.core.arrays import Structs
from aaco.core.errors import BadCapture
from aaco.llm.key_filter import KeyFilter, Kinds

ROW = np.dtype([(name, "<i8") for name in ("request", "kind", "size", "kernel_ns", "user_ns", "since_ns")])
SIZES = struct.Struct("<4sIII")  # magic, rows, bytes before and after compression
CHECK = struct.Struct("<I")  # CRC-32 of that and of the bytes after
MAGIC = b"aaL1"
MOST_RAW = 1 << 30  # bytes that a block of ours never reaches: a header beyond it is damaged
PACKED = struct.Struct(f"<{len(ROW.names or ())}q")  # the same
ROW_BYTES = ROW.itemsize
FULL = 4096 * ROW_BYTES  # bytes of the rows of a block
PAYLOAD = 1 << 22  # bytes of a block, from which on it is written whatever its rows
LEVEL = 1  # of zstd
NO_STAMP = 0  # kernel_ns of a read that the kernel gave no time


class Kind(IntEnum):
    """What a row is. user_ns is on CLOCK_MONOTONIC, kernel_ns on CLOCK_REALTIME unless it says otherwise.

    CLOCK: both clocks, read together; the bytes are the width of the bracket. DISPATCH: kernel_ns is the intended time
    on CLOCK_MONOTONIC, user_ns when the client began; the bytes are how long between them its thread at most waited for
    a CPU, ns, none where that is not known. SENT: the whole request was handed to the kernel. HEAD: the read that
    completed the answer's header; its bytes are a JSON object of what the header says. FIRST: the read with the
    answer's first byte. BODY: a read with content. AGAIN: sent once more on a new connection. END: the bytes are empty
    where the answer was complete, else why it ended. PACKETS: at the end of a load with packet stamps; the bytes are a
    JSON object of counts: packets, dropped ones, reads, and reads that missed a packet. TURN: follows a DISPATCH; the
    bytes are a JSON object of the turn of a conversation that the request is. Of a target in this process, in
    place of reads: PROMPT has the number of the prompt's tokens as bytes, TOKEN is one token of the answer, which was
    on the host at user_ns; STEP is a step of the decoder: kernel_ns when it
    began, user_ns when its tokens were there, both on CLOCK_MONOTONIC, and its phase and requests as bytes.

    since_ns, of reads: what was read came after it, for nothing was there to read then (CLOCK_MONOTONIC).
    """

    CLOCK = 0
    DISPATCH = 1
    SENT = 2
    FIRST = 3
    HEAD = 4
    BODY = 5
    AGAIN = 6
    END = 7
    PACKETS = 8
    PROMPT = 9
    TOKEN = 10
    TURN = 11
    STEP = 12


class Recorded(NamedTuple):
    """A block that was read: its rows, and the bytes of all of them one after the other."""

    rows: Structs
    content: bytes


class ReadRecorder:
    """Appends rows to a file; a thread packs and compresses, so that the reader of sockets does not wait."""

    def __init__(self, path: Path, secret: bytes = b"") -> None:
        """Raise StorageError. secret: a key that never reaches the file: stars take its place."""
        with files.storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._path = path
        self._filter = KeyFilter(secret, Kinds(Kind.HEAD, Kind.BODY, Kind.END)) if secret else None
        self._rows, self._used = bytearray(FULL), 0
        self._content: list[bytes] = []
        self._size = 0
        self._failure: OSError | None = None
        self._blocks: SimpleQueue[tuple[memoryview, list[bytes]] | None] = SimpleQueue()
        self._thread = Thread(target=self._write_blocks, name="aaco-llm-record", daemon=True)
        self._thread.start()

    def add(self, request: int, kind: int, kernel_ns: int, user_ns: int, content: bytes = b"", since_ns: int = 0
            ) -> None:
        """Append a row."""
        size = len(content)
        PACKED.pack_into(self._rows, self._used, request, kind, size, kernel_ns, user_ns, since_ns)
        self._used += ROW_BYTES
        if size:
            self._content.append(content)
            self._size += size
        if self._used == FULL or self._size >= PAYLOAD:
            self.flush()

    def flush(self) -> None:
        """Hand over the rows so far. Raise StorageError if an earlier block could not be written."""
        if self._failure:
            with files.storage(self._path):
                raise self._failure
        if self._used:
            self._blocks.put((memoryview(self._rows)[:self._used], self._content))
            self._rows, self._used, self._content, self._size = bytearray(FULL), 0, [], 0

    def close(self) -> None:
        """Write what is left and close the file. Raise StorageError."""
        try:
            self.flush()
        finally:
            self._blocks.put(None)
            self._thread.join()
            os.close(self._descriptor)
        self.flush()

    def _cleaned(self, rows: Structs, content: list[bytes]) -> tuple[Structs, bytes]:
        return self._filter.block(rows, content) if self._filter else (rows, b"".join(content))

    def _write_blocks(self) -> None:
        while block := self._blocks.get():
            try:
                rows, content = block
                _write_whole(self._descriptor, _packed(*self._cleaned(np.frombuffer(rows, ROW), content)))
            except OSError as error:
                self._failure = error
                return


class RecorderOfSides:
    """One record for each of several servers that answer in turns."""

    def __init__(self, recorders: Sequence[ReadRecorder], sides: Sequence[int]) -> None:
        """sides: of each request the server that it goes to; in the record of that its requests count from 0."""
        self._recorders = recorders
        numbers = [count() for _ in recorders]
        self._places = [(recorders[side], next(numbers[side])) for side in sides]

    def add(self, request: int, kind: int, kernel_ns: int, user_ns: int, content: bytes = b"", since_ns: int = 0
            ) -> None:
        """Append a row where it belongs: a look at the clocks, which is of no request, everywhere."""
        for recorder, number in [self._places[request]] if request >= 0 else [(each, -1) for each in self._recorders]:
            recorder.add(number, kind, kernel_ns, user_ns, content, since_ns)

    def flush(self) -> None:
        """Hand over the rows so far. Raise StorageError if an earlier block could not be written."""
        for recorder in self._recorders:
            recorder.flush()


def rewrite(path: Path, change: Callable[[Recorded], bytes]) -> None:
    """Replace the content of each block by as many other bytes; a reader sees the old file or the new one.

    Raise BadCapture, StorageError.
    """
    files.write_atomically(path, lambda file: file.writelines(
        _packed(block.rows, change(block)) for block in read(path)))


def _packed(rows: Structs, content: bytes) -> bytes:
    raw = rows.tobytes() + content
    packed = pa.Codec("zstd", LEVEL).compress(raw, asbytes=True)
    sizes = SIZES.pack(MAGIC, len(rows), len(raw), len(packed))
    return sizes + CHECK.pack(zlib.crc32(packed, zlib.crc32(sizes))) + packed


def _write_whole(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view):]


def read(path: Path, having: Kind | None = None) -> Iterator[Recorded]:
    """Yield the whole blocks of a record, which may still grow; of one kind: those that have a row of it.

    Raise BadCapture for a damaged one, StorageError.
    """
    with files.storage(path), path.open("rb") as file:
        while len(head := file.read(SIZES.size + CHECK.size)) == SIZES.size + CHECK.size:
            sizes, check = head[:SIZES.size], head[SIZES.size:]
            magic, count, raw_size, size = SIZES.unpack(sizes)
            if magic != MAGIC or raw_size > MOST_RAW or count * ROW_BYTES > raw_size:
                raise _damaged(path, file.tell(), "no block begins here")
            packed = file.read(size)
            if len(packed) < size:
                return
            if CHECK.pack(zlib.crc32(packed, zlib.crc32(sizes))) != check:
                raise _damaged(path, file.tell(), "the checksum does not fit")
            if having is not None and having not in _rows_of(packed, count)["kind"]:
                continue
            raw = pa.decompress(packed, raw_size, "zstd", asbytes=True)
            rows = np.frombuffer(raw, ROW, count)
            content = raw[rows.nbytes:]
            if (rows["size"] < 0).any() or int(rows["size"].sum(dtype=np.int64)) != len(content):
                raise _damaged(path, file.tell(), "its rows do not have its bytes")
            yield Recorded(rows, content)


def _rows_of(packed: bytes, count: int) -> Structs:
    """Return the rows of a block without unpacking the content."""
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        begin = stream.read(count * ROW_BYTES)
    return np.frombuffer(begin, ROW, len(begin) // ROW_BYTES)


def _damaged(path: Path, at: int, why: str) -> BadCapture:
    return BadCapture(f"{path}: damaged before byte {at:,}: {why}", "aaco info SESSION  # checks every file's hash")


