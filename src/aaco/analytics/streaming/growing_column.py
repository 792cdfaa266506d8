"""Columns that are appended to as a trace streams by."""

from __future__ import annotations

from typing import Any

import numpy as np

from aaco.core.arrays import Ints


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
