"""Reads a JSON document that is mostly one array of objects, in bounded memory: a list of typed objects at a time.

The document is an object with the array under a known key ("traceEvents"), anywhere among its other fields, or the
bare array. Any layout is read: pretty-printed or compact, plain or gzip. A chunk is cut after its last whole object:
first at the last place that looks like an object's end, and if the decoder rejects that (a string or a nested object
looked the same), at the place found by counting brackets outside strings.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.profiler.io import encodings, malformed

T = TypeVar("T")
R = TypeVar("R")

CHUNK_BYTES = 4 << 20  # measured: smaller ones cost calls, larger ones leave the cache
LIMIT_BYTES = 64 << 20  # of one object, and of the text before and after the array
BLOCK_BYTES = 1 << 20
GUESSES = 64
NAMED = 5
PATIENCE = 3
FIX = "record it again, and check that it was copied whole"
# The tool that wrote it would write it so again.
LEAVE_OUT = "aaco import --skip-bad FILE  # reads the others, and names what it left out"
ZIPPED = b"\x1f\x8b"

_skips_bad = ContextVar("skips_bad", default=False)
_SPACE = b" \t\r\n"
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_COMMA = re.compile(rb"\s*,")
# A lone quote is a string that the text read so far does not end.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|[{}\[\]]', re.DOTALL)
_VALUE = re.compile(rb"\s*:\s*([^\s:])?")
# What follows a backslash in a string. The group matches an unpaired surrogate, which is not a character (RFC 8259,
# section 8.2); unescaped, it is not UTF-8 either (RFC 3629, section 3).
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|"
                   rb"(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.|(\xed[\xa0-\xbf][\x80-\xbf])", re.DOTALL)
_REPLACEMENT = {6: rb"\ufffd", 3: "\ufffd".encode()}  # as long as what it replaces


class _Narrower(Struct):
    """A decoder of a narrower kind, and the number of consecutive batches that it rejected."""

    decoder: msgspec.json.Decoder[Any]
    missed: int = 0


class _JsonCut(Exception):
    """The text goes on after the part that was read."""


@contextmanager
def skipping_bad(skips: bool) -> Iterator[None]:
    """Read on after malformed events inside the block, if `skips`: each document counts and names them."""
    before = _skips_bad.set(skips)
    try:
        yield
    finally:
        _skips_bad.reset(before)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Yield the file's text, unzipped if it is gzip. Raise BadCapture for errors of reading it inside the block."""
    try:
        with path.open("rb") as plain:
            zipped = plain.read(2) == ZIPPED
            plain.seek(0)
            text = cast(BinaryIO, gzip.GzipFile(fileobj=plain, mode="rb")) if zipped else plain
            yield encodings.as_utf8(text)
    except UnicodeError as error:
        raise BadCapture(f"{path}: marked as UTF-16, which it is not: {error}", FIX) from error
    except FileNotFoundError as error:
        raise BadCapture(f"{path}: no such file", "check the path") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadCapture(f"{path}: the gzip stream is damaged or cut short: {error}", FIX) from error
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the file and its permissions") from error


def head(path: Path, size: int = 1 << 18) -> bytes:
    """Return the first `size` bytes of the text, without byte-order mark and leading space; b"" if it cannot be read.
    """
    try:
        with opened(path) as file:
            return _fill(file, b"", size).removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE)
    except BadCapture:
        return b""


def number_behind(path: Path, key: str) -> int | None:
    """Return the last integer under `key` near the end of the text. Raise BadCapture.

    For a number that is needed before its place is read; compare it with the document's fields afterwards.
    """
    with opened(path) as file:
        text = b""
        if file.seekable() and not isinstance(file, gzip.GzipFile):
            file.seek(max(0, path.stat().st_size - BLOCK_BYTES))
        while more := file.read(BLOCK_BYTES):
            text = (text + more)[-BLOCK_BYTES:]
    numbers = re.findall(b'"' + re.escape(key.encode()) + rb'"\s*:\s*(\d{1,19})\b', text)
    return int(numbers[-1]) if numbers else None


