"""Rows come in any order and go out sorted, in flat memory: sorted runs on disk, merged one stretch of time at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.arrays import Ints
from aaco.tracelake.ingest.temporary_files import Scratch, Stored
from aaco.tracelake.memory import give_back

LAST = int(np.iinfo(np.int64).max)  # where a row without a key is sorted
RUN_BYTES = 16 << 20
BATCHES = 128  # of a run: the merge holds one of every run, and cuts the order by their first rows
PIECES = 8  # of a run that is not merged: rows that stay as they arrived
ROWS = 1 << 16  # of a stretch that is merged at once, about


class Order(Struct, frozen=True):
    """What rows are sorted by: `key` ascending with null last, then `longest` descending, then as they arrived.

    Both name int64 columns. Without a key the rows stay as they arrived.
    """

    key: str | None = None
    longest: str | None = None

    def keys(self, rows: pa.Table | pa.RecordBatch) -> Keys:
        """The sort keys of rows."""
        key = _ints(rows, self.key)
        if self.longest is None or self.longest not in rows.schema.names:
            return Keys(key, np.zeros(len(key), np.int64))
        longest = rows[self.longest]
        tie = ~_ints(rows, self.longest)  # descends as the value ascends, and never overflows
        if longest.null_count:
            tie[np.asarray(longest.is_null())] = LAST
        return Keys(key, tie)


class Bound(Struct, frozen=True):
    """A place in the order: just before the rows with these keys, or just after them (`through`)."""

    key: int
    tie: int
    through: bool = False


class Keys(Struct, frozen=True):
    """Sort keys of rows, both ascending."""

    key: Ints
    tie: Ints

    @property
    def ordered(self) -> bool:
        """Whether the rows are sorted already."""
        before, after = slice(None, -1), slice(1, None)
        later = self.key[before] < self.key[after]
        tied = (self.key[before] == self.key[after]) & (self.tie[before] <= self.tie[after])
        return bool((later | tied).all())

    def order(self) -> Ints:
        """The positions of the rows in order; rows of the same keys stay as they are."""
        if (packed := self._packed()) is not None:
            return packed
        order = np.argsort(self.key, kind="stable")  # linear where the rows are sorted in long stretches
        key = self.key[order]
        same = np.concatenate([[False], key[1:] == key[:-1], [False]])
        tied = same[1:] | same[:-1]
        among = order[tied]
        order[tied] = among[np.lexsort((self.tie[among], self.key[among]))]
        return order

    def _packed(self) -> Ints | None:
        """The order by one plain sort of numbers that hold both keys and the position; None where 63 bits are too few.
        """
        if not len(self.key):
            return None
        low, bits = int(self.tie.min()), len(self.key).bit_length()
        tie = (int(self.tie.max()) - low).bit_length()
        first = int(self.key.min())
        if (int(self.key.max()) - first).bit_length() + tie + bits > 63:
            return None
        whole = (((self.key - first) << tie) | (self.tie - low)) << bits
        return np.sort(whole | np.arange(len(whole))) & ((1 << bits) - 1)

    def before(self, bound: Bound) -> int:
        """Return how many of the sorted rows come before the bound."""
        first = int(np.searchsorted(self.key, bound.key, "left"))
        last = int(np.searchsorted(self.key, bound.key, "right"))
        side = np.searchsorted(self.tie[first:last], bound.tie, "right" if bound.through else "left")
        return first + int(side)


class _Batch(Struct, frozen=True):
    """A batch of a run: its first row's keys, and where its rows are."""

    key: int
    tie: int
    rows: Stored | pa.RecordBatch

    @property
    def size(self) -> int:
        return self.rows.rows if isinstance(self.rows, Stored) else self.rows.num_rows


