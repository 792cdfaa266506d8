"""Read long JSON arrays of integers into numpy, without an object per number, and strictly: an integer or an error."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from aaco.core.arrays import Ints

Text = bytes | msgspec.Raw
CHUNK_BYTES = 8 << 20
LARGEST = 1 << 62  # differences of two smaller ones fit an int64; numpy reads overflows as its limit, which is larger
_SPACE = b" \t\r\n"
_NUMBER = b"0123456789-"
_IS_NUMBER_BYTE = np.zeros(256, bool)
_IS_NUMBER_BYTE[list(_NUMBER)] = True


def rows(text: Text, at_least: int) -> Iterator[Ints]:
    """Yield the rows of a JSON array of arrays of integers, all of one length of `at_least` or more, in blocks.

    `text` is valid JSON, an array or null. Raise ValueError if it holds anything but such rows.
    """
    width = 0
    for block in _blocks(_inside(text)):
        width = width or block[:block.index(b"]")].count(b",") + 1
        if width < at_least:
            raise ValueError(f"a row of {width} values where {at_least} belong")
        yield _read_block(block, width)


def flat(text: Text) -> Ints:
    """Return a JSON array of integers. Raise ValueError if it holds anything else."""
    body = bytes(_inside(text)).strip(_SPACE)
    count = body.count(b",") + 1 if body else 0
    if body.translate(None, _NUMBER + _SPACE) != b"," * (count - 1 if count else 0):
        raise ValueError("not an array of integers")
    return _numbers(body.translate(None, _SPACE), count)


def tree(text: Text) -> tuple[Ints, NDArray[np.int16], NDArray[np.bool_]]:
    """Return all integers of nested arrays in order: their values, their depth, and whether each begins its array.

    Raise ValueError if there is anything but arrays and integers.
    """
    packed = bytes(memoryview(text)).translate(None, _SPACE)
    packed = b"" if packed == b"null" else packed
    if packed.translate(None, _NUMBER + b"[],"):
        raise ValueError("not arrays of integers")
    signs = np.frombuffer(packed, np.uint8)
    depth = np.cumsum((signs == ord("[")).astype(np.int8) - (signs == ord("]")).astype(np.int8), dtype=np.int16)
    number = _IS_NUMBER_BYTE[signs]
    starts = np.flatnonzero(number & ~np.concatenate(([False], number[:-1])))
    spaced = packed.translate(bytes.maketrans(b"[],", b"   "))
    values = _numbers(b",".join(spaced.split()), len(starts))
    return values, depth[starts], signs[np.maximum(starts, 1) - 1] == ord("[")


def _inside(text: Text) -> memoryview:
    """Return the text between the brackets of an array; nothing for null."""
    view = memoryview(text)
    begin, end = 0, len(view)
    while begin < end and view[begin] in _SPACE:
        begin += 1
    while end > begin and view[end - 1] in _SPACE:
        end -= 1
    if bytes(view[begin:min(begin + 5, end)]) == b"null":
        return view[:0]
    if end - begin < 2 or view[begin] != ord("[") or view[end - 1] != ord("]"):
        raise ValueError("not an array")
    return view[begin + 1:end - 1]


def _blocks(inside: memoryview) -> Iterator[bytes]:
    """Yield parts of an array that end where a row ends; only one at a time is copied."""
    at = 0
    while at < len(inside):
        part = bytes(inside[at:at + CHUNK_BYTES])
        end = part.rfind(b"]") + 1
        if end:
            yield part[:end].strip(_SPACE + b",")
        elif part.strip(_SPACE):
            raise ValueError("an array holds something other than rows of integers")
        at += end or len(part)


def _read_block(block: bytes, width: int) -> Ints:
    count = block.count(b"[")
    empty_row = b"[" + b"," * (width - 1) + b"]"
    if block.translate(None, _NUMBER + _SPACE) != b",".join([empty_row] * count):
        raise ValueError(f"not rows of {width} integers")
    return _numbers(block.translate(None, b"[]" + _SPACE), count * width).reshape(count, width)


def _numbers(text: bytes, count: int) -> Ints:
    """Return `count` integers between commas. numpy stops at other text, and reads integers beyond 64 bits as its
    limit.
    """
    values = np.fromstring(text, np.int64, sep=",") if count else np.zeros(0, np.int64)
    if len(values) != count:
        raise ValueError("a value is no integer")
    if count and (values.max() >= LARGEST or values.min() <= -LARGEST):
        raise ValueError("an integer beyond 62 bits")
    return values
