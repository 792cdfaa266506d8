"""What a table is: its columns, their types and meanings; and the columns that several tables share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.core.arrays import Ints
from aaco.core.errors import BadBundle, first_line

INT = pa.int64()
REAL = pa.float64()
FLAG = pa.bool_()
TEXT = pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())
TEXTS = pa.list_(pa.string())
SAMPLED = "T1"  # the tier of system_events whose rows are sums over a sampled interval


class TableSpec(Struct, frozen=True, dict=True):
    """A table: its name, file in the bundle, meaning, and each column's Arrow type and meaning.

    never_null: columns without which a row means nothing; in any other column a source may leave values out.
    """

    name: str
    file: str
    meaning: str
    columns: Mapping[str, tuple[pa.DataType, str]]
    never_null: tuple[str, ...] = ()
    version: int = 1

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema, stamped with the spec's name and version."""
        stamp = {b"aaco.table": self.name.encode(), b"aaco.version": str(self.version).encode()}
        return pa.schema([(name, kind) for name, (kind, _) in self.columns.items()], metadata=stamp)

    def build(self, **columns: Any) -> pa.Table:
        """A table from whole columns (lists, numpy or Arrow arrays); what is not given, or None, is null.

        Raises TypeError on a column the spec does not know.
        """
        unknown = columns.keys() - self.columns.keys()
        if unknown:
            raise TypeError(f"table {self.name}: unknown columns {sorted(unknown)}")
        rows = {len(values) for values in columns.values() if values is not None}
        if len(rows) > 1:
            raise TypeError(f"table {self.name}: columns of different lengths {sorted(rows)}")
        count = rows.pop() if rows else 0
        arrays = [_array(columns.get(name), kind, count) for name, (kind, _) in self.columns.items()]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def conform(self, table: pa.Table, where: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The table in this spec's types and order of columns, or those named; absent columns become null.

        Raises BadBundle where a column's type cannot be read as the spec's, its content is damaged, it misses what it
        may not, or a number in it is none.
        """
        try:
            return self._conformed(table, list(self.columns if columns is None else columns))
        except (pa.ArrowException, ValueError) as error:
            raise BadBundle(f"{where}: not a {self.name} table: {first_line(error)}", "aaco info SESSION") from error

    def _conformed(self, table: pa.Table, names: list[str]) -> pa.Table:
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        if twice:
            raise ValueError(f"column {twice[0]} is there twice")
        table.validate(full=True)  # codes beyond their dictionary, and text that is none
        columns = {name: self._column(table, name) for name in names}
        return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(
            [(name, self.columns[name][0]) for name in columns], metadata=self.schema.metadata))

    def _column(self, table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
        kind, needed = self.columns[name][0], name in self.never_null and table.num_rows
        if name not in table.column_names:
            if needed:
                raise ValueError(f"column {name} is missing")
            return pa.nulls(table.num_rows, kind)
        values = table[name]
        values = values if values.type == kind else values.cast(kind)  # a cast brings in all of pyarrow.compute
        if needed and values.null_count:
            raise ValueError(f"column {name} has nulls")
        if kind == REAL and not _finite(values):
            raise ValueError(f"column {name} holds a number that is not finite")
        return values


def _finite(values: pa.ChunkedArray) -> bool:
    """Whether every number is; a null reads as NaN."""
    odd = sum(int((~np.isfinite(chunk.to_numpy(zero_copy_only=False))).sum()) for chunk in values.chunks)
    return odd == values.null_count


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def replaced(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The table with this column in place of its own of that name, as the field says it is."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)


def started_in(rows: pa.Table | pa.RecordBatch, begin_ns: int, end_ns: int) -> Any:
    """The rows that start from begin_ns to end_ns, and those that belong to an inference: clocks differ at its ends."""
    import pyarrow.compute as pc

    start = rows["t_start_ns"]
    inside = pc.and_(pc.greater_equal(start, begin_ns), pc.less_equal(start, end_ns))
    return rows.filter(pc.or_(inside, pc.is_valid(rows["iteration"])) if "iteration" in rows.schema.names else inside)


def rows_where(table: pa.Table, column: str, name: str) -> pa.Table:
    """Return the rows that hold this name in a column of names."""
    import pyarrow.compute as pc

    return table.filter(pc.equal(table[column].cast(pa.string()), name))


def whole(table: pa.Table, column: str) -> Ints:
    """Return a column of whole numbers; null is -1."""
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(table[column], -1).to_numpy(), np.int64)


def names_of(column: pa.ChunkedArray, unnamed: str) -> tuple[list[str], Ints]:
    """Return the texts of a column of names, and the code of each row's; null and an empty text are `unnamed`."""
    whole = column.unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    texts = [*(text or unnamed for text in whole.dictionary.to_pylist()), unnamed]
    return texts, np.asarray(whole.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False), np.int64)


def sampled(events: pa.Table) -> pa.Table:
    """Return the rows of system_events that are sums over a sampled interval."""
    import pyarrow.compute as pc

    tiers = events["tier"].cast(pa.string())
    return events.filter(pc.or_kleene(pc.is_null(tiers), pc.equal(tiers, SAMPLED)))


WHEN = {
    "t_start_ns": (INT, "start"),
    "t_end_ns": (INT, "end"),
    "dur_ns": (INT, "t_end_ns - t_start_ns"),
}
WHERE = {
    "device_id": (INT, "device; null when the kernel ran on the host CPU"),
    "queue_id": (INT, "hardware queue"),
    "stream_id": (INT, "stream"),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread"),
    "correlation_id": (INT, "links an API call to the work it launched; unique within its capture"),
}
CAPTURE = {"capture": (INT, "index of the capture in profiler/captures.json; null for what this tool recorded itself")}