class Spool:
    """Rows to be sorted: `add` them all, then read `buckets`, then `close`."""

    def __init__(self, order: Order, folder: Path, run_bytes: int = RUN_BYTES, bucket_rows: int = ROWS) -> None:
        self.order, self.rows = order, 0
        self._scratch = Scratch(folder)
        self._run_bytes, self._bucket_rows = run_bytes, bucket_rows
        self._buffer: list[pa.Table] = []
        self._bytes = 0
        self._runs: list[list[_Batch]] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows. A column that some rows do not have is null there. Raise StorageError."""
        if not rows.num_rows:
            return
        self._buffer.append(rows)
        self._bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._bytes >= self._run_bytes:
            give_back()
            self._runs.append([_Batch(batch.key, batch.tie, self._scratch.write(batch.rows))
                               for batch in self._sorted_buffer()])

    def buckets(self) -> Iterator[pa.Table]:
        """All rows in order, in pieces of bounded size; the same again at the next call.

        A piece has no column without values, and its integers may be narrower than the input's.
        """
        if self._buffer:
            self._runs.append(list(self._sorted_buffer()))
        if self.order.key is None:
            for run in self._runs:
                give_back()
                yield from (concat([self._read(batch)]) for batch in run)
            return
        cursors = [_Cursor(self, run) for run in self._runs]
        marks = sorted((batch.key, batch.tie, batch.size) for run in self._runs for batch in run)
        for bound, alike in _bounds(marks, self._bucket_rows):
            give_back()
            parts = (part for cursor in cursors for part in cursor.until(bound))
            yield from (concat([part]) for part in parts) if alike else self._merge(list(parts))

    def close(self) -> None:
        """Free the disk; unread rows are lost."""
        self._buffer, self._runs = [], []
        self._scratch.close()

    def _merge(self, parts: Sequence[pa.RecordBatch]) -> Iterator[pa.Table]:
        if parts:
            yield self._sort(concat(parts))

    def _sorted_buffer(self) -> Iterator[_Batch]:
        """The buffer as batches of one sorted run; the buffer is empty then."""
        whole = _narrowed(concat(self._buffer))
        self._buffer, self._bytes = [], 0
        if self.order.key is not None:
            whole = self._sort(whole)
        batches = PIECES if self.order.key is None else BATCHES
        size = max(16, self._run_bytes // batches * whole.num_rows // max(1, whole.nbytes))
        for batch in whole.combine_chunks().to_batches(size):
            keys = self.order.keys(batch.slice(0, 1)) if self.order.key is not None else None
            yield _Batch(int(keys.key[0]) if keys else 0, int(keys.tie[0]) if keys else 0, batch)

    def _sort(self, rows: pa.Table) -> pa.Table:
        keys = self.order.keys(rows)
        return rows if keys.ordered else rows.combine_chunks().take(pa.array(keys.order()))

    def _read(self, batch: _Batch) -> pa.RecordBatch:
        return self._scratch.read(batch.rows) if isinstance(batch.rows, Stored) else batch.rows


class _Cursor:
    """Reads one sorted run forward, holding one batch of it."""

    def __init__(self, spool: Spool, run: Sequence[_Batch]) -> None:
        self._spool, self._left = spool, list(reversed(run))
        self._rows: pa.RecordBatch | None = None
        self._keys = Keys(np.array([], np.int64), np.array([], np.int64))
        self._at = 0

    def until(self, bound: Bound | None) -> Iterator[pa.RecordBatch]:
        """The rows before the bound that were not read yet."""
        while self._load():
            assert self._rows is not None
            end = self._rows.num_rows if bound is None else self._keys.before(bound)
            if end > self._at:
                yield self._rows.slice(self._at, end - self._at)
            self._at = end
            if end < self._rows.num_rows:
                return

    def _load(self) -> bool:
        if self._rows is not None and self._at < self._rows.num_rows:
            return True
        if not self._left:
            return False
        self._rows = self._spool._read(self._left.pop())
        self._keys, self._at = self._spool.order.keys(self._rows), 0
        return True


def concat(parts: Iterable[pa.Table | pa.RecordBatch]) -> pa.Table:
    """Return the rows of all parts; missing columns are null, and integers are as wide as the widest."""
    tables = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in parts]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def _narrowed(rows: pa.Table) -> pa.Table:
    """The rows with each integer column in as few bytes as its values need: less to sort, to write and to read."""
    columns = [_narrow(column) if pa.types.is_integer(column.type) else column for column in rows.columns]
    return pa.table(columns, names=rows.column_names)


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    for kind, bits in ((pa.int8(), 7), (pa.int16(), 15), (pa.int32(), 31)):
        if low is None or -(1 << bits) <= low <= high < 1 << bits:
            return column.cast(kind, safe=False) if column.type.bit_width > bits + 1 else column
    return column


def _bounds(marks: Sequence[tuple[int, int, int]], rows: int) -> Iterator[tuple[Bound | None, bool]]:
    """Return where to cut the order into pieces of about `rows` rows, the end (None) last; True if its keys are equal.

    marks: key, tie and number of rows of every batch, by its first row. A piece may be larger by a batch of each run.
    """
    size = 0
    for (key, tie), group in groupby(marks, lambda mark: mark[:2]):
        batches = [mark[2] for mark in group]
        weight = sum(batches)
        if len(batches) > 1 and weight > rows:  # rows of the same keys need no merging, however many they are
            yield Bound(key, tie), False
            yield Bound(key, tie, through=True), True
            size = 0
        elif size and size + weight > rows:
            yield Bound(key, tie), False
            size = weight
        else:
            size += weight
    yield None, False


def _ints(rows: pa.Table | pa.RecordBatch, name: str | None) -> Ints:
    if name not in rows.schema.names:
        return np.full(rows.num_rows, LAST)
    column = rows[name]
    if column.type != pa.int64():
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(LAST)
    return np.asarray(column.to_numpy())
