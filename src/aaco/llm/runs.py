"""Rows of a block of a record, cut into runs: chunks of one shape that follow each other in one answer are a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from aaco.core.arrays import Flags, Ints
from aaco.llm.shapes import UNKNOWN


class ChunkRun(NamedTuple):
    """One run. last: its last row; total, last_total: tokens until its first chunk and until its last, UNKNOWN where
    the chunks have none. What has no shape is a run of one row."""

    last: int
    size: int
    shape: int
    total: int
    last_total: int
    is_rising: bool  # whether no total is less than the one before


class ChunkRuns:
    """The runs of a block, in the order of their first rows, and what became of each."""

    def __init__(self, requests: Ints, shapes: Ints, totals: Ints) -> None:
        """Take of each row its request, and what `ChunkShapes.of` returns."""
        self._order = np.argsort(requests, kind="stable")  # rows by answer, each answer's in time
        request, shape, self._total = (column[self._order] for column in (requests, shapes, totals))
        begins = np.ones(len(shape), bool)
        begins[1:] = (request[1:] != request[:-1]) | (shape[1:] != shape[:-1]) | (shape[1:] == UNKNOWN)
        self._heads = np.flatnonzero(begins)
        self._run = np.cumsum(begins) - 1
        self._sizes = np.diff(np.append(self._heads, len(shape)))
        self._visits = np.argsort(self._order[self._heads])
        self.firsts: Ints = self._order[self._heads[self._visits]]  # the first row of each run
        self._shape, self._is_rising = shape[self._heads], self._rising(begins)

    def _rising(self, begins: Flags) -> Flags:
        steps = np.diff(self._total, prepend=0)
        steps[begins] = 0
        return np.logical_and.reduceat(steps >= 0, self._heads) if len(self._heads) else np.zeros(0, bool)

    def __iter__(self) -> Iterator[ChunkRun]:
        """Yield the runs."""
        visits, heads = self._visits, self._heads[self._visits]
        lasts = heads + self._sizes[visits] - 1
        columns = (self._order[lasts], self._sizes[visits], self._shape[visits],
                   self._total[heads], self._total[lasts], self._is_rising[visits])
        return map(ChunkRun._make, zip(*(column.tolist() for column in columns), strict=True))

    def rows(self, number: int) -> Ints:
        """Return the rows of a run, by its place in the order of the runs."""
        run = self._visits[number]
        return self._order[self._heads[run]:self._heads[run] + self._sizes[run]]

    def took(self, index: list[int], before: list[int]) -> tuple[Ints, Ints, Ints, Ints]:
        """Return of each row in a run that was taken as one: the row, its shape, the number of its event, its tokens.

        index: of each run the number of its first event, UNKNOWN where its rows were taken each by itself; before: the
        tokens before it, UNKNOWN where its own are not known.
        """
        first, counted = (np.empty(len(self._heads), np.int64) for _ in range(2))
        first[self._visits], counted[self._visits] = index, before
        at = np.flatnonzero(first[self._run] != UNKNOWN)
        run = self._run[at]
        tokens = np.diff(self._total, prepend=0)
        tokens[self._heads] = self._total[self._heads] - counted
        return (self._order[at], self._shape[run], first[run] + at - self._heads[run],
                np.where(counted[run] == UNKNOWN, UNKNOWN, tokens[at]))
