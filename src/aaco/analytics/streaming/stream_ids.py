"""What streaming over a trace needs in many places: numbers of devices, streams and threads, and the row before a row.

A stream here is one device, stream or thread; its rows follow each other in time. All functions work on whole columns
and carry one value per stream between slices, so the answer does not depend on where the slices are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.arrays import Flags, Ints, joined
from aaco.core.distinct import coded

FEW_ROWS = 64  # per stream: fewer are not worth a loop over streams
NONE = np.iinfo(np.int64).min  # null in integer columns: no id and no time has this value


def integers(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Return an integer column as int64; null becomes NONE."""
    filled = pc.fill_null(column, NONE) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy(),
                      np.int64)


def number_of(identifier: int | None) -> int:
    """Return an identifier as integer columns hold it: NONE for None."""
    return NONE if identifier is None else identifier


def or_none(number: int) -> int | None:
    """Return the identifier of a number in an integer column: None for NONE."""
    return None if number == NONE else number


class TupleIds:
    """Numbers tuples of integers 0, 1, 2, ... in the order in which they first appear."""

    def __init__(self) -> None:
        self.known: list[tuple[int, ...]] = []
        self._number: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def numbers(self, *columns: Ints) -> Ints:
        """Return the number of each row's tuple."""
        local, first = coded(*columns)
        tuples = zip(*(column[first].tolist() for column in columns), strict=True)
        numbers = [self._number.setdefault(key, len(self._number)) for key in tuples]
        self.known.extend(islice(self._number, len(self.known), None))
        return np.array(numbers, np.int64)[local]


class NameIds:
    """One number per name over all slices, which may have different dictionaries."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._number: dict[str, int] = {}
        self._last: tuple[pa.Array, Ints] | None = None

    def __len__(self) -> int:
        return len(self.known)

    def numbers(self, column: pa.ChunkedArray | pa.DictionaryArray) -> Ints:
        """Return the number of each row's name; null becomes NONE."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        parts = [self._chunk(chunk) for chunk in chunks]
        return parts[0] if len(parts) == 1 else joined(parts)

    def text(self, number: int) -> str:
        """Return the name of a number; empty for none."""
        return self.known[number] if number >= 0 else ""

    def _chunk(self, chunk: pa.DictionaryArray) -> Ints:
        if not pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_encode()
        numbers = self._of(chunk.dictionary)
        codes = integers(chunk.indices.cast(pa.int64()))
        if chunk.null_count:
            return np.where(codes == NONE, NONE, numbers[np.maximum(codes, 0)] if len(numbers) else NONE)
        return numbers[codes]

    def _of(self, dictionary: pa.Array) -> Ints:
        if self._last is None or not self._last[0].equals(dictionary):
            numbers = [self._number.setdefault(name, len(self._number)) for name in dictionary.to_pylist()]
            self.known.extend(islice(self._number, len(self.known), None))
            self._last = dictionary, np.array(numbers, np.int64)
        return self._last[1]


class ValueByName:
    """A value for each name of some NameIds, computed once. of_none: the value where there is no name."""

    def __init__(self, names: NameIds, compute: Callable[[str], Any], of_none: Any) -> None:
        self._names, self._compute = names, compute
        self._values = np.array([of_none])  # by number, and that of none last

    def of(self, number: Ints) -> NDArray[Any]:
        """Return the value of each number of a name; NONE is of no name."""
        if new := self._names.known[len(self._values) - 1:]:
            values = np.array([self._compute(name) for name in new])
            self._values = np.concatenate([self._values[:-1], values, self._values[-1:]])
        return self._values[np.where(number == NONE, -1, number)]


def is_name(column: pa.ChunkedArray | pa.DictionaryArray, name: str) -> Flags:
    """Return whether each row of a NAME column has this name."""
    names = NameIds()
    numbers = names.numbers(column)
    return numbers == (names.known.index(name) if name in names.known else len(names))


def rows_by_stream(stream: Ints) -> Ints:
    """Return the rows grouped by stream, in their order within it; streams are numbered from 0."""
    if not len(stream) or (stream == stream[0]).all():
        return np.arange(len(stream))
    narrow = stream.astype(np.uint16) if stream.max() < 1 << 16 else stream  # 16 bits: sorted by radix
    return np.argsort(narrow, kind="stable")


def largest(values: Ints, count: int) -> Ints:
    """Return the rows of the largest values, the largest first, of equal ones the earlier; without sorting the others.
    """
    rows = np.arange(len(values))
    if len(values) > count:
        rows = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    return rows[np.argsort(~values[rows], kind="stable")[:count]]


def first_rows(stream: Ints) -> Ints:
    """Return the first row of each stream; rows are grouped by stream."""
    if not len(stream):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.r_[True, stream[1:] != stream[:-1]])


def grow(values: NDArray[Any], count: int, fill: int) -> NDArray[Any]:
    """Return the values per stream with room for `count` streams; new ones are `fill`."""
    missing = count - len(values)
    if missing <= 0:
        return values
    return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])


def latest_end_before(stream: Ints, end: Ints, carried: Ints) -> Ints:
    """Return, for each row, the latest end of the earlier rows of its stream; NONE if there is none.

    Rows are grouped by stream and in time order within it. `carried` has each stream's latest end from the slices
    before, or NONE; it is updated in place.
    """
    first = first_rows(stream)
    if len(first) * FEW_ROWS > len(stream):
        return _latest_end_by_rank(stream, end, carried, first)
    before = np.empty(len(end), np.int64)
    for low, high in pairwise([*first.tolist(), len(stream)]):
        number = stream[low]
        before[low], before[low + 1:high] = carried[number], end[low:high - 1]
        np.maximum.accumulate(before[low:high], out=before[low:high])
        carried[number] = max(before[high - 1], end[high - 1])
    return before


def _latest_end_by_rank(stream: Ints, end: Ints, carried: Ints, first: Ints) -> Ints:
    """Return the same for many streams of few rows.

    A running maximum over ranks does all streams at once; an offset per stream separates them.
    """
    numbers = stream[first]
    values = np.concatenate([end, carried[numbers]])
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    group = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(stream)])) * len(values)
    running = group + rank[:len(end)]
    running[first] = np.maximum(running[first], group[first] + rank[len(end):])
    reach = values[order[np.maximum.accumulate(running) - group]]
    before = np.empty(len(end), np.int64)
    before[1:] = reach[:-1]
    before[first] = carried[numbers]
    carried[numbers] = reach[np.r_[first[1:], len(stream)] - 1]
    return before


def last_before(stream: Ints, marked: Flags) -> Ints:
    """Return, for each row, the index of the last marked row before it in its stream; -1 if there is none.

    Rows are grouped by stream and in time order within it.
    """
    if not len(stream):
        return np.zeros(0, np.int64)
    running = np.maximum.accumulate(np.where(marked, np.arange(len(stream)), -1))
    before = np.r_[-1, running[:-1]]
    first = first_rows(stream)
    start = np.repeat(first, np.diff(np.r_[first, len(stream)]))
    return np.where(before >= start, before, -1)