class JsonDocument(Generic[T]):
    """A document and the state of reading it.

    fields: the fields next to the array; before the first batch, those before it; after the last batch, all.
    cut: what is missing at its end. halves: the number of unpaired surrogates that were read as U+FFFD. bad_events:
    where malformed events that were left out begin and end, in the unzipped document.
    """

    def __init__(self, path: Path, kind: type[T], key: str = "traceEvents", expected: Sequence[Any] = ()) -> None:
        """expected: narrower kinds that decode faster, tried in this order until too many batches do not match."""
        self.path = path
        self.fields: dict[str, Any] = {}
        self.cut: list[str] = []
        self.halves = 0
        self.bad_events: list[tuple[int, int]] = []
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._narrower = [_Narrower(msgspec.json.Decoder(list[narrow]))  # type: ignore[valid-type]
                          for narrow in expected]
        self._key = key.encode()
        self._offset = 0  # of the text not yet used, in the unzipped document
        self._bare = False

    @property
    def problems(self) -> list[str]:
        """Return the defects of the document that did not prevent reading it."""
        halves = [f"{self.halves} halves of surrogate pairs stand alone in its texts, which is no Unicode: each was "
                  "read as U+FFFD"] if self.halves else []
        places = ", ".join(f"{start} to {end}" for start, end in self.bad_events[:NAMED])
        more = f" and {len(self.bad_events) - NAMED} more" if len(self.bad_events) > NAMED else ""
        bad = [f"malformed events left out: {len(self.bad_events)}, bytes {places}{more}; what they recorded is in no "
               "table"] if self.bad_events else []
        return [*halves, *bad, *self.cut]

    def batches(self) -> Iterator[list[T]]:
        """Yield the objects of the array, in order. Raise BadCapture, naming the byte of the (unzipped) text."""
        with opened(self.path) as file:
            text_after = yield from self.array(file, self._begin(file))
            self._end(_fill(file, text_after, LIMIT_BYTES + 1))

    def array(self, file: BinaryIO, remainder: bytes, offset: int | None = None) -> Generator[list[T], None, bytes]:
        """Yield the objects of the array that `remainder`, and the file after it, is inside of; return the text after.

        offset: of `remainder` in the unzipped document, if this document did not read up to there itself.
        """
        if offset is not None:
            self._offset = offset - 1
        size, ended = CHUNK_BYTES, False
        while not ended:
            text, last = _read_framed(file, remainder, size)
            objects, used, ended = self._take(text, last)
            remainder = bytes(text[used:-1])
            self._offset += used - 1
            if used == 1 and not ended:
                size = self._double_size(size)
                continue
            if objects:
                yield objects
            del objects, text  # before the next are made, so that their memory is reused
            size = CHUNK_BYTES
        return remainder

    @property
    def offset(self) -> int:
        """Return where the text not yet read begins, in the unzipped document."""
        return self._offset + 1

    def _begin(self, file: BinaryIO) -> bytes:
        """Read up to the array and return the text read of it. Set the fields before it."""
        text, size = b"", BLOCK_BYTES
        while True:
            text = _fill(file, text, size)
            try:
                before, start = self._find_array(text)
                break
            except _JsonCut:
                if len(text) < size:
                    raise self.bad(f"the document ends before its {self._key.decode()!r}", len(text)) from None
                size = self._double_size(size)
        if before:
            self.fields = self._object(before.rstrip(_SPACE).removesuffix(b",") + b"}")
        self._offset = start - 1
        return text[start:]

    def _find_array(self, text: bytes) -> tuple[bytes, int]:
        """Return the text before the array's key, and where the array's first object may be."""
        start = len(text) - len(text.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE))
        if text[start:start + 1] == b"[":
            self._bare = True
            return b"", start + 1
        if start == len(text):
            raise _JsonCut
        if text[start:start + 1] != b"{":
            raise self.bad("not JSON: an object or an array was expected", start)
        depth = 0
        for token in _TOKEN.finditer(text, start):
            sign = token.group()
            if sign in (b"{", b"["):
                depth += 1
            elif sign in (b"}", b"]"):
                depth -= 1
                if not depth:
                    raise self.bad(f"the document holds no {self._key.decode()!r}", token.end())
            elif sign == b'"':
                raise _JsonCut
            elif depth == 1 and sign[1:-1] == self._key and (value := _VALUE.match(text, token.end())):
                if value.group(1) == b"[":
                    return text[start:token.start()], value.end()
                if value.group(1):
                    raise self.bad(f"{self._key.decode()!r} is not an array", value.end())
        raise _JsonCut

    def _take(self, text: bytearray, last: bool) -> tuple[list[T], int, bool]:
        """Return objects at the start of a framed text, where the next may begin, and whether the array ends there."""
        if not _skips_bad.get():
            return self._take_sound(text, last)
        sound, halves = bytes(text), self.halves
        try:
            return self._take_sound(text, last)
        except BadCapture:
            self.halves = halves
            return self._take_good(sound, last)

    def _take_good(self, text: bytes, last: bool) -> tuple[list[T], int, bool]:
        """Return the same of a text with malformed events, without these."""
        cut = malformed.split(text, last, self._is_event)
        for start, end in cut.bad:
            goes_on = bool(self.bad_events) and self.bad_events[-1][1] == self._offset + start
            first = self.bad_events.pop()[0] if goes_on else self._offset + start
            self.bad_events.append((first, self._offset + end))
        if last and not cut.ended:
            self.cut.append("truncated: the array of events has no end; what was to follow is missing")
        return [self._event(text[start:end]) for start, end in cut.good], cut.used, cut.ended or last

    def _event(self, text: bytes) -> T:
        return self._read(bytearray(b"[" + text + b"]"), self._decoder.decode)[0]

    def _is_event(self, text: bytes) -> bool:
        halves = self.halves
        try:
            return getattr(self._event(text), "ph", "X") != ""  # an object of an event's arguments has no phase
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        finally:
            self.halves = halves

    def _take_sound(self, text: bytearray, last: bool) -> tuple[list[T], int, bool]:
        if not last and (guess := self._guess(text)) is not None:
            return *guess, False
        end, ends = _structure(text)
        if end is not None:
            if text[end] != ord("]"):
                raise self.bad("a } that nothing opened", end, LEAVE_OUT)
            return self._decode(text, _last_object_end(text, end)), end + 1, True
        remainder = text[ends[-1]:].lstrip(_SPACE)
        if remainder and ends[-1] > 1 and not remainder.startswith(b","):
            raise self.bad(f"{_quote_text(remainder)} behind an event", ends[-1], LEAVE_OUT)
        if last:
            return self._take_cut_array(text, ends[-1])
        for place in reversed(ends):
            if place > 1 and (comma := _COMMA.match(text, place)):
                return self._decode(text, place), comma.end(), False
        return [], 1, False

    def _guess(self, text: bytearray) -> tuple[list[T], int] | None:
        """Return objects up to the last place that looks like the end of one; None if no such place proves right."""
        at = len(text)
        for _ in range(GUESSES):
            at = text.rfind(b"}", 0, at)
            if at < 0:
                return None
            if between := _BETWEEN.match(text, at):
                replaced = text[at + 1]
                try:
                    return self._decode(text, at + 1), between.end()
                except BadCapture:
                    text[at + 1] = replaced
                    return None
        return None

    def _take_cut_array(self, text: bytearray, end: int) -> tuple[list[T], int, bool]:
        """Return the last objects of a file without the array's end."""
        if remainder := text[end:].strip(_SPACE + b","):
            raise self.bad(f"the file is cut short inside an event that begins with {_quote_text(remainder)}",
                           len(text) - 1, LEAVE_OUT)
        self.cut.append("truncated: the array of events has no end; the file stops after byte "
                             f"{self._offset + end}, and what was to follow is missing")
        return self._decode(text, end), len(text) - 1, True

    def _end(self, text: bytes) -> None:
        """Read the text after the array."""
        if len(text) > LIMIT_BYTES:
            raise self.bad(f"more than {LIMIT_BYTES} bytes behind the events", 1)
        remainder = text.strip(_SPACE)
        if self._bare:
            if remainder:
                raise self.bad(f"{_quote_text(remainder)} behind the end of the array", 1)
        elif remainder:
            after = self._object(b"{" + remainder.removeprefix(b","))
            if self._key.decode() in after:
                raise self.bad(f"{self._key.decode()!r} stands in the document twice", 1)
            self.fields |= after
        elif not self.cut:
            self.cut.append("truncated: the document is not closed behind its events; the rest is missing")

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            return self._read(bytearray(text), msgspec.json.Decoder(dict[str, Any]).decode)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.bad(f"outside the events: {error}", _position(error)) from error

    def _decode(self, text: bytearray, end: int) -> list[T]:
        """Return the objects of a framed text up to a place, where the closing bracket is put."""
        text[end] = ord("]")
        try:
            return self._read(text, self._objects, end + 1)
        except UnicodeDecodeError as error:
            raise self.bad(f"not UTF-8: {error.reason}", error.start, LEAVE_OUT) from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.bad(f"an event is not as it should be: {error}", _position(error), LEAVE_OUT) from error

    def _read(self, text: bytearray, decode: Callable[[memoryview], R], end: int | None = None) -> R:
        """Return the text up to a place, decoded; if it has unpaired surrogates, replace them and decode it again."""
        try:
            return decode(_utf8(text, end))
        except (msgspec.ValidationError, RecursionError):
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            halves = _replace_halves(text, end)
            if not halves:
                raise
        self.halves += halves
        return decode(_utf8(text, end))

    def _objects(self, text: memoryview) -> list[T]:
        for narrower in tuple(self._narrower):
            try:
                objects: list[T] = narrower.decoder.decode(text)
            except msgspec.ValidationError:
                narrower.missed += 1
                if narrower.missed == PATIENCE:
                    self._narrower.remove(narrower)
            else:
                narrower.missed = 0
                return objects
        return self._decoder.decode(text)

    def _double_size(self, size: int) -> int:
        if size >= LIMIT_BYTES:
            raise self.bad(f"no event ends within {LIMIT_BYTES} bytes", 1)
        return 2 * size

    def bad(self, what: str, at: int = 0, fix: str = FIX) -> BadCapture:
        """Return the error to raise: `at` counts from the start of the text being read."""
        return BadCapture(f"{self.path}: byte {self._offset + max(at, 0)}: {what}", fix)


