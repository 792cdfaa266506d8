"""Where the events of a JSON array begin and end, though some are malformed: a break or a quote in a name, `inf`.

A malformed event ends where the next sound one begins: at a brace after a comma from which a whole object can be read
that is an event. The objects inside of an event are none, so what an event is the caller must know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

_NEXT = re.compile(r",\s*(?=\{)")
_END = re.compile(r"\](?=\s*(?:\}\s*\Z|,\s*\"|\Z))")
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


class EventSplit(NamedTuple):
    """Places of sound and of malformed events; where the text that was used ends, and whether the array ended there."""

    good: list[tuple[int, int]]
    bad: list[tuple[int, int]]
    used: int
    ended: bool


def split(text: bytes, last: bool, is_event: Callable[[bytes], bool]) -> EventSplit:
    """Return the events of a text that begins with the bracket of their array, or a place in it where one may begin.

    last: whether the file ends with the text. Without that an event at its end may go on, and is not used.
    """
    plain, at = text.decode("latin-1"), 1  # a byte is a letter; only ASCII has a meaning in JSON
    good, bad = list[tuple[int, int]](), list[tuple[int, int]]()
    while True:
        at = _matched_end(_BETWEEN, plain, at)
        if at == len(plain):
            return EventSplit(good, bad, at, False)
        if plain[at] == "]":
            return EventSplit(good, bad, at + 1, True)
        end = _object_end(plain, at)
        if end is not None and is_event(text[at:end]):
            good.append((at, end))
            at = end
            continue
        end = end or _resume(text, plain, at, last, is_event)
        if end is None:
            return EventSplit(good, bad, at, False)
        bad.append((at, end))
        at = end


def _matched_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _object_end(text: str, at: int) -> int | None:
    """Return where the object that begins here ends; None if it is malformed, or not whole."""
    try:
        return _DECODER.raw_decode(text, at)[1] if text[at] == "{" else None
    except (ValueError, RecursionError):
        return None


def _resume(text: bytes, plain: str, at: int, last: bool, is_event: Callable[[bytes], bool]) -> int | None:
    """Return where a malformed event ends: before the next sound one, or with the array; None if it is yet to come."""
    for place in _NEXT.finditer(plain, at):
        end = _object_end(plain, place.end())
        if end is not None and is_event(text[place.end():end]):
            return place.start()
    if not last:
        return None
    ends = [place.start() for place in _END.finditer(plain, at + 1)]
    return ends[-1] if ends else len(plain)
