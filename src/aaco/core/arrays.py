"""The types of NumPy arrays, by what they hold: every module that names one takes it from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Ints = NDArray[np.int64]  # times and durations in ns, ids, numbers of rows
Ints32 = NDArray[np.int32]  # codes of a dictionary
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]
UInts8 = NDArray[np.uint8]
UInts64 = NDArray[np.uint64]  # words of ring buffers, hashes
Structs = NDArray[np.void]  # rows of a structured type
Array = NDArray[Any]


class ArrayRows(Struct, frozen=True):
    """Arrays of one length: the columns of some rows."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self, rows: Ints | Flags | slice) -> Self:
        """Return these rows."""
        if isinstance(rows, np.ndarray) and rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)  # once, not for each column
        return type(self)(*(getattr(self, column)[rows] for column in self.__struct_fields__))


def find_sorted(sorted_ids: Array, ids: Array) -> Ints:
    """Return the place of each id in sorted_ids (ascending), the first of equal ones; -1 if it is not there."""
    if not len(sorted_ids):
        return np.full(len(ids), -1)
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    return np.where(sorted_ids[at] == ids, at, -1)


def summed(places: Ints, values: Ints, count: int) -> Ints:
    """Return the exact sum of the values at each of so many places."""
    total = np.zeros(count, np.int64)
    np.add.at(total, places, values)
    return total


def joined(parts: Iterable[Ints | Ints32]) -> Ints:
    """Return the parts one after the other; empty without any."""
    return np.concatenate([np.zeros(0, np.int64), *parts])
