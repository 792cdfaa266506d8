"""What streaming over a trace needs in many places: numbers for devices, streams and threads, and "what came before".

A lane is one device, stream or thread; its rows follow each other in time. Everything here works on whole columns and
carries between slices of a trace only one value per lane, so the answer does not depend on where the slices are cut.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.distinct import coded

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
FEW_ROWS = 64  # of a lane: so few are not worth a loop over lanes
NONE = np.iinfo(np.int64).min  # stands for null in integer columns: no id and no time is this


def integers(column: pa.ChunkedArray | pa.Array) -> Ints:
    """An integer column as int64; null becomes NONE."""
    filled = pc.fill_null(column, NONE) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy(),
                      np.int64)


class Keys:
    """Numbers tuples of integers 0, 1, 2, ... in the order in which they first appear."""

    def __init__(self) -> None:
        self.known: list[tuple[int, ...]] = []
        self._number: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def numbers(self, *columns: Ints) -> Ints:
        """The number of each row's tuple."""
        local, first = coded(*columns)
        found = [self._of(tuple(int(column[row]) for column in columns)) for row in first.tolist()]
        return np.array(found, np.int64)[local]

    def _of(self, key: tuple[int, ...]) -> int:
        number = self._number.setdefault(key, len(self.known))
        if number == len(self.known):
            self.known.append(key)
        return number


class Names:
    """One number per name over all slices, whatever dictionary each slice comes with."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._number: dict[str, int] = {}
        self._last: tuple[pa.Array, Ints] | None = None

    def __len__(self) -> int:
        return len(self.known)

    def numbers(self, column: pa.ChunkedArray | pa.DictionaryArray) -> Ints:
        """The number of each row's name; null becomes NONE."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        parts = [self._chunk(chunk) for chunk in chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def text(self, number: int) -> str:
        """The name of a number; empty for none."""
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
            found = [self._number.setdefault(name, len(self._number)) for name in dictionary.to_pylist()]
            self.known.extend(list(self._number)[len(self.known):])
            self._last = dictionary, np.array(found, np.int64)
        return self._last[1]


def by_lane(lane: Ints) -> Ints:
    """The rows lane by lane, each lane's in the order they have; lanes are numbered from 0."""
    if not len(lane) or (lane == lane[0]).all():
        return np.arange(len(lane))
    return np.argsort(lane.astype(np.uint16) if lane.max() < 1 << 16 else lane, kind="stable")  # 16 bits: by radix


def largest(values: Ints, count: int) -> Ints:
    """The rows of the largest values, the largest first, of equal ones the earlier; without sorting the others."""
    rows = np.arange(len(values))
    if len(values) > count:
        rows = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    return rows[np.argsort(~values[rows], kind="stable")[:count]]


def heads(lane: Ints) -> Ints:
    """The first row of each lane, where rows are grouped by lane."""
    if not len(lane):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.r_[True, lane[1:] != lane[:-1]])


def grow(values: NDArray[Any], count: int, fill: int) -> NDArray[Any]:
    """The per-lane values with room for `count` lanes; new ones are `fill`."""
    missing = count - len(values)
    if missing <= 0:
        return values
    return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])


def reach_before(lane: Ints, end: Ints, carried: Ints) -> Ints:
    """For each row, the latest end of the earlier rows of its lane; NONE where there is none.

    Rows are grouped by lane and in time order within it. `carried` has each lane's latest end from the slices before,
    or NONE, and is brought up to date in place.
    """
    first = heads(lane)
    if len(first) * FEW_ROWS > len(lane):
        return _reach_by_rank(lane, end, carried, first)
    before = np.empty(len(end), np.int64)
    for low, high in pairwise([*first.tolist(), len(lane)]):
        own = lane[low]
        before[low], before[low + 1:high] = carried[own], end[low:high - 1]
        np.maximum.accumulate(before[low:high], out=before[low:high])
        carried[own] = max(before[high - 1], end[high - 1])
    return before


def _reach_by_rank(lane: Ints, end: Ints, carried: Ints, first: Ints) -> Ints:
    """The same for many lanes of few rows: a running maximum over ranks, kept apart per lane by an offset, does all
    lanes at once."""
    own = lane[first]
    values = np.concatenate([end, carried[own]])
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    group = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(lane)])) * len(values)
    running = group + rank[:len(end)]
    running[first] = np.maximum(running[first], group[first] + rank[len(end):])
    reach = values[order[np.maximum.accumulate(running) - group]]
    before = np.empty(len(end), np.int64)
    before[1:] = reach[:-1]
    before[first] = carried[own]
    carried[own] = reach[np.r_[first[1:], len(lane)] - 1]
    return before


def last_before(lane: Ints, marked: Flags) -> Ints:
    """For each row, the index of the last marked row before it in its lane; -1 where there is none.

    Rows are grouped by lane and in time order within it.
    """
    if not len(lane):
        return np.zeros(0, np.int64)
    running = np.maximum.accumulate(np.where(marked, np.arange(len(lane)), -1))
    before = np.r_[-1, running[:-1]]
    first = heads(lane)
    start = np.repeat(first, np.diff(np.r_[first, len(lane)]))
    return np.where(before >= start, before, -1)
