"""What keeps an API key that a server sends back out of the record, in any form."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from aaco.core.arrays import Ints, Structs
from aaco.llm.answers import ANY_WINDOW, MOST_LINE, MOST_READ, is_stream

ESCAPED = re.compile(rb"(?:\\+u00|%)([2-7][0-9A-Fa-f])")  # as JSON and URLs may write a letter of ASCII
ENCODING = "content-encoding"
COMPRESSED = ("gzip", "x-gzip", "deflate")
NOT_COMPRESSED = b"\n\ndata: compressed, and not as its header says\n\n"  # which is malformed
TOO_LONG = b"\n\ndata: more than can be searched for the key\n\n"
MOST_RATIO = 100  # of a stream to what it is compressed to; with it a block stays within what is read back
LINE_ENDS = np.frombuffer(b"\n\r", np.uint8)


class Kinds(NamedTuple):
    """The kinds of rows that matter here, as the record numbers them."""

    head: int
    body: int
    end: int


class KeyFilter:
    """Puts stars in place of a key, block by block; a line that is not whole yet waits for its end.

    All but the first letter of such a line moves to the read that goes on with it: no event ends there, so that the
    times of events stay, and that the read ended within an event. A compressed stream is kept as the text that it is.
    """

    def __init__(self, key: bytes, kinds: Kinds) -> None:
        """key: letters of ASCII without a line's end."""
        self._kinds = kinds
        self._keys, self._forms = plain_forms(key), pattern_of(key)
        self._lines: dict[int, bytearray] = {}  # by request: a line without an end, whose first letter was written
        self._inflate: dict[int, zlib._Decompress] = {}
        self._documents: set[int] = set()  # requests whose answers are no streams: each comes as a whole

    def block(self, rows: Structs, content: list[bytes]) -> tuple[Structs, bytes]:
        """Return rows and their bytes without the key; `rows` may be changed."""
        added: list[tuple[int, int, bytes]] = []
        places = np.cumsum(rows["size"] > 0) - 1
        for index in self._special(rows, content).tolist():
            request, kind, place = int(rows["request"][index]), int(rows["kind"][index]), int(places[index])
            if kind == self._kinds.end:
                if line := self._ended(request):
                    added.append((index, place + (not rows["size"][index]), line))
                continue
            content[place] = self._head(request, content[place]) if kind == self._kinds.head else \
                self._body(request, content[place])
            rows["size"][index] = len(content[place])
        for index, place, line in reversed(added):
            content.insert(place, line)
            rows = np.insert(rows, index, rows[index])
            for name, number in (("kind", self._kinds.body), ("size", len(line)), ("kernel_ns", 0)):
                rows[name][index] = number
        return rows, self.masked(b"".join(content))

    def masked(self, content: bytes) -> bytes:
        """Return content with stars in place of the key, as many as it had letters."""
        if not is_in(self._keys, content):
            return content
        return re.sub(self._forms, lambda match: b"*" * len(match[0]), content)

    def _special(self, rows: Structs, content: list[bytes]) -> Ints:
        """Return the rows that are to be looked at one by one: few, as nearly all reads of a stream are whole lines."""
        is_body = (rows["kind"] == self._kinds.body) & (rows["size"] > 0)
        joined, ends = b"".join(content), np.cumsum(rows["size"])
        is_cut = np.zeros(len(rows), bool)
        is_cut[is_body] = ~np.isin(np.frombuffer(joined, np.uint8)[ends[is_body] - 1], LINE_ENDS)
        is_waiting = np.isin(rows["request"], [*rows["request"][is_cut], *self._lines, *self._inflate])
        if ENCODING.encode() in joined:
            is_waiting[:] = True
        return np.flatnonzero(is_body & is_waiting | np.isin(rows["kind"], (self._kinds.head, self._kinds.end)))

    def _head(self, request: int, content: bytes) -> bytes:
        """Note what the header of an answer says; return it as it is true of the bytes that are kept."""
        facts = json.loads(content)
        if not is_stream(int(facts["status"]), facts):
            self._documents.add(request)
        elif facts.get(ENCODING, "").strip().lower() in COMPRESSED:
            del facts[ENCODING]
            self._inflate[request] = zlib.decompressobj(ANY_WINDOW)
            return json.dumps(facts).encode()
        return content

    def _body(self, request: int, content: bytes) -> bytes:
        """Return what to keep with a read: the lines that it completes, and the first letter of the next one."""
        if request in self._documents:
            return content
        if inflate := self._inflate.get(request):
            try:
                content = inflate.decompress(content, MOST_READ + MOST_RATIO * len(content))
            except zlib.error:
                content = NOT_COMPRESSED
            if inflate.unconsumed_tail:
                content = TOO_LONG
        line = self._lines.pop(request, bytearray())
        written = min(len(line), 1)
        line += content
        if len(line) > MOST_LINE:
            line, written = bytearray(TOO_LONG), 0
        whole = max(line.rfind(b"\n"), line.rfind(b"\r")) + 1
        kept = self.masked(bytes(line[:whole])) + line[whole:whole + 1]
        if whole < len(line):
            self._lines[request] = line[whole:]
        return kept[written:]

    def _ended(self, request: int) -> bytes:
        """Forget a request; return what is not written yet of a line that will have no end."""
        self._documents.discard(request)
        self._inflate.pop(request, None)
        return self.masked(bytes(self._lines.pop(request, b"")))[1:]


def plain(content: bytes) -> bytes:
    """Return content with letters in place of what JSON and URLs may write them as."""
    is_escaped = b"\\u00" in content or b"%" in content
    return (ESCAPED.sub(_letter, content) if is_escaped else content).replace(b"\\", b"")


def plain_forms(key: bytes) -> list[bytes]:
    """Return a key as plain content has it: one that holds escapes in two forms, with and without them."""
    return sorted({plain(key), key.replace(b"\\", b"")})


def is_in(keys: Iterable[bytes], content: bytes) -> bool:
    """Return whether content holds one of these, each as plain content has it."""
    content = plain(content)
    return any(key in content for key in keys)


def pattern_of(key: bytes) -> bytes:
    """Return a pattern of all forms in which JSON and URLs may have a key."""
    return b"".join(map(_forms, key.replace(b"\\", b"")))


def _letter(escaped: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escaped[1].decode())


def _forms(letter: int) -> bytes:
    """Return a pattern of all forms in which JSON and URLs may have a letter."""
    digits = "".join(f"[{digit}{digit.upper()}]" for digit in f"{letter:02x}").encode()
    return rb"(?:\\*" + re.escape(bytes([letter])) + rb"|(?:\\+u00|%)" + digits + b")"
