"""Walks through a nested JSON document in bounded memory: key by key, long arrays a list of typed objects at a time.

For documents with several long arrays deep inside; jsonstream reads documents with one array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from aaco.core.errors import BadCapture
from aaco.profiler.io.jsonstream import BLOCK_BYTES, FIX, LIMIT_BYTES, JsonDocument

T = TypeVar("T")
SPACE = re.compile(rb"[ \t\r\n]*")
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
SCALAR = re.compile(rb"[-+.\w]+")
SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
KEY_BYTES = 1 << 16


class Walk:
    """A place in a document. Every method raises BadCapture if the text is not what it should be.

    ended: whether the file ended inside an array (the last of `problems` states it); nothing can follow.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.problems: list[str] = []
        self.ended = False
        self._file, self._text, self._at, self._before = file, b"", 0, 0
        if self._peek() == b"\xef":
            self._at += len(b"\xef\xbb\xbf")

    def entries(self) -> Iterator[str]:
        """Return the keys of the object here: read the value of each before going on to the next."""
        return (self._key() for _ in self._parts(b"{", b"}"))

    def elements(self) -> Iterator[None]:
        """Yield once for each element of the array here; read it before going on."""
        return self._parts(b"[", b"]")

    def _parts(self, opens: bytes, closes: bytes) -> Iterator[None]:
        self._take(opens)
        sign = self._peek()
        while sign != closes and not self.ended:
            yield
            sign = self._pass_comma(closes)
        if not self.ended:
            self._take(closes)

    def is_array(self) -> bool:
        """Return whether the value here is an array."""
        return self._peek() == b"["

    def value(self) -> bytes:
        """Return the text of the value here, of any kind."""
        sign = self._peek()
        if sign in (b"{", b"["):
            end = self._closed()
        else:
            match = self._match(STRING if sign == b'"' else SCALAR)
            end = match.end()
        text = self._text[self._at:end]
        self._at = end
        return text

    def decoded(self, kind: type[T]) -> T:
        """Return the value here as a type."""
        at, text = self._before + self._at, self.value()
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadCapture(f"{self.path}: byte {at}: {str(error)[:300]}", FIX) from error

    def objects(self, kind: type[T]) -> Iterator[list[T]]:
        """Yield the objects of the array here, in batches."""
        self._take(b"[")
        document = JsonDocument(self.path, kind)
        start = self._before + self._at
        remainder = yield from document.array(self._file, self._text[self._at:], start)
        self._before, self._text, self._at = document.offset, remainder, 0
        self.problems += document.problems
        self.ended = bool(document.cut)

    def end(self) -> None:
        """Raise BadCapture if the document does not end here."""
        if not self.ended and self._peek():
            raise self.bad("more behind the document's end")

    def bad(self, what: str) -> BadCapture:
        """Return the error to raise about this place."""
        return BadCapture(f"{self.path}: byte {self._before + self._at}: {what}", FIX)

    def _key(self) -> str:
        match = self._match(STRING)
        if match.end() - match.start() > KEY_BYTES:
            raise self.bad(f"a key of more than {KEY_BYTES} bytes")
        self._at = match.end()
        self._take(b":")
        self._peek()
        try:
            return msgspec.json.decode(match.group(), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.bad(f"a key is no text: {error}") from error

    def _pass_comma(self, end: bytes) -> bytes:
        """Pass the comma after a value; return the sign that follows."""
        if self.ended:
            return end
        sign = self._peek()
        if sign == b",":
            self._take(b",")
            if (sign := self._peek()) == end:
                raise self.bad("a comma before the end")
        elif sign != end:
            raise self.bad(f"{_quote_text(sign)} where {end.decode()} or a comma belongs")
        return sign

    def _peek(self) -> bytes:
        """Return the next byte that is not space, without passing it; none if the file ends."""
        while True:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._more():
                return self._text[self._at:self._at + 1]

    def _take(self, sign: bytes) -> None:
        if self._peek() != sign:
            raise self.bad(f"{_quote_text(self._peek())} where {sign.decode()} belongs")
        self._at += 1

    def _match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        """Return the match that begins here; read on until it ends before the text does."""
        while True:
            match = pattern.match(self._text, self._at)
            if match and (match.end() < len(self._text) or pattern is STRING):
                return match
            if not self._more():
                if match:
                    return match
                raise self.bad(f"{_quote_text(self._text[self._at:self._at + 40])} where a value belongs")

    def _closed(self) -> int:
        """Return where the object or array here ends."""
        while True:
            depth = 0
            for token in SIGN.finditer(self._text, self._at):
                sign = token.group()
                if sign in (b"{", b"["):
                    depth += 1
                elif sign in (b"}", b"]"):
                    depth -= 1
                    if not depth:
                        return token.end()
                elif sign == b'"':
                    break
            if not self._more():
                raise self.bad("the file is cut short inside a value")

    def _more(self) -> bool:
        """Read on, twice as far as there is text; return whether there was more."""
        size = len(self._text) - self._at
        if size > LIMIT_BYTES:
            raise self.bad(f"a value of more than {LIMIT_BYTES} bytes")
        more = self._file.read(max(BLOCK_BYTES, size))
        self._before += self._at
        self._text, self._at = self._text[self._at:] + more, 0
        return bool(more)


def _quote_text(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace")) if text else "the end of the file"