def _utf8(text: bytearray, end: int | None) -> memoryview:
    """Return the text up to a place. Raise UnicodeDecodeError: the decoder does not check what it leaves undecoded."""
    whole = memoryview(text)[:end]
    if not text.isascii():
        codecs.utf_8_decode(whole, "strict", True)
    return whole


def _replace_halves(text: bytearray, end: int | None) -> int:
    """Replace unpaired surrogates in place; return their number."""
    places = [(match.start(), match.end()) for match in _HALF.finditer(text, 0, len(text) if end is None else end)
              if match.lastindex]
    for start, stop in places:
        text[start:stop] = _REPLACEMENT[stop - start]
    return len(places)


def _structure(text: bytearray) -> tuple[int | None, list[int]]:
    """Return where the array ends (its bracket; None if it goes on), and where its last one or two objects end.

    The text is framed: inside its first bracket.
    """
    depth, inside, at, ends = 0, 0, 1, [1]
    while at < len(text):
        block = bytes(text[at:at + BLOCK_BYTES])
        if (len(block) - len(block.rstrip(b"\\"))) % 2:
            block = bytes(text[at:at + BLOCK_BYTES + 1])  # an escape and what it escapes stay together
        plain = re.sub(rb"\\.", b"  ", block, flags=re.DOTALL) if b"\\" in block else block
        signs = np.frombuffer(plain, np.uint8)
        quoted = (np.cumsum(signs == 0x22, dtype=np.uint8) + inside) & 1
        places = np.flatnonzero(((signs | 0x26) == 0x7f) & (quoted == 0))  # of { } [ ] Y y _ and DEL
        kinds = signs[places] & 0xdf  # [ and {, ] and } become one
        brackets = (kinds == 0x5b) | (kinds == 0x5d)
        places, kinds = places[brackets], kinds[brackets]
        levels = depth + np.cumsum(np.where(kinds == 0x5b, 1, -1))
        if (out := np.flatnonzero(levels < 0)).size:
            return at + int(places[out[0]]), ends
        ends = (ends + (at + 1 + places[(levels == 0) & (kinds == 0x5d)][-2:]).tolist())[-2:]
        depth = int(levels[-1]) if levels.size else depth
        inside = int(quoted[-1])
        at += len(block)
    return None, ends


