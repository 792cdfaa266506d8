"""Uploaded files: written next to the sessions while they arrive, and removed after processing."""

from __future__ import annotations

import secrets
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from aaco.core import files
from aaco.core.errors import UsageError
from aaco.tracelake import raw

PREFIX = ".upload-"
ABANDONED_S = 86_400.0  # a server that was killed leaves its uploads; nobody's takes a day
PIECE = 1 << 20


@contextmanager
def nursery(root: Path) -> Iterator[Path]:
    """An empty folder on the sessions' disk for the length of the block. Raises StorageError."""
    _sweep(root)
    folder = root / f"{PREFIX}{secrets.token_hex(8)}"
    with files.storage(folder):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_room(root: Path, size: int) -> None:
    """Raise UsageError where a file of this size would leave no room on the disk."""
    with files.storage(root):
        free = shutil.disk_usage(root).free
    if size > free // 2:
        raise UsageError(f"{size:,} bytes would fill the disk", "aaco gc --dry-run shows what can go")


def refuse_bomb(path: Path, most: int) -> None:
    """Raise UsageError for a gzip file that unpacks to more bytes than allowed: parsers would read on and on.

    zlib makes up to 1032 bytes of one. A damaged stream is for the parser to name.
    """
    with files.storage(path), path.open("rb") as file:
        if file.read(2) != raw.GZIP:
            return
        file.seek(0)
        unpacked = 0
        for size in _sizes(file):
            unpacked += size
            if unpacked > most:
                raise UsageError(f"{path.name} unpacks to more than the {most:,} bytes that are allowed",
                                 "import it on the machine itself: aaco import FILE")


def _sizes(file: IO[bytes]) -> Iterator[int]:
    """How much every piece unpacks to, member by member; ends where the stream does or is damaged."""
    unpacker, waiting = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    while waiting or (waiting := file.read(PIECE)):
        try:
            yield len(unpacker.decompress(waiting, PIECE))
        except zlib.error:
            return
        waiting = unpacker.unconsumed_tail
        if unpacker.eof:
            waiting, unpacker = unpacker.unused_data, zlib.decompressobj(zlib.MAX_WBITS | 16)


def _sweep(root: Path) -> None:
    now = time.time()
    for left in root.glob(f"{PREFIX}*"):
        with files.storage(left):
            if now - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
