"""Pieces of captures -> the tables of a session: sorted by time, numbered, call trees grown, credentials redacted.

Nothing here holds a whole table. Pieces are narrowed (names to numbers, empty columns dropped) and spooled; when all
are there, each table is merged in order of time and streamed to Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core import distinct, tables
from aaco.core.arrays import Ints
from aaco.core.redaction.columns import redact_column
from aaco.core.session import Session
from aaco.core.tables import (
    API_CALLS,
    CALL_ARGUMENTS,
    COLLECTIVES,
    COPIES,
    COUNTERS,
    KERNELS,
    LLM_EVENTS,
    REQUESTS,
    TableSpec,
)
from aaco.tracelake import store
from aaco.tracelake.ingest import text
from aaco.tracelake.ingest.call_roles import CallRoles
from aaco.tracelake.ingest.calltree import NONE as NO_PARENT
from aaco.tracelake.ingest.calltree import Calls, Forest
from aaco.tracelake.ingest.external_sort import Order, Spool
from aaco.tracelake.ingest.launches import Finder, LaunchColumns
from aaco.tracelake.ingest.rekey import Keys
from aaco.tracelake.ingest.temporary_files import DiskArray

CAPTURE = "capture"  # every spooled row has it, also those of tables that do not keep it
# Calls first: kernels and copies name the call that launched them.
ROW_KEYS = {API_CALLS.name: "call_id", KERNELS.name: "kernel_id", COPIES.name: "copy_id",
            REQUESTS.name: "request_id"}
# Table -> the column that names a row of another table, and that table.
REFERENCES = {COUNTERS.name: ("kernel_id", KERNELS.name), COLLECTIVES.name: ("kernel_id", KERNELS.name),
              CALL_ARGUMENTS.name: ("call_id", API_CALLS.name), LLM_EVENTS.name: ("request_id", REQUESTS.name)}
FILL = "memset"
NULLS = 1 << 16
LATEST_END = int(np.iinfo(np.int64).max) - 2
Labels = Callable[[pa.Array], pa.Array]  # distinct names -> a label of each


class Tally(Struct):
    """What a capture gave a table: rows, the sum of their durations, and the first start and last end (None: no time).
    """

    rows: int = 0
    ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    on_host: int = 0  # rows without a device, of a table that names one
    dispatched: int = 0  # kernels without a device that are the host's dispatch of work to one
    fills: int = 0  # rows of copies that are fills (memset), and their part of ns
    fill_ns: int = 0

    def add(self, piece: pa.Table) -> None:
        """Count a piece of the table."""
        self.rows += piece.num_rows
        names = piece.schema.names
        if "device_id" in names:
            dispatched = pc.and_(pc.is_null(piece["device_id"]), pc.equal(piece["timed"].cast(pa.string()), "dispatch")
                                 ) if "timed" in names else None
            self.dispatched += pc.sum(dispatched).as_py() or 0 if dispatched is not None else 0
            self.on_host += piece["device_id"].null_count
        if "dur_ns" in names:
            self.ns += _exact_sum(piece["dur_ns"])
        if spec_of(piece) is COPIES:
            filling = piece.filter(pc.equal(piece["kind"].cast(pa.string()), FILL))
            self.fills, self.fill_ns = self.fills + filling.num_rows, self.fill_ns + _exact_sum(filling["dur_ns"])
        begin, end = ("t_ns", "t_ns") if "t_ns" in names else ("t_start_ns", "t_end_ns")
        if begin in names:
            first, last = pc.min(piece[begin]).as_py(), pc.max(piece[end]).as_py()
            self.start_ns = min(filter(_is_known, (self.start_ns, first)), default=None)
            self.end_ns = max(filter(_is_known, (self.end_ns, last)), default=None)


class Writer:
    """Takes pieces with `add`, then writes every table with `write`. Use it in a `with`: it gives its disk back."""

    def __init__(self, session: Session, families: Labels | None = None, launches: Finder | None = None) -> None:
        """families: the family of each distinct kernel name, for kernels of captures that do not give it. launches:
        finds the launches of kernels and copies."""
        self._session = session
        self._families = families
        self._launches = LaunchColumns(session.folder, launches) if launches else None
        self._tables: dict[str, _Table] = {}
        self.tallies: dict[str, dict[int, Tally]] = {}  # table -> capture -> what it gave
        self.dangling: dict[str, int] = {}  # table -> rows that refer to a row which no capture has
        self._written = 0
        self._progress: Callable[[int, int], None] = lambda done, total: None
        self._unlinked: Collection[int] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for table in self._tables.values():
            table.spool.close()
        if self._launches:
            self._launches.close()

    def add(self, piece: pa.Table, capture: int) -> None:
        """Take a piece made by a TableSpec's `build`. Raises TypeError on any other, StorageError."""
        spec = spec_of(piece)
        if not piece.num_rows:
            return
        self.tallies.setdefault(spec.name, {}).setdefault(capture, Tally()).add(piece)
        self._table(spec).add(piece, capture)

    def write(self, ranks: Sequence[int | None], progress: Callable[[int, int], None] = lambda done, total: None,
              unlinked: Collection[int] = ()) -> dict[str, int]:
        """Write every table that has rows; its number of rows by name. Raises StorageError.

        ranks: of each capture the rank of its run, for the rows that do not name one themselves. progress: receives the
        rows written, and how many there are in all. unlinked: captures with correlation ids that are not unique:
        their rows get none.
        """
        self._progress, self._unlinked = progress, unlinked
        first = [name for name in ROW_KEYS if name in self._tables]
        remaining = [name for name in self._tables if name not in first]
        return {name: store.stream(self._session, self._tables[name].spec, self._finished(name, ranks))
                for name in (*first, *remaining)}

    def _table(self, spec: TableSpec) -> _Table:
        if spec.name not in self._tables:
            labels = {"family": ("kernel_name", self._families)} if spec is KERNELS and self._families else {}
            self._tables[spec.name] = _Table(spec, self._session, labels)
        return self._tables[spec.name]

    def _finished(self, name: str, ranks: Sequence[int | None]) -> Iterator[pa.Table]:
        """The table's rows as they are to be written."""
        table = self._tables[name]
        if name in ROW_KEYS:
            referred_to = any(target == name for referrer, (_, target) in REFERENCES.items()
                              if referrer in self._tables)
            rows = table.numbered(referred_to)
        elif name in REFERENCES:
            rows = self._referring(table)
        else:
            rows = table.spool.buckets()
        if name == API_CALLS.name:
            rows = _with_trees(rows, table.spool.rows, table.roles(), self._session)
        pieces = (table.widened(_without_links(bucket, self._unlinked), ranks) for bucket in rows)
        for bucket in self._launches.filled(name, pieces) if self._launches else pieces:
            yield bucket
            self._written += bucket.num_rows
            self._progress(self._written, sum(one.spool.rows for one in self._tables.values()))
        table.spool.close()

    def _referring(self, table: _Table) -> Iterator[pa.Table]:
        """The rows of a table that refers to another, by the new keys of the rows they refer to."""
        column, target = REFERENCES[table.spec.name]
        owner = self._tables.get(target)
        self.dangling[table.spec.name] = 0
        spool = Spool(Order(column), self._session.folder)
        for bucket in table.spool.buckets():
            old = _whole(bucket, column)
            new = owner.keys.get(_captures(bucket), old) if owner else pa.nulls(len(old), pa.int64())
            self.dangling[table.spec.name] += new.null_count
            spool.add(_with(bucket, column, new))
        table.spool.close()
        yield from spool.buckets()
        spool.close()


