"""A session's tables on disk: one Parquet file per table, checked against its spec on the way in and out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import files, tables
from aaco.core.errors import BadBundle
from aaco.core.session import Session
from aaco.core.tables import TableSpec


def write(session: Session, spec: TableSpec, table: pa.Table) -> None:
    """Write one table atomically (zstd, row-group statistics). Raises TypeError on a foreign schema, StorageError."""
    if table.schema.names != spec.schema.names:
        raise TypeError(f"table {spec.name}: columns are not the spec's: {table.schema.names}")
    whole = table.cast(spec.schema)
    files.write_atomically(session.folder / spec.file, lambda file: pq.write_table(whole, file, compression="zstd"))


def holds(session: Session, spec: TableSpec) -> bool:
    """Whether the bundle has this table."""
    return (session.folder / spec.file).is_file()


def read(session: Session, spec: TableSpec) -> pa.Table:
    """One table, in the spec's columns; columns of an older version that lacks them are null. Raises BadBundle."""
    path = session.folder / spec.file
    try:
        return spec.conform(_read(path), str(path))
    except FileNotFoundError as error:
        raise BadBundle(f"{path}: missing", "aaco info SESSION  # says why a file is absent") from error
    except (pa.ArrowException, OSError) as error:
        raise BadBundle(f"{path}: unreadable Parquet: {_first_line(error)}",
                        "aaco info SESSION  # checks every file's hash") from error


def read_all(session: Session) -> dict[str, pa.Table]:
    """Every table present, by name. A table with no rows is left out: empty means not measured."""
    found = {name: read(session, spec) for name, spec in tables.ALL.items() if holds(session, spec)}
    return {name: table for name, table in found.items() if table.num_rows}


def _read(path: Path) -> pa.Table:
    with path.open("rb") as file:  # a plain file: pyarrow's own opener would import its dataset layer
        return pq.ParquetFile(file).read()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
