"""Reading a session's tables: a piece at a time, a stretch of time, or whole; `QueryableSession` offers all of it.

A table is in order of time, in row groups that know their time span, so reading a stretch costs only its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core import tables
from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.core.tables import COPIES, INFERENCE_ITERS, KERNEL_GROUPS, KERNELS, TableSpec
from aaco.tracelake import store
from aaco.tracelake.memory import give_back

Rule = Literal["iqr", "mad", "z"]


@dataclass(frozen=True)
class SessionPart(Session):
    """A session of which only kernels, copies and calls are read that start from start_ns to end_ns, or belong to an
    inference. What is counted without reading (`rows`) is the whole table; ids are those of the whole table, too."""

    start_ns: int
    end_ns: int


class Slice(Struct, frozen=True):
    """A stretch of time [start_ns, end_ns), and of each table the rows that start in it."""

    start_ns: int
    end_ns: int
    tables: Mapping[str, pa.Table]


def batches(session: Session, spec: TableSpec, columns: Sequence[str] | None = None
            ) -> Iterator[pa.RecordBatch]:
    """The table's rows in its order, a row group at a time; nothing if the session does not have the table.

    columns: all by default. Of a SessionPart only its rows. NAME columns are dictionary-encoded; in an
    imported session all batches have the same dictionary. Raises BadBundle.
    """
    if not store.holds(session, spec):
        return
    names = list(spec.columns if columns is None else columns)
    with store.opened(session, spec) as file:
        for group in range(file.num_row_groups):
            yield _of_part(session, file, spec, group, names)
            give_back()


def names(session: Session, spec: TableSpec, column: str) -> list[str]:
    """The dictionary of a NAME column, by code. Raises BadBundle."""
    first = next(batches(session, spec, [column]), None)
    return [] if first is None else [str(name) for name in first.column(0).dictionary.to_pylist()]


def rows(session: Session, spec: TableSpec) -> int:
    """Return how many rows the table has; 0 if the session does not have it. Raise BadBundle."""
    if not store.holds(session, spec):
        return 0
    with store.opened(session, spec) as file:
        return int(file.metadata.num_rows)


def rows_within(session: Session, spec: TableSpec) -> int:
    """How many rows `batches` gives: of a SessionPart those of it. Raises BadBundle."""
    if not isinstance(session, SessionPart):
        return rows(session, spec)
    return sum(batch.num_rows for batch in batches(session, spec, [time_column(spec)]))


def has_values(session: Session, spec: TableSpec, column: str) -> bool:
    """Return whether any row has a value in the column, without reading it. Raise BadBundle."""
    if not store.holds(session, spec):
        return False
    with store.opened(session, spec) as file:
        at = file.schema_arrow.get_field_index(column)
        groups = [file.metadata.row_group(group) for group in range(file.num_row_groups if at >= 0 else 0)]
        statistics_by_group = [(group.column(at).statistics, group.num_rows) for group in groups]
        return any(statistics is None or statistics.null_count < count for statistics, count in statistics_by_group)


def has_launches(session: Session) -> bool:
    """Return whether kernels or copies have launch_id; older sessions and runs have none. Raise BadBundle."""
    return any(has_values(session, spec, "launch_id") for spec in (KERNELS, COPIES))


def slices(session: Session, columns_by_table: Mapping[str, Sequence[str]]) -> Iterator[Slice]:
    """Stretches of time that tile the whole capture, each with the rows of the tables that start in it.

    columns_by_table: the columns to read, by table name. A slice ends where a row group of some table does, so it holds
    about a row group of each at most. Rows without a start are in no slice. Raises BadBundle.
    """
    readers = {name: _Reader(session, tables.ALL[name], list(columns)) for name, columns in columns_by_table.items()}
    spans = [times for reader in readers.values() for times in reader.times]
    start = min((first for first, _ in spans), default=0)
    for last in sorted({last for _, last in spans}):
        if last >= start:
            yield Slice(start, last + 1, {name: reader.until(last + 1) for name, reader in readers.items()})
            give_back()
            start = last + 1


def untimed(session: Session, spec: TableSpec, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows without a start, which no slice holds, a row group at a time. Raises BadBundle."""
    if not store.holds(session, spec):
        return
    begin = time_column(spec)
    with store.opened(session, spec) as file:
        for group in range(file.num_row_groups):
            statistics = file.metadata.row_group(group).column(file.schema_arrow.get_field_index(begin)).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                batch = _batch(file, spec, group, [begin, *columns])
                yield _only(batch.filter(batch.column(0).is_null()), columns)