class _Table:
    """One table on its way: its spooled rows, the dictionaries of its names, and the keys of its rows.

    labels: columns that are derived from the names in another column, unless a piece fills them.
    """

    def __init__(self, spec: TableSpec, session: Session, labels: Mapping[str, tuple[str, Labels]]) -> None:
        self.spec = spec
        self._labels = labels
        self._label_codes: dict[str, pa.Array] = {}
        self.spool = Spool(_order(spec), session.folder)
        self.keys = Keys(session.folder)
        self._names = {name: text.Names() for name, (kind, _) in spec.columns.items() if kind == tables.NAME}
        self._dictionaries: dict[str, pa.Array] = {}

    def add(self, piece: pa.Table, capture: int) -> None:
        columns = {name: self._narrow(name, piece[name]) for name in self.spec.columns
                   if piece[name].null_count < piece.num_rows}
        columns[CAPTURE] = pa.array(np.full(piece.num_rows, capture, np.int64))
        key = ROW_KEYS.get(self.spec.name)
        if key in columns:
            self.keys.note(capture, columns[key])
        self.spool.add(pa.table(columns))

    def numbered(self, referred_to: bool) -> Iterator[pa.Table]:
        """Yield the rows in order with new keys; the old ones are remembered if other rows refer to them."""
        column, at = ROW_KEYS[self.spec.name], 0
        for bucket in self.spool.buckets():
            new = np.arange(at, at + bucket.num_rows)
            if referred_to and column in bucket.schema.names:
                self.keys.put(_captures(bucket), _whole(bucket, column), new)
            yield _with(bucket, column, pa.array(new))
            at += bucket.num_rows
        self.spool.close()

    def widened(self, bucket: pa.Table, ranks: Sequence[int | None]) -> pa.Table:
        """The rows in the spec's columns and types."""
        if "rank" in self.spec.columns:
            bucket = _with(bucket, "rank", _ranks(bucket, ranks))
        columns = [self._widen(name, bucket) for name in self.spec.columns]
        return pa.Table.from_arrays(columns, schema=self.spec.schema)

    def roles(self) -> CallRoles:
        """Return the roles of calls, once all pieces have been seen."""
        return CallRoles(*(self._names[name].values().to_pylist() for name in ("domain", "name")))

    def _narrow(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if name in self._names:
            return self._names[name].codes(column)
        return redact_column(column) if column.type in (tables.TEXT, tables.TEXTS) else column

    def _widen(self, name: str, bucket: pa.Table) -> pa.ChunkedArray:
        kind, _ = self.spec.columns[name]
        is_name, there = name in self._names, name in bucket.schema.names
        if name in self._labels and not len(self._names[name].values()):
            return self._labelled(name, bucket)
        column = bucket[name] if there else _nulls(pa.int32() if is_name else kind, bucket.num_rows)
        if not is_name:
            return column.cast(kind)
        if name not in self._dictionaries:  # all pieces have been seen by now
            self._dictionaries[name] = self._names[name].values()
        return text.codes_as_names(column.cast(pa.int32()), self._dictionaries[name])

    def _labelled(self, name: str, bucket: pa.Table) -> pa.ChunkedArray:
        """Return a NAME column derived from another: each distinct name is looked up once."""
        source, label = self._labels[name]
        if name not in self._dictionaries:
            labels = label(self._names[source].values()).dictionary_encode()
            self._label_codes[name], self._dictionaries[name] = labels.indices, labels.dictionary
        if source not in bucket.schema.names:
            return text.codes_as_names(_nulls(pa.int32(), bucket.num_rows), self._dictionaries[name])
        codes = bucket[source].cast(pa.int32())
        return text.codes_as_names(pa.chunked_array([self._label_codes[name].take(chunk) for chunk in codes.chunks],
                                                    pa.int32()), self._dictionaries[name])


def spec_of(piece: pa.Table) -> TableSpec:
    """The spec that a piece was built by. Raises TypeError."""
    name = (piece.schema.metadata or {}).get(b"aaco.table", b"").decode()
    spec = tables.ALL.get(name)
    if spec is None or not piece.schema.equals(spec.schema):
        raise TypeError(f"not a piece that TableSpec.build made: {piece.schema.names}")
    return spec


def _order(spec: TableSpec) -> Order:
    """Rows that refer to others wait in the order they came, until those have their final place."""
    if spec.name in REFERENCES:
        return Order()
    if "t_start_ns" in spec.columns:
        return Order("t_start_ns", "t_end_ns")
    return Order("t_ns" if "t_ns" in spec.columns else None)


def _with_trees(rows: Iterator[pa.Table], count: int, roles: CallRoles, session: Session) -> Iterator[pa.Table]:
    """The calls with parent, place and subtree. A subtree's size is known only when its call ends, which may be at
    the very end; so the calls wait in a second spool while the sizes gather."""
    forest, threads, sizes = Forest(), _Threads(), DiskArray(count, session.folder)
    waiting = Spool(Order(), session.folder)
    for bucket in rows:
        waiting.add(_grown(bucket, forest, threads, roles, sizes))
    closed, subtree = forest.close()
    sizes[closed] = subtree
    at = 0
    for bucket in waiting.buckets():
        size = sizes[slice(at, at + bucket.num_rows)]
        yield _with(bucket, "subtree_size", pa.array(size, mask=size == 0))
        at += bucket.num_rows
    waiting.close()


def _grown(bucket: pa.Table, forest: Forest, threads: _Threads, roles: CallRoles, sizes: DiskArray) -> pa.Table:
    """Return the calls with parent and place; null without a thread, start or end, or with an end before the start."""
    start, end = (_filled(bucket, name) for name in ("t_start_ns", "t_end_ns"))
    thread = threads.of(bucket)
    is_complete = (thread >= 0) & _valid(bucket, "t_start_ns") & _valid(bucket, "t_end_ns") & (end >= start)
    ids = np.asarray(_whole(bucket, "call_id"))
    grown = forest.grow(Calls(thread[is_complete], ids[is_complete], start[is_complete],
                              np.minimum(end[is_complete], LATEST_END), roles.of(bucket)[is_complete]))
    sizes[grown.closed] = grown.subtree
    parent, preorder = (np.full(bucket.num_rows, NO_PARENT) for _ in range(2))
    parent[is_complete], preorder[is_complete] = grown.parent, grown.preorder
    bucket = _with(bucket, "parent_id", pa.array(parent, mask=parent == NO_PARENT))
    return _with(bucket, "preorder", pa.array(preorder, mask=~is_complete))


class _Threads:
    """Small numbers for the threads of all captures."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, int | None, int], int] = {}

    def of(self, calls: pa.Table) -> Ints:
        """The number of each call's thread; -1 where the capture does not say on which thread it ran."""
        if "thread_id" not in calls.schema.names:
            return np.full(calls.num_rows, -1)
        parts = [_whole(calls, name).dictionary_encode() for name in (CAPTURE, "process_id", "thread_id")
                 if name in calls.schema.names]
        combined = np.zeros(calls.num_rows, np.int64)
        for part in parts:
            combined = combined * (len(part.dictionary) + 1) + np.asarray(part.indices.fill_null(len(part.dictionary)))
        which, first = distinct.coded(combined)
        rows = [tuple(part[int(at)].as_py() for part in parts) for at in first]
        numbers = [-1 if row[-1] is None else self._number.setdefault(row, len(self._number)) for row in rows]
        return np.array(numbers, np.int64)[which]


def _without_links(bucket: pa.Table, captures: Collection[int]) -> pa.Table:
    if not captures or "correlation_id" not in bucket.schema.names:
        return bucket
    is_unlinked = np.isin(_captures(bucket), list(captures))
    return _with(bucket, "correlation_id", pc.if_else(pa.array(is_unlinked), None, bucket["correlation_id"]))


def _ranks(bucket: pa.Table, ranks: Sequence[int | None]) -> pa.ChunkedArray | pa.Array:
    of_capture = pa.array(ranks, pa.int64()).take(_whole(bucket, CAPTURE))
    return pc.coalesce(_whole(bucket, "rank"), of_capture) if "rank" in bucket.schema.names else of_capture


def _captures(bucket: pa.Table) -> Ints:
    return np.asarray(_whole(bucket, CAPTURE))


def _whole(bucket: pa.Table, name: str) -> pa.Array:
    """Return an integer column as one int64 array; null if the rows do not have it."""
    if name not in bucket.schema.names:
        return pa.nulls(bucket.num_rows, pa.int64())
    return bucket[name].cast(pa.int64()).combine_chunks()


def _filled(bucket: pa.Table, name: str) -> Ints:
    return np.asarray(_whole(bucket, name).fill_null(0))


def _valid(bucket: pa.Table, name: str) -> np.ndarray:
    return np.asarray(_whole(bucket, name).is_valid())


def _with(bucket: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = bucket.schema.get_field_index(name)
    return bucket.append_column(name, column) if at < 0 else bucket.set_column(at, name, column)


@cache
def _null_block(kind: pa.DataType) -> pa.Array:
    return pa.nulls(NULLS, kind)


def _nulls(kind: pa.DataType, rows: int) -> pa.ChunkedArray:
    """Nulls, of one block that all columns of the type share."""
    block = _null_block(kind)
    return pa.chunked_array([*[block] * (rows // NULLS), block.slice(0, rows % NULLS)], kind)


def _exact_sum(column: pa.ChunkedArray) -> int:
    """The sum, also where it does not fit 64 bits."""
    most = max(map(abs, (value or 0 for value in pc.min_max(column).as_py().values())))
    if most * len(column) < 1 << 62:
        return pc.sum(column).as_py() or 0
    return sum(value for value in column.to_pylist() if value is not None)


def _is_known(value: int | None) -> bool:
    return value is not None


