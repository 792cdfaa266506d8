"""Files made to harm a reader: what a damaged copy, a bomb or a careless user would hand to a parser."""

from __future__ import annotations

import gzip
import random
import shutil
import zlib
from pathlib import Path
from typing import Any

from aaco.profiler import capture

LARGEST = 400_000  # bytes of a capture that is damaged again and again


def text(path: Path) -> bytes:
    """The file's content, unzipped where it is zipped."""
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def copy(parser: Any, path: Path, folder: Path) -> Path:
    """A writable copy of the capture, unzipped where it was zipped, its files as they lay to each other."""
    files = [path, *(member for member in capture.members(parser, path) if member != path)]
    root = Path(*_common(files))
    for file in files:
        target = folder / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            shutil.copytree(file, target, copy_function=shutil.copyfile, dirs_exist_ok=True)
        else:
            target.write_bytes(text(file) if file == path else file.read_bytes())
    return folder / path.relative_to(root)


def flipped(content: bytes, seed: int) -> bytes:
    """A few bits changed: at most twenty bytes, or one in a hundred."""
    chance, changed = random.Random(seed), bytearray(content)
    for _ in range(min(20, 1 + len(content) // 100)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, seed: int) -> bytes:
    """The beginning only."""
    return content[:random.Random(seed).randrange(len(content))]


def spliced(content: bytes, pieces: list[tuple[float, float, bytes]]) -> bytes:
    """Stretches (from, length: shares of the whole) replaced by other bytes."""
    for where, length, new in pieces:
        start = int(where * len(content))
        content = content[:start] + new + content[start + int(length * (len(content) - start)):]
    return content


def zipped_bomb(path: Path, head: bytes, size: int) -> None:
    """A small gzip file whose text is `head`, a quote, and then `size` bytes of one endless string."""
    filler = gzip.compress(b"a" * (16 << 20), 9)
    with path.open("wb") as file:
        file.write(gzip.compress(head + b'"'))
        for _ in range(size // (16 << 20)):
            file.write(filler)


def gigantic(path: Path, head: bytes, size: int) -> None:
    """The same, not zipped, as a file with a hole: it takes no room on the disk, and reads as zeros."""
    with path.open("wb") as file:
        file.write(head + b'"')
        file.truncate(size)


def garbage(head: bytes, seed: int, size: int = 1 << 16) -> bytes:
    """A plausible beginning, then noise."""
    return head + random.Random(seed).randbytes(size)


def damaged_zip(content: bytes) -> list[bytes]:
    """Gzip files: the end missing, the middle changed, the check sum wrong, a body that is no deflate stream."""
    good = gzip.compress(content)
    middle = len(good) // 2
    return [good[:middle], good[:middle] + bytes([good[middle] ^ 0x55]) + good[middle + 1:],
            good[:-8] + zlib.crc32(b"").to_bytes(4, "little") + good[-4:], good[:10] + b"\xff" * 40]


def _common(files: list[Path]) -> tuple[str, ...]:
    parts: tuple[str, ...] = files[0].parent.parts
    for file in files[1:]:
        parts = tuple(one for one, other in zip(parts, file.parent.parts, strict=False) if one == other)
    return parts
