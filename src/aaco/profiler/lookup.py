"""Small tables by id: which row of it each id of a long column means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aaco.profiler.ledger import ABSENT, integers

# Ids this much further apart than they are many are searched for instead of laid out in an array.
SPREAD = 8
PROCESS_IDS = 1 << 44
UPPER = 1 << 43


class Lookup:
    """Finds rows by id. Where an id occurs twice its first row is meant."""

    def __init__(self, ids: Sequence[int]) -> None:
        keys = np.array(ids, np.int64)
        self._keys, self._rows = np.unique(keys, return_index=True)
        self._first = int(self._keys[0]) if len(keys) else 0
        spread = int(self._keys[-1]) - self._first + 1 if len(keys) else 0
        self._direct = _laid_out(self._keys - self._first, self._rows, spread) if spread <= SPREAD * len(keys) else None

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """The row of each id, -1 where there is none (int64, like `ids`)."""
        if not len(self._keys):
            return np.full(len(ids), -1, np.int64)
        if self._direct is None:
            at = np.minimum(np.searchsorted(self._keys, ids), len(self._keys) - 1)
            return np.where(self._keys[at] == ids, self._rows[at], -1)
        inside = (ids >= self._first) & (ids <= self._keys[-1])
        return np.where(inside, self._direct[np.where(inside, ids - self._first, 0)], -1)


class Reference:
    """Integers by id: what an id stands for, such as a process for its row in a table of processes."""

    def __init__(self, ids: Sequence[int], values: Sequence[int | None]) -> None:
        self._lookup = Lookup(ids)
        self._values = np.array([ABSENT if value is None else value for value in values] + [ABSENT], np.int64)

    def of(self, ids: pa.Array) -> tuple[pa.Array, int]:
        """The integer of each id, null where there is none, and how many ids that are not null are in no row."""
        keys = integers(ids)
        rows = self._lookup.rows(keys)
        found = self._values[rows]
        absent = found == ABSENT
        dangling = int(((rows < 0) & (keys != ABSENT)).sum())
        return pa.array(found, mask=absent if absent.any() else None), dangling


def _laid_out(offsets: np.ndarray, rows: np.ndarray, spread: int) -> np.ndarray:
    direct = np.full(spread, -1, np.int64)
    direct[offsets] = rows
    return direct


class Apart:
    """Makes ids unique that each process counts for itself: those of the n-th process are moved by n x 2^44."""

    def __init__(self) -> None:
        self._processes: dict[int, int] = {}

    def of(self, ids: np.ndarray, process: np.ndarray, upper: bool = False) -> pa.Array:
        """The ids, null where one is none (0, negative or absent); `upper` keeps a second kind of ids apart."""
        known, which = np.unique(process, return_inverse=True)
        base = np.array([self._processes.setdefault(one, len(self._processes)) for one in known.tolist()], np.int64)
        none = (ids <= 0) | (ids >= UPPER)
        return pa.array(np.where(none, 0, ids) + base[which] * PROCESS_IDS + upper * UPPER, mask=none)