class _Reader:
    """Reads a table forward in time, a row group at a time."""

    def __init__(self, session: Session, spec: TableSpec, columns: list[str]) -> None:
        self._session, self._spec, self._columns = session, spec, columns
        self._time = time_column(spec)
        self._held: pa.RecordBatch | None = None
        self._metadata, self._groups = _spans(session, spec, self._time, self._time)
        self.times = list(self._groups.values())
        self._left = list(self._groups)

    def until(self, end_ns: int) -> pa.Table:
        """The rows not read yet that start before `end_ns`."""
        parts = []
        while self._held is not None or (self._left and self._groups[self._left[0]][0] < end_ns):
            batch = self._next() if self._held is None else self._held
            cut = int(np.searchsorted(np.asarray(batch.column(0)), end_ns))
            parts.append(batch.slice(0, cut))
            self._held = batch.slice(cut) if cut < batch.num_rows else None
            if self._held is not None:
                break
        return pa.Table.from_batches([_only(part, self._columns) for part in parts or [self._nothing()]])

    def _next(self) -> pa.RecordBatch:
        with store.opened(self._session, self._spec, self._metadata) as file:
            batch = _of_part(self._session, file, self._spec, self._left.pop(0), [self._time, *self._columns])
        return batch.filter(batch.column(0).is_valid()) if batch.column(0).null_count else batch

    def _nothing(self) -> pa.RecordBatch:
        kinds = [(name, self._spec.columns[name][0]) for name in [self._time, *self._columns]]
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for _, kind in kinds], names=[name for name, _ in kinds])


