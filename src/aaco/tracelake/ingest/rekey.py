"""Row keys of captures -> row keys of the session, where the rows of all captures are numbered in one order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.arrays import Ints
from aaco.tracelake.ingest.temporary_files import DiskArray

SPARE = 4  # a capture's keys may leave this many numbers unused for each that they use
NONE = -1


class _Span(Struct):
    """The keys that a capture uses: the least, the greatest, how many, and where their cells begin."""

    low: int
    high: int
    count: int
    offset: int = 0

    @property
    def cells(self) -> int:
        return self.high - self.low + 1


class Keys:
    """The new key of each old one. First `note` all old keys, then `put` their new ones, then `get` them.

    A capture with keys close together takes 8 bytes per key on disk; one with scattered keys, 16 in memory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spans: dict[int, _Span] = {}
        self._cells: DiskArray | None = None
        self._scattered: dict[int, list[tuple[Ints, Ints]]] = {}
        self._sorted: dict[int, tuple[Ints, Ints]] = {}

    def note(self, capture: int, old: pa.ChunkedArray) -> None:
        """Old keys of a capture that will be put."""
        if old.null_count == len(old):
            return
        ends, count = pc.min_max(old), len(old) - old.null_count
        low, high = ends["min"].as_py(), ends["max"].as_py()
        span = self._spans.setdefault(capture, _Span(low, high, 0))
        span.low, span.high, span.count = min(span.low, low), max(span.high, high), span.count + count

    def put(self, captures: Ints, old: pa.Array, new: Ints) -> None:
        """Rows of captures with these old keys (null where it has none) have these new ones. Raises StorageError."""
        there = np.asarray(old.is_valid())
        captures, old, new = captures[there], np.asarray(old.drop_null()), new[there]
        for capture in np.unique(captures).tolist():
            mine = captures == capture
            span = self._laid_out()[capture]
            if capture in self._scattered:
                self._scattered[capture].append((old[mine], new[mine]))
            elif self._cells is not None:
                self._cells[old[mine] - span.low + span.offset] = new[mine] + 1

    def get(self, captures: Ints, old: pa.Array) -> pa.Array:
        """The new keys of old ones; null where the old key is, or where no row has it."""
        asked = np.asarray(old.fill_null(0))
        new = np.full(len(asked), NONE)
        for capture in np.unique(captures).tolist():
            if capture in self._laid_out():
                mine = captures == capture
                new[mine] = self._find(capture, asked[mine])
        return pa.array(new, mask=(new == NONE) | np.asarray(old.is_null()))

    def _find(self, capture: int, asked: Ints) -> Ints:
        if capture in self._scattered:
            keys, new = self._sort(capture)
            at = np.searchsorted(keys, asked, "right") - 1
            return np.where((at >= 0) & (keys[np.maximum(at, 0)] == asked), new[np.maximum(at, 0)], NONE)
        span = self._spans[capture]
        inside = (asked >= span.low) & (asked <= span.high)
        rows = np.full(len(asked), NONE)
        if self._cells is not None:
            rows[inside] = self._cells[asked[inside] - span.low + span.offset] - 1
        return rows

    def _laid_out(self) -> dict[int, _Span]:
        """The spans, each with its place in the cells."""
        if self._cells is None:
            end = 0
            for capture, span in self._spans.items():
                if span.cells > 1024 + SPARE * span.count:
                    self._scattered[capture] = []
                else:
                    span.offset, end = end, end + span.cells
            self._cells = DiskArray(end, self._folder)
        return self._spans

    def _sort(self, capture: int) -> tuple[Ints, Ints]:
        if capture not in self._sorted:
            parts = self._scattered[capture]
            old, new = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
            order = np.argsort(old, kind="stable")
            self._sorted[capture] = old[order], new[order]
        return self._sorted[capture]
