"""Small tables by id: find the row of each id of a long column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aaco.profiler.io.record_accounting import ABSENT, integers

# If the range of the ids exceeds their number by this factor, they are searched, not laid out in an array.
SPREAD = 8
PROCESS_IDS = 1 << 44
UPPER = 1 << 43


class Lookup:
    """Finds rows by id. If an id occurs twice, its first row counts."""

    def __init__(self, ids: Sequence[int]) -> None:
        keys = np.array(ids, np.int64)
        self._keys, self._rows = np.unique(keys, return_index=True)
        self._first = int(self._keys[0]) if len(keys) else 0
        spread = int(self._keys[-1]) - self._first + 1 if len(keys) else 0
        is_dense = spread <= SPREAD * len(keys)
        self._direct = _lay_out(self._keys - self._first, self._rows, spread) if is_dense else None

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return the row of each id, -1 if there is none (int64, like `ids`)."""
        if not len(self._keys):
            return np.full(len(ids), -1, np.int64)
        if self._direct is None:
            at = np.minimum(np.searchsorted(self._keys, ids), len(self._keys) - 1)
            return np.where(self._keys[at] == ids, self._rows[at], -1)
        inside = (ids >= self._first) & (ids <= self._keys[-1])
        return np.where(inside, self._direct[np.where(inside, ids - self._first, 0)], -1)


class Reference:
    """Integers by id, such as the process of each row id in a table of processes."""

    def __init__(self, ids: Sequence[int], values: Sequence[int | None]) -> None:
        self._lookup = Lookup(ids)
        self._values = np.array([ABSENT if value is None else value for value in values] + [ABSENT], np.int64)

    def of(self, ids: pa.Array) -> tuple[pa.Array, int]:
        """Return the integer of each id, null if there is none, and the number of non-null ids that are in no row."""
        keys = integers(ids)
        rows = self._lookup.rows(keys)
        values = self._values[rows]
        absent = values == ABSENT
        dangling = int(((rows < 0) & (keys != ABSENT)).sum())
        return pa.array(values, mask=absent if absent.any() else None), dangling


def _lay_out(offsets: np.ndarray, rows: np.ndarray, spread: int) -> np.ndarray:
    direct = np.full(spread, -1, np.int64)
    direct[offsets] = rows
    return direct


class ProcessScopedIds:
    """Makes ids unique that each process counts for itself: those of the n-th process are moved by n x 2^44."""

    def __init__(self) -> None:
        self._processes: dict[int, int] = {}

    def of(self, ids: np.ndarray, process: np.ndarray, upper: bool = False) -> pa.Array:
        """Return the ids, null if one is none (0, negative or absent); `upper` separates a second kind of ids."""
        processes, which = np.unique(process, return_inverse=True)
        base = np.array([self._processes.setdefault(pid, len(self._processes)) for pid in processes.tolist()], np.int64)
        is_none = (ids <= 0) | (ids >= UPPER)
        return pa.array(np.where(is_none, 0, ids) + base[which] * PROCESS_IDS + upper * UPPER, mask=is_none)