class Tables(Mapping[str, pa.Table]):
    """A session's tables that have rows, each read on first access."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows = {name: rows(session, spec) for name, spec in tables.ALL.items()}
        self._read: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if not self._rows.get(name):
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = store.read(self._session, tables.ALL[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return bool(isinstance(name, str) and self._rows.get(name))  # Mapping's own would read the table

    def __iter__(self) -> Iterator[str]:
        return (name for name, count in self._rows.items() if count)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def rows(self, name: str) -> int:
        """Rows of a table, without reading it."""
        return self._rows.get(name, 0)


class QueryableSession(Session):
    """A session with its tables to ask. Its public name is `aaco.Session`: `aaco.Session.open(folder)`."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a whole table or the named columns; no rows if it does not exist. Raise UsageError, BadBundle."""
        spec = _spec(name, columns or ())
        names = list(spec.columns if columns is None else columns)
        read = list(batches(self, spec, names))
        return pa.Table.from_batches(read) if read else spec.build().select(names)

    def page(self, name: str, columns: Sequence[str] | None, offset: int, limit: int) -> pa.Table:
        """Return some rows of a table in order; read only their row groups. Raise UsageError, BadBundle."""
        spec = _spec(name, columns or ())
        names = list(spec.columns if columns is None else columns)
        parts, end, first = [], offset + limit, 0
        if store.holds(self, spec):
            with store.opened(self, spec) as file:
                for group in range(file.num_row_groups):
                    count = file.metadata.row_group(group).num_rows
                    if first < end and first + count > offset:
                        batch = _batch(file, spec, group, names)
                        parts.append(batch.slice(max(offset - first, 0), end - max(offset, first)))
                    first += count
        return pa.Table.from_batches(parts).unify_dictionaries() if parts else spec.build().select(names)

    @property
    def latency(self) -> NDArray[np.float64]:
        """The latencies of the measured inferences in ms, process by process in the order they ran; empty where none
        was timed. Raises BadBundle."""
        rows = self.table(INFERENCE_ITERS.name, ["phase", "latency_ms"])
        return np.asarray(rows.filter(pc.equal(rows["phase"], "measurement"))["latency_ms"].to_numpy())

    def kernels(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The kernels, in the order they started."""
        return self.table("kernels", columns)

    def copies(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The memory copies and fills, in the order they started."""
        return self.table("copies", columns)

    def api_calls(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The host's calls and ranges, in the order they started."""
        return self.table("api_calls", columns)

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """A table a row group at a time: for tables larger than memory. Raises UsageError, BadBundle."""
        return batches(self, _spec(name, columns or ()), columns)

    def slices(self, columns_by_table: Mapping[str, Sequence[str]]) -> Iterator[Slice]:
        """Several tables together, a stretch of time at a time; see `slices`. Raises UsageError, BadBundle."""
        for name, columns in columns_by_table.items():
            _spec(name, columns)
        return slices(self, columns_by_table)

    def top_kernels(self, count: int = 10) -> pa.Table:
        """The kernels that took the most time, summed by name: rows of kernel_groups, largest total first."""
        return self.table(KERNEL_GROUPS.name).slice(0, count)

    def window(self, start_ns: int, end_ns: int, name: str = KERNELS.name, columns: Sequence[str] | None = None
               ) -> pa.Table:
        """Return the rows that overlap [start_ns, end_ns), also those that began before it.

        Reads only the row groups that reach into the window. Raises UsageError, BadBundle.
        """
        spec = _spec(name, columns or ())
        names = list(spec.columns if columns is None else columns)
        begin, end = time_column(spec), end_column(spec)
        parts = []
        if store.holds(self, spec):
            with store.opened(self, spec) as file:
                for group, (first, last) in _spans(self, spec, begin, end)[1].items():
                    if first < end_ns and last >= start_ns:
                        batch = _batch(file, spec, group, [begin, end, *names])
                        parts.append(_only(batch.filter(_inside(batch, start_ns, end_ns)), names, skip=2))
        return pa.Table.from_batches(parts) if parts else spec.build().select(names)

    def outliers(self, rule: Rule = "iqr") -> pa.Table:
        """The kernel executions that took much longer or shorter than others of their name, the farthest first.

        rule: "iqr", beyond 1.5 interquartile ranges of the quartiles (Tukey); "mad", a modified z of more than 3.5
        (Iglewicz and Hoaglin); "z", beyond 3 standard deviations. Names with fewer than 8 executions have none.
        Columns: kernel_id, kernel_name, dur_ns, median_ns, t_start_ns. Raises UsageError.
        """
        if rule not in _OUTLYING:
            raise UsageError(f"no rule {rule!r}", f"rules: {', '.join(_OUTLYING)}")
        return self.sql(_OUTLIERS.format(outlying=_OUTLYING[rule]))

    def group_by(self, name: str, *columns: str) -> pa.Table:
        """The rows of a table summed by columns: rows and, where it has durations, total_ns, mean_ns, min_ns, max_ns.

        Largest total first. Raises UsageError.
        """
        spec = _spec(name, columns)
        keys = ", ".join(f'"{column}"' for column in columns)
        sums = ", sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS mean_ns, min(dur_ns) AS min_ns, max(dur_ns) AS max_ns"
        timed = sums if "dur_ns" in spec.columns else ""
        order = "total_ns" if timed else "rows"
        select = f"SELECT {keys + ', ' if keys else ''}count(*) AS rows{timed} FROM {name}"
        return self.sql(f"{select} {f'GROUP BY {keys}' if keys else ''} ORDER BY {order} DESC NULLS LAST")

    def sql(self, query: str, sealed: bool = True) -> pa.Table:
        """The answer to a SELECT over the tables, as `aaco sql` gives it; `sealed` as there. Raises UsageError."""
        from aaco.tracelake.sql import ask

        with ask([self], query, sealed=sealed) as answer:
            return pa.Table.from_batches(answer.batches, answer.schema)


_OUTLYING = {
    "iqr": "dur_ns < low - 1.5 * (high - low) OR dur_ns > high + 1.5 * (high - low)",
    "mad": "0.6745 * abs(dur_ns - median_ns) > 3.5 * mad AND mad > 0",
    "z": "abs(dur_ns - mean) > 3 * std",
}
_OUTLIERS = """
    WITH known AS (
        SELECT kernel_name, quantile_cont(dur_ns, 0.25) AS low, quantile_cont(dur_ns, 0.75) AS high,
               median(dur_ns) AS median_ns, mad(dur_ns) AS mad, avg(dur_ns) AS mean, stddev_samp(dur_ns) AS std
        FROM kernels GROUP BY kernel_name HAVING count(dur_ns) >= 8)
    SELECT kernel_id, kernel_name, dur_ns, median_ns, t_start_ns FROM kernels JOIN known USING (kernel_name)
    WHERE {outlying} ORDER BY abs(dur_ns - median_ns) DESC, kernel_id"""


def time_column(spec: TableSpec) -> str:
    """The column that a table is sorted by. Raises UsageError where it has none."""
    for name in ("t_start_ns", "t_ns"):
        if name in spec.columns:
            return name
    raise UsageError(f"the table {spec.name} has no time", "tables and their columns: docs/reference/tables.md")


def end_column(spec: TableSpec) -> str:
    """The column that says when a row's span ends; the same as its time where it has no span."""
    return "t_end_ns" if "t_end_ns" in spec.columns else time_column(spec)


def _spec(name: str, columns: Sequence[str]) -> TableSpec:
    spec = tables.ALL.get(name)
    if spec is None:
        raise UsageError(f"no table {name!r}", f"tables: {', '.join(tables.ALL)}")
    for column in columns:
        if column not in spec.columns:
            raise UsageError(f"table {name} has no column {column!r}", f"columns: {', '.join(spec.columns)}")
    return spec


def _spans(session: Session, spec: TableSpec, begin: str, end: str,
           ) -> tuple[pq.FileMetaData | None, dict[int, tuple[int, int]]]:
    """The metadata of the table's file, and of each row group with times the first `begin` and last `end` in it."""
    if not store.holds(session, spec):
        return None, {}
    with store.opened(session, spec) as file:
        metadata, schema = file.metadata, file.schema_arrow
        first, last = schema.get_field_index(begin), schema.get_field_index(end)
        groups = ((group, _span(metadata.row_group(group), first, last)) for group in range(file.num_row_groups))
        return metadata, {group: span for group, span in groups if span}


def _span(group: pq.RowGroupMetaData, begin: int, end: int) -> tuple[int, int] | None:
    first, last = (group.column(at).statistics for at in (begin, end))
    if first is None or not first.has_min_max:
        return None
    return first.min, max(last.max if last is not None and last.has_min_max else first.max, first.max)


def _batch(file: pq.ParquetFile, spec: TableSpec, group: int, names: Sequence[str]) -> pa.RecordBatch:
    """Return columns of a row group, null if an older table does not have them."""
    unique = list(dict.fromkeys(names))
    stored = set(file.schema_arrow.names)
    there = file.read_row_group(group, [name for name in unique if name in stored], use_threads=False)  # more CPU time
    fitting = spec.conform(there, spec.file, unique)
    return pa.RecordBatch.from_arrays([_as_array(fitting[name]) for name in names], names=list(names))


def _as_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece; `combine_chunks` copies even a single chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _of_part(session: Session, file: pq.ParquetFile, spec: TableSpec, group: int, names: Sequence[str]
             ) -> pa.RecordBatch:
    """Return columns of a row group; for a part of a session only its rows."""
    if not isinstance(session, SessionPart) or spec.name not in tables.OF_INFERENCES:
        return _batch(file, spec, group, names)
    asked = [name for name in ("t_start_ns", "iteration") if name in spec.columns]
    batch = _batch(file, spec, group, list(dict.fromkeys([*asked, *names])))
    return tables.started_in(batch, session.start_ns, session.end_ns).select(list(names))


def _only(batch: pa.RecordBatch, columns: Sequence[str], skip: int = 1) -> pa.RecordBatch:
    """The batch without its first columns."""
    return pa.RecordBatch.from_arrays(batch.columns[skip:], names=list(columns))


def _inside(batch: pa.RecordBatch, start_ns: int, end_ns: int) -> pa.Array:
    """Whether each row, of begin and end in the first two columns, reaches into the window. Without an end it is where
    it begins; without a begin it is in no window."""
    begin = np.asarray(batch.column(0).fill_null(0))
    end = np.asarray(batch.column(1).fill_null(np.iinfo(np.int64).min))
    reaches = (begin < end_ns) & ((end > start_ns) | (begin >= start_ns))
    return pa.array(reaches & np.asarray(batch.column(0).is_valid()))
