"""A session's tables on disk: one Parquet file per table, checked against its spec on the way in and out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import files, tables
from aaco.core.errors import BadBundle, first_line
from aaco.core.redaction.columns import redact_table
from aaco.core.session import Session
from aaco.core.tables import TableSpec
from aaco.tracelake import documents
from aaco.tracelake.memory import give_back

ROW_GROUP = 1 << 16  # rows: what a reader takes at once


def write(session: Session, spec: TableSpec, table: pa.Table) -> None:
    """Write one table atomically, credentials redacted. Raises TypeError on a foreign schema, StorageError."""
    if table.schema.names != spec.schema.names:
        raise TypeError(f"table {spec.name}: columns are not the spec's: {table.schema.names}")
    stream(session, spec, [redact_table(table.cast(spec.schema).unify_dictionaries())])


def stream(session: Session, spec: TableSpec, pieces: Iterable[pa.Table]) -> int:
    """Write one table atomically from redacted pieces of any size, in row groups of ROW_GROUP; return how many rows.

    zstd, statistics per row group. A NAME column keeps its codes only if all pieces have the same dictionary of it:
    then that is the dictionary of every row group. Raises StorageError.
    """
    rows = 0

    def fill(file: IO[bytes]) -> None:
        nonlocal rows
        with pq.ParquetWriter(file, spec.schema, **_encoding(spec)) as writer:
            for group in _groups(pieces):
                writer.write_table(group, row_group_size=ROW_GROUP)
                rows += group.num_rows
                give_back()

    files.write_atomically(session.folder / spec.file, fill)
    return rows


def _encoding(spec: TableSpec) -> dict[str, Any]:
    """Integers as differences: times and ids hardly differ from row to row, which saves zstd most of its work."""
    kinds = {name: kind for name, (kind, _) in spec.columns.items()}
    names = [name for name, kind in kinds.items() if pa.types.is_dictionary(kind)]
    numbers = [name for name, kind in kinds.items() if pa.types.is_integer(kind)]
    return {"compression": "zstd", "use_dictionary": names or False,
            "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED") or None,
            "write_statistics": [name for name, kind in kinds.items() if kind not in (tables.TEXT, tables.TEXTS)],
            "dictionary_pagesize_limit": 1 << 30,  # beyond its limit a writer would give up the dictionary
            "write_page_checksum": True}  # zstd alone decompresses a flipped bit into other numbers


def _groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of ROW_GROUP rows, the last one shorter; at least one, if empty."""
    waiting: list[pa.Table] = []
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += piece.num_rows
        while count >= ROW_GROUP:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, ROW_GROUP)
            waiting, count = [whole.slice(ROW_GROUP)], count - ROW_GROUP
    if count:
        yield pa.concat_tables(waiting)


def holds(session: Session, spec: TableSpec) -> bool:
    """Whether the bundle has this table, be it readable or not."""
    return documents.holds(session, spec.file)


def read(session: Session, spec: TableSpec, columns: Sequence[str] | None = None) -> pa.Table:
    """Return one table in the spec's columns, or in those named; columns that an older version does not have are null.
    Raise BadBundle.
    """
    with opened(session, spec) as file:
        stored = file.read(columns and [name for name in columns if name in file.schema_arrow.names])
        return redact_table(spec.conform(stored, str(session.folder / spec.file), columns))


@contextmanager
def opened(session: Session, spec: TableSpec, known: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """Open the table's file; any damage found while it is read becomes a BadBundle.

    known: its metadata, from when it was opened before: those of a long table take milliseconds to read.
    """
    path = session.folder / spec.file
    try:
        # Not a path: pyarrow's opener would import its dataset layer. Not a Python file: Arrow's threads may still free
        # what they read of one when the interpreter is ending, and the process is then aborted (CPython 3.11).
        with pa.OSFile(os.fsencode(path)) as file:
            yield pq.ParquetFile(file, metadata=known, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise BadBundle(f"{path}: missing", "aaco info SESSION  # says why a file is absent") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadBundle(f"{path}: unreadable Parquet: {first_line(error)}",
                        "aaco info SESSION  # checks every file's hash") from error


def read_all(session: Session) -> dict[str, pa.Table]:
    """Every table present, by name. A table with no rows is left out: empty means not measured."""
    tables_by_name = {name: read(session, spec) for name, spec in tables.ALL.items() if holds(session, spec)}
    return {name: table for name, table in tables_by_name.items() if table.num_rows}
