"""Which launch a piece of device work came from, by correlation id, as a trace streams by.

A launch starts before its work does, so launches are added up to a time and the work that starts before that time is
matched. Costs 24 bytes a launch that is remembered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aaco.core.arrays import Ints

UNKNOWN = -1


class GrowingColumn:
    """A column of integers that is appended to; `all` is the whole of it."""

    def __init__(self, kind: type[np.signedinteger[Any]] = np.int64) -> None:
        self._column = np.empty(1024, kind)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def all(self) -> Ints:
        """Return a view of everything appended so far; writing to it changes the column."""
        return self._column[:self._count]

    def drop(self, count: int) -> None:
        """Take away the first ones."""
        self._column = self._column[count:].copy()
        self._count -= count

    def append(self, values: Ints) -> None:
        """Add these at the end."""
        need = self._count + len(values)
        if need > len(self._column):
            wider = np.empty(max(need, len(self._column) * 3 // 2), self._column.dtype)
            wider[:self._count] = self.all
            self._column = wider
        self._column[self._count:need] = values
        self._count = need


class Links:
    """Launches by correlation id, numbered in the order they were added."""

    def __init__(self) -> None:
        self._ids: list[Ints] = []  # runs, each sorted
        self._numbers: list[Ints] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Ints) -> Ints:
        """Add launches with these correlation ids and return their numbers, in the same order."""
        numbers = np.arange(self._count, self._count + len(ids))
        self._count += len(ids)
        if len(ids):
            order = np.argsort(ids, kind="stable")
            self._ids.append(ids[order])
            self._numbers.append(numbers[order])
            self._merge()
        return numbers

    def find(self, ids: Ints) -> Ints:
        """Return the number of each id's launch, UNKNOWN if none was added. Of several with one id, any."""
        launch_numbers = np.full(len(ids), UNKNOWN, np.int64)
        for run_ids, numbers in zip(reversed(self._ids), reversed(self._numbers), strict=True):
            missing = np.flatnonzero(launch_numbers == UNKNOWN)
            if not len(missing):
                break
            at = np.minimum(np.searchsorted(run_ids, ids[missing]), len(run_ids) - 1)
            hit = run_ids[at] == ids[missing]
            launch_numbers[missing[hit]] = numbers[at[hit]]
        return launch_numbers

    def forget(self, before: int) -> None:
        """Forget the launches with lower numbers."""
        kept = [numbers >= before for numbers in self._numbers]
        runs = [(ids[keep], numbers[keep]) for ids, numbers, keep in zip(self._ids, self._numbers, kept, strict=True)]
        self._ids, self._numbers = ([run[side] for run in runs if len(run[0])] for side in (0, 1))

    def _merge(self) -> None:
        """Keep the runs few: merge the last two runs unless the older is at least twice as long."""
        while len(self._ids) > 1 and len(self._ids[-2]) < 2 * len(self._ids[-1]):
            ids, numbers = np.concatenate(self._ids[-2:]), np.concatenate(self._numbers[-2:])
            order = np.argsort(ids, kind="stable")
            self._ids[-2:], self._numbers[-2:] = [ids[order]], [numbers[order]]