def _read_framed(file: BinaryIO, remainder: bytes, size: int) -> tuple[bytearray, bool]:
    """Return the remainder and what follows it in the file, `size` in all, and whether the file ends there.

    Framed: a bracket before it, and a space after it where a bracket may be put, so that decoding needs no copy.
    """
    text = bytearray(size + 2)
    text[0] = ord("[")
    text[1:1 + len(remainder)] = remainder
    filled, room = 1 + len(remainder), memoryview(text)[:size + 1]
    while filled <= size and (more := file.readinto(room[filled:])):  # type: ignore[attr-defined]
        filled += more
    room.release()
    del text[filled:]
    text.append(ord(" "))
    return text, filled <= size


def _last_object_end(text: bytearray, end: int) -> int:
    """Return where the part before the end of the array ends: its last object, or the array's beginning."""
    last = len(text[:end].rstrip(_SPACE)) - 1
    return last if text[last] == ord(",") and last > 0 else end


def _fill(file: BinaryIO, text: bytes, size: int) -> bytes:
    """Return the text, extended from the file until it is `size` long or the file ends."""
    parts, filled = [text], len(text)
    while filled < size and (more := file.read(size - filled)):
        parts.append(more)
        filled += len(more)
    return b"".join(parts)


def _position(error: Exception) -> int:
    """Return the byte that a decoder's message names; 0 if it names none."""
    if isinstance(error, UnicodeDecodeError):
        return error.start
    match = re.search(r"\(byte (\d+)\)", str(error))
    return int(match.group(1)) if match else 0


def _quote_text(text: bytes | bytearray) -> str:
    return repr(bytes(text[:40]).decode("utf-8", "replace"))
