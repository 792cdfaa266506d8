"""What chunks bring that differ from one known chunk in a few places only, found for many of them at once.

Nearly all chunks of a server are the same bytes but for the answer's id, its text and the counts of tokens. One of them
is decoded; of the others only those places are read, where every byte between them is that of the first. All of it is
decided by bytes that cannot mean anything else: no backslash, so that each quote is the end of a text, no control
characters, whole UTF-8, and numbers as JSON has them. What fits no shape is decoded as ever.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Array, Flags, Ints, UInts8
from aaco.llm.answers import Malformed, decode, kind_of

MOST, TRIES = 8, 2  # shapes that are tried; made from one piece of content
LONGEST = 4096  # bytes of a chunk that a shape is made of
WORTH = 16  # chunks without a shape from which on one is made
MOST_DIGITS = 15  # of a count: what any reader holds exactly
# What may differ. Whether a text is empty matters, so no hole is.
TEXTS = (b"id", b"content", b"text", b"reasoning", b"reasoning_content")
COUNTS = (b"created", b"prompt_tokens", b"total_tokens", b"completion_tokens")
HOLE = re.compile(rb'"(?:%s)": ?"(?P<text>[^"]+)"|"(?P<name>%s)": ?(?P<count>0|[1-9]\d{0,14})(?=[,}])'
                  % (b"|".join(TEXTS), b"|".join(COUNTS)))
TOTAL = b"completion_tokens"
TENS = 10.0 ** np.arange(MOST_DIGITS)[::-1]
QUOTE, ZERO, BACKSLASH, SPACE = b'"0\\ '
UNKNOWN = -1


class ChunkShape(Struct, frozen=True):
    """A chunk with holes. pieces: the bytes around them, one more than holes; is_text: which of them hold a text."""

    kind: str
    pieces: tuple[bytes, ...]
    is_text: tuple[bool, ...]
    total: int | None  # which hole holds the tokens until now

    @property
    def quotes(self) -> int:
        """Return the number of quotes in it."""
        return sum(piece.count(b'"') for piece in self.pieces)


class ChunkShapes:
    """Those that were met so far, by number; they are of a server, not of an answer."""

    def __init__(self) -> None:
        self.met: list[ChunkShape] = []
        self._latest: list[int] = []  # those that are tried, the last that fitted first

    def of(self, content: bytes, begins: Ints, ends: Ints, events: Ints) -> tuple[Ints, Ints]:
        """Return of each row the number of its shape, and its tokens until now; UNKNOWN for none.

        begins, ends: where the bytes of each row are in the content, one after the other; events: the rows that may
        have one, as they are the line of an event and that which ends it.
        """
        shape, total = (np.full(len(begins), UNKNOWN, np.int64) for _ in range(2))
        pieces = _QuotedPieces.of(content, begins)
        left, fitted, tried = events[pieces.clean[events]], [], 0
        for number in self._latest:
            left, fits = self._fit(number, pieces, left, shape, total)
            fitted += [number] * fits
        while len(left) >= WORTH and tried < TRIES:
            tried, first = tried + 1, left[0]
            if made := shape_of(content[begins[first]:ends[first]]):
                self.met.append(made)
                left, _ = self._fit(len(self.met) - 1, pieces, left, shape, total)
                fitted.append(len(self.met) - 1)
            else:
                left = left[1:]
        self._latest = [*fitted, *(number for number in self._latest if number not in fitted)][:MOST]
        return shape, total

    def _fit(self, number: int, pieces: _QuotedPieces, left: Ints, shape: Ints, total: Ints) -> tuple[Ints, bool]:
        """Fill in what has this shape; return what is left, and whether anything fitted."""
        fits, totals = pieces.fitting(self.met[number], left)
        shape[left[fits]], total[left[fits]] = number, totals[fits]
        return left[~fits], bool(fits.any())


def shape_of(content: bytes) -> ChunkShape | None:
    """Return the shape of the line of an event; None where one of its like may mean something else."""
    if len(content) > LONGEST:
        return None
    try:
        chunk = decode(content.removeprefix(b"data: "))
    except Malformed:
        return None
    holes = list(HOLE.finditer(content))
    totals = [number for number, hole in enumerate(holes) if hole["name"] == TOTAL]
    kind = kind_of(chunk)
    counted = chunk.usage is not None and chunk.usage.completion_tokens is not None
    if (BACKSLASH in content or not holes or chunk.timings
            or kind not in ("content", "reasoning") or any(choice.finish_reason is not None for choice in chunk.choices)
            or content.count(b'"%s"' % TOTAL) != len(totals) or len(totals) != counted):
        return None
    spans = [hole.span("text" if hole["name"] is None else "count") for hole in holes]
    edges = [0, *(edge for span in spans for edge in span), len(content)]
    pieces = tuple(content[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True))
    return ChunkShape(kind, pieces, tuple(hole["name"] is None for hole in holes), totals[0] if totals else None)


class _QuotedPieces(Struct, frozen=True):
    """Pieces of content, and where quotes are: `quotes` of all, `first` the number of each one's first."""

    letters: UInts8
    begins: Ints
    clean: Flags
    quotes: Ints
    first: Ints
    count: Ints

    @classmethod
    def of(cls, content: bytes, begins: Ints) -> _QuotedPieces:
        """Look for what decides whether a piece can have a shape. begins: each piece ends where the next begins."""
        letters = np.frombuffer(content, np.uint8)
        unclean = np.flatnonzero((letters < SPACE) | (letters == BACKSLASH))
        clean = _counted(np.searchsorted(unclean, begins), len(unclean)) == 2  # the two that end the event
        if not _is_utf8(content):
            clean[:] = False
        quotes = np.flatnonzero(letters == QUOTE)
        first = np.searchsorted(quotes, begins)
        return cls(letters, np.append(begins, len(letters)), clean, quotes, first, _counted(first, len(quotes)))

    def fitting(self, shape: ChunkShape, rows: Ints) -> tuple[Flags, Ints]:
        """Return which of these rows have this shape, and the totals of those."""
        fits, total = np.zeros(len(rows), bool), np.full(len(rows), UNKNOWN, np.int64)
        at = np.flatnonzero(self.count[rows] == shape.quotes)
        begin, end, first = self.begins[rows[at]], self.begins[rows[at] + 1], self.first[rows[at]]
        start, before, last = begin, 0, len(shape.pieces) - 1
        for number, piece in enumerate(shape.pieces):
            if number:
                hole = start  # where the piece before it ended
                start = self._start(shape, number, end, first, before)
                ok = start > hole
                if not shape.is_text[number - 1]:
                    values, right = _counts(self.letters, hole, start)
                    ok &= right
                    if number - 1 == shape.total:
                        total[at] = values
            else:
                ok = np.ones(len(at), bool)
            ok &= start + len(piece) <= end if number < last else start + len(piece) == end
            ok[ok] = _equal(self.letters, start[ok], piece)
            at, start, end, first = (column[ok] for column in (at, start + len(piece), end, first))
            before += piece.count(b'"')
        fits[at] = True
        return fits, total

    def _start(self, shape: ChunkShape, number: int, end: Ints, first: Ints, before: int) -> Ints:
        """Where a piece begins: by its first quote, of which there are `before` before it, or by the end."""
        piece = shape.pieces[number]
        offset = piece.find(b'"')
        return end - len(piece) if offset < 0 else self.quotes[first + before] - offset


