"""How a text file is encoded: UTF-8, or the UTF-16 that PowerShell writes where output is redirected."""

from __future__ import annotations

import codecs
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MARKS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16",
         codecs.BOM_UTF16_BE: "UTF-16"}  # the longer first: one begins as the other does


def as_utf8(file: BinaryIO) -> BinaryIO:
    """Return a file, read from its beginning, as UTF-8. Reading one that is no UTF-16 raises UnicodeError then."""
    mark = file.read(4)
    file.seek(0)
    if mark[:2] not in UTF_16 or name_of(mark) != "UTF-16":
        return file
    return BufferedReader(_Utf16Reader(file))


class _Utf16Reader(RawIOBase):
    """The bytes of a UTF-16 text as UTF-8."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decoder, self._pending = file, codecs.getincrementaldecoder("utf-16")(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        room, raw = memoryview(buffer), b"?"
        while raw and not self._pending:
            raw = self._file.read(len(room))
            self._pending = self._decoder.decode(raw, final=not raw).encode()
        count = min(len(room), len(self._pending))
        room[:count], self._pending = self._pending[:count], self._pending[count:]
        return count


def name_of(beginning: bytes) -> str:
    """Return the encoding of a text that is not UTF-8, by its mark or by the zeros between its letters; else ""."""
    marked = next((name for mark, name in MARKS.items() if beginning.startswith(mark)), "")
    letters, zeros = (beginning[:64:2], beginning[1:64:2]) if beginning[:1] != b"\0" else (beginning[1:64:2],
                                                                                         beginning[:64:2])
    is_wide = len(zeros) > 1 and not any(zeros) and all(letters) and letters.isascii()
    return marked or ("UTF-16" if is_wide else "")


def sniff(path: Path) -> str:
    """Return the encoding of a file that is a text but not UTF-8, else ""; "" too if it cannot be read."""
    try:
        with path.open("rb") as file:
            return name_of(file.read(64))
    except OSError:
        return ""