def _counted(first: Ints, count: int) -> Ints:
    """Return how many of `count` things are in each piece, by the number of its first."""
    return np.diff(np.append(first, count))


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _equal(letters: UInts8, starts: Ints, piece: bytes) -> Flags:
    """Return at which of these places the piece is."""
    return np.asarray(_windows(letters, starts, len(piece)).view(f"S{len(piece)}")[:, 0] == piece)


def _windows(letters: UInts8, starts: Ints, size: int) -> Array:
    """Return so many letters from each of these places on, one row each."""
    if not len(starts):
        return np.zeros((0, size), np.uint8)
    windows = np.ndarray((len(letters) - size + 1,), f"V{size}", letters.data, strides=(1,))
    return np.asarray(windows[starts]).view(np.uint8).reshape(-1, size)


def _counts(letters: UInts8, begins: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """Return the numbers there, and which are one as JSON has it, of MOST_DIGITS at most."""
    size = ends - begins
    right = (size > 0) & (size <= MOST_DIGITS)
    width = int(size[right].max(initial=1))
    right &= ends >= width
    size, digits = size[right], _windows(letters, ends[right] - width, width) - ZERO  # what is less than 0 is above 9
    is_number = np.arange(width) >= width - size[:, None]
    values = np.zeros(len(begins), np.int64)
    values[right] = np.where(is_number, digits, 0) @ TENS[-width:]
    right[right] = ~((digits > 9) & is_number).any(axis=1) & ((size == 1) | (letters[begins[right]] != ZERO))
    return values, right
