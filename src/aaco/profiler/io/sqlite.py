"""Captures that are SQLite databases: opened read-only, streamed into Arrow; defects raise BadCapture.

SQLite binds types to values, not to columns. A stream here has the requested types: the driver reads fast while every
value fits; from the first that does not fit, rows are read one by one. A value that does not convert to the type of its
column becomes null and is counted in `misfits`.

The file is opened immutable: SQLite then takes no locks, writes no file next to it, and ignores a journal. So a
database that still has a journal is refused, and so is one that changes while it is read. Only plain tables are read:
views, virtual tables and generated columns would run code from the file.
"""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_manager as adbc
import adbc_driver_sqlite as driver
import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.core.words import counted
from aaco.profiler.io.readable import readable

MAGIC = b"SQLite format 3\0"
GZIP = b"\x1f\x8b"
HEADER_BYTES = 100
# Hot rollback journals begin with this (sqlite.org/fileformat2.html, section 3); a finished one is empty or zeroed.
JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
BATCH_ROWS = 32768
LONGEST_VALUE = 1 << 24
LONGEST_NAME = 1 << 16
CHUNK_BYTES = 1 << 20
# Trace databases shrink five- to thirtyfold; a file that grows far more than that was made to fill a disk.
MOST_EXPANSION = 300
SMALLEST_ROW_BYTES = 4  # a cell pointer, a length and a row id: no table has more rows than this allows
# A page that is linked twice can make a table endless. So SQLite's steps are counted, with a limit far above that of
# any valid query.
STEPS_PER_TICK = 1 << 22
STEPS_PER_ROW = 64
KEYS = 1 << 43  # no file has so many rows: larger row ids are damage, and would collide with another table's keys
TYPES = {"int": pa.int64(), "real": pa.float64(), "text": pa.string()}
# What reading a damaged database raises: Python cannot even decode the message that names a damaged column.
BROKEN = (sqlite3.Error, UnicodeDecodeError)
AGAIN = "record it again, or restore the file from where it was written"


class SqliteTable(Struct, frozen=True):
    """A plain table: its columns by lower-case name as the file spells them, the name of its row id (None if it has
    none), and its primary key column in lower case (None if it has none or one of several columns).
    """

    name: str
    columns: Mapping[str, str]
    rowid: str | None
    key: str | None

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def chosen(self, alias: str, columns: Mapping[str, str]) -> dict[str, str]:
        """Return SQL by our names for those columns that the table has; `columns` maps our names to its names."""
        return {name: f"{alias}.{quoted(self.columns[file_name])}" for name, file_name in columns.items()
                if file_name in self.columns}


class ColumnBatch(dict[str, pa.Array]):
    """Columns of some rows by name; a column that the file does not have is null in all rows."""

    def __init__(self, columns: Mapping[str, pa.Array], count: int) -> None:
        super().__init__(columns)
        self.count = count

    def __missing__(self, name: str) -> pa.Array:
        return pa.nulls(self.count, pa.int64())

    def filter(self, mask: np.ndarray) -> ColumnBatch:
        """Return the rows where the mask is true."""
        kept = pa.array(mask)
        return ColumnBatch({name: values.filter(kept) for name, values in self.items()}, int(mask.sum()))


class Database:
    """An open capture. `misfits` counts values by (table, column) that are not of the requested type."""

    def __init__(self, path: Path, file: Path) -> None:
        self.path, self.file = path, file
        self.bytes = file.stat().st_size
        self.misfits: Counter[tuple[str, str]] = Counter()
        self._uri = "file:" + quote(os.fsencode(file.absolute())) + "?mode=ro&immutable=1"
        self._connection = sqlite3.connect(self._uri, uri=True)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        self._connection.text_factory = _text
        self._connection.set_progress_handler(self._tick, STEPS_PER_TICK)
        self._ticks = 0
        self.unreadable: dict[str, str] = {}  # what is no plain table, by its name
        self.tables = {table.name: table for table in self._read_tables()}

    def close(self) -> None:
        self._connection.close()

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows as SQLite types them, for small tables. Raise BadCapture."""
        most, count, self._ticks = self._most_rows(), 0, 0
        try:
            for row in self._connection.execute(sql):
                count += 1
                if count > most:
                    raise self.damaged("it has more rows than a file of its size can hold")
                yield row
        except BROKEN as error:
            raise self.damaged(_message_of(error)) from error

    def value(self, sql: str) -> Any:
        """Return the only value of the query, or None. Raise BadCapture."""
        return next(iter(next(self.rows(sql), (None,))))

    def stream(self, sql: str, kinds: Mapping[str, str], table: str) -> Iterator[pa.RecordBatch]:
        """Yield batches of the query's rows, its columns named and typed by `kinds` (int, real, text) in order.

        The query must return its rows in the same order each time. `misfits` counts under `table`. Raise BadCapture.
        """
        schema = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()])
        done = 0
        for batch in self._read_fitting(sql, schema):
            done += batch.num_rows
            if done > self._most_rows():
                raise self.damaged(f"{table} has more rows than a file of its size can hold")
            if batch.num_rows == 0:
                return
            yield batch
        yield from self._read_checked(f"{sql} LIMIT -1 OFFSET {done}", schema, table, done)

    def batches(self, sql: str, kinds: Mapping[str, str], table: str) -> Iterator[ColumnBatch]:
        """Yield the same batches, columns by name."""
        for batch in self.stream(sql, kinds, table):
            yield ColumnBatch(dict(zip(kinds, batch.columns, strict=True)), batch.num_rows)

    def keys(self, rows: pa.Array, space: int = 0) -> np.ndarray:
        """Return row ids as keys; `space`, a small number, separates those of different tables. Raise BadCapture."""
        row_ids = rows.to_numpy(zero_copy_only=False)
        if len(row_ids) and (int(row_ids.min()) <= -KEYS or int(row_ids.max()) >= KEYS):
            raise self.damaged(f"a row id of {max(abs(int(row_ids.min())), abs(int(row_ids.max()))):,}")
        keys: np.ndarray = row_ids + space * 2 * KEYS
        return keys

    def damaged(self, why: str) -> BadCapture:
        """Return the error for a database that opens but cannot be read."""
        return BadCapture(f"{self.path}: damaged: {why}", AGAIN)

    def problems(self) -> list[str]:
        """Return the counts of `misfits`, in words."""
        return [counted(count, f"values of {table}.{column} are not of the column's type: read as absent")
                for (table, column), count in sorted(self.misfits.items())]

    def _most_rows(self) -> int:
        return self.bytes // SMALLEST_ROW_BYTES

    def _tick(self) -> bool:
        self._ticks += 1
        return (self._ticks - 1) * STEPS_PER_TICK > self._most_rows() * STEPS_PER_ROW

    def _read_tables(self) -> Iterator[SqliteTable]:
        listed = "SELECT type, name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        for kind, name, page, sql in list(self.rows(listed)):
            plain = kind == "table" and isinstance(page, int) and page > 0 and isinstance(sql, str)
            if not isinstance(name, str) or "\0" in name or name.startswith("sqlite_"):
                continue
            if plain:
                yield self._read_table(name, "without" in sql.lower())
            else:
                self.unreadable[name] = "is a view" if kind == "view" else "has no pages of its own"

    def refuse_unreadable(self, names: Iterable[str]) -> None:
        """Raise BadCapture if one of these tables is there, but as no plain table."""
        for name in names:
            if name in self.unreadable:
                raise self.damaged(f"the table {name} {self.unreadable[name]}, and cannot be read")

    def _read_table(self, name: str, perhaps_no_rowid: bool) -> SqliteTable:
        column_rows = list(self.rows(f"PRAGMA table_xinfo({quoted(name)})"))
        columns = {row[1].lower(): row[1] for row in column_rows if row[6] == 0 and "\0" not in row[1]}
        keys = [row for row in column_rows if row[5]]
        rowid = next((word for word in ("rowid", "_rowid_", "oid") if word not in columns), None)
        if perhaps_no_rowid and rowid and not self._has_column(name, rowid):
            rowid = None
        return SqliteTable(name, columns, rowid, keys[0][1].lower() if len(keys) == 1 else None)

    def _has_column(self, table: str, column: str) -> bool:
        try:
            self._connection.execute(f"SELECT {column} FROM {quoted(table)} LIMIT 0")
        except BROKEN:
            return False
        return True

    def _read_fitting(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as the driver types them while they fit; an empty batch last if that was to the end."""
        try:
            with ExitStack() as stack:
                for batch in _open_arrow_reader(stack, self._uri, sql):
                    fitted = _fit_batch(batch, schema)
                    if fitted is None:
                        return
                    if fitted.num_rows:
                        yield fitted
                yield pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
        except (adbc.Error, pa.ArrowException, OSError):
            return  # the row-by-row reader continues here, and reports the error if there is one

    def _read_checked(self, sql: str, schema: pa.Schema, table: str, done: int) -> Iterator[pa.RecordBatch]:
        self._ticks = 0
        try:
            cursor = self._connection.execute(sql)
            while rows := cursor.fetchmany(BATCH_ROWS // 8):
                done += len(rows)
                if done > self._most_rows():
                    raise self.damaged(f"{table} has more rows than a file of its size can hold")
                columns = zip(*rows, strict=True)
                arrays = [self._convert_column(values, field, table)
                          for values, field in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except BROKEN as error:
            raise self.damaged(f"{table}: {_message_of(error)}") from error

    def _convert_column(self, values: Sequence[Any], field: pa.Field, table: str) -> pa.Array:
        read = READ[str(field.type)]
        converted = [read(value) for value in values]
        misfits = sum(value is None for value in converted) - sum(value is None for value in values)
        if misfits:
            self.misfits[table, field.name] += misfits
        return pa.array(converted, field.type)


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Yield the database at the path, expanded into a temporary file if it is gzip. Raise BadCapture."""
    try:
        with ExitStack() as stack:
            stack.enter_context(readable(path))
            file = stack.enter_context(_expanded(path)) if _head(path, len(GZIP)) == GZIP else path
            before = _fingerprint(file)
            _check(path, file)
            with closing(Database(path, file)) as database:
                yield database
            if _fingerprint(file) != before:
                raise BadCapture(f"{path}: it changed while it was read", "wait until the profiler has ended")
    except BROKEN as error:
        raise BadCapture(f"{path}: damaged: {_message_of(error)}", AGAIN) from error


def table_names(path: Path) -> frozenset[str]:
    """Return the names of the tables in a file, empty if it is not an SQLite database. Never raise.

    Of a gzip file only the beginning is read, where SQLite puts the schema of the first tables.
    """
    try:
        head, stat = _head(path, len(MAGIC)), path.stat()
        return _table_names(path, head, stat.st_mtime_ns, stat.st_size)
    except OSError:
        return frozenset()


def quoted(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def joined(table: SqliteTable, alias: str, column: str, on: str, columns: Sequence[str], where: str = "1") -> str:
    """Return SQL that joins at most one row of a table, by one of its columns: the number of rows joined to stays as
    is.

    `where` is a further condition on `alias`.
    """
    if table.key == column:
        return f"LEFT JOIN {quoted(table.name)} {alias} ON {alias}.{quoted(column)} = {on} AND {where}"
    selected = ", ".join(f"{alias}.{quoted(name)}" for name in (column, *columns))
    unique_rows = f"SELECT {selected} FROM {quoted(table.name)} {alias} WHERE {where} GROUP BY {alias}.{quoted(column)}"
    return f"LEFT JOIN ({unique_rows}) {alias} ON {alias}.{quoted(column)} = {on}"


@lru_cache(maxsize=64)
def _table_names(path: Path, head: bytes, _mtime_ns: int, _size: int) -> frozenset[str]:
    try:
        if head.startswith(GZIP):
            return _names_in_text(path)
        if head != MAGIC:
            return frozenset()
        with closing(Database(path, path)) as database:
            return frozenset(database.tables) | database.unreadable.keys()
    except (OSError, EOFError, zlib.error, *BROKEN, BadCapture):
        return frozenset()


def _names_in_text(path: Path) -> frozenset[str]:
    with gzip.open(path) as file:
        head = file.read(CHUNK_BYTES)
    if not head.startswith(MAGIC):
        return frozenset()
    names = re.findall(rb"CREATE TABLE(?: IF NOT EXISTS)?\s+[\"`'\[]?(\w{1,200})", head)
    return frozenset(name.decode() for name in names)


def _open_arrow_reader(stack: ExitStack, uri: str, sql: str) -> pa.RecordBatchReader:
    database = stack.enter_context(adbc.AdbcDatabase(driver=driver._driver_path(), uri=uri))
    connection = stack.enter_context(adbc.AdbcConnection(database))
    statement = stack.enter_context(adbc.AdbcStatement(connection))
    statement.set_options(**{driver.StatementOptions.BATCH_ROWS.value: str(BATCH_ROWS)})
    statement.set_sql_query(sql)
    handle, _ = statement.execute_query()
    return stack.enter_context(pa.RecordBatchReader._import_from_c(handle.address))


def _fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
    arrays = [_fit_column(values, kind) for values, kind in zip(batch.columns, schema.types, strict=True)]
    return None if any(array is None for array in arrays) else pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fit_column(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return the column as the requested type, or None if the conversion would lose or invent something."""
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if values.type == kind:
        if kind == pa.string():
            values.validate(full=True)
        return values
    if kind == pa.float64() and values.type == pa.int64():
        return values.cast(kind, safe=False)  # a column of reals that so far holds only integers
    return None


def _integer(value: Any) -> int | None:
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() and abs(value) <= 1 << 53 else None


def _real(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _words(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return _text(value) if type(value) is bytes else str(value)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


READ = {"int64": _integer, "double": _real, "string": _words}


def _message_of(error: Exception) -> str:
    return str(error)[:300] if isinstance(error, sqlite3.Error) else "a name in it is no UTF-8"


def _head(file: Path, count: int) -> bytes:
    with file.open("rb") as stream:
        return stream.read(count)


def _fingerprint(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _check(path: Path, file: Path) -> None:
    """Refuse a file that is not a complete, settled database, before SQLite interprets it."""
    header = _head(file, HEADER_BYTES)
    if not header:
        raise BadCapture(f"{path}: the file is empty", "record it again: the profiler ended before it wrote anything")
    if not header.startswith(MAGIC):
        raise BadCapture(f"{path}: not an SQLite database, or an encrypted one", "aaco import FILE  # names the format")
    if len(header) < HEADER_BYTES:
        raise BadCapture(f"{path}: cut short after {len(header)} bytes", AGAIN)
    _check_length(path, header, file.stat().st_size)
    _check_journals(path)


def _check_length(path: Path, header: bytes, size: int) -> None:
    whole = _length(header)
    if whole and size < whole:
        raise BadCapture(f"{path}: cut short: {size:,} bytes of {whole:,}", AGAIN)


def _length(header: bytes) -> int | None:
    """Return the bytes that the database has, or None if the header does not maintain that (fileformat2, 1.3.7)."""
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    return page * int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else None


def _check_journals(path: Path) -> None:
    fold = f"end the program that records, then: sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
    wal, journal = (path.with_name(path.name + end) for end in ("-wal", "-journal"))
    if wal.exists() and wal.stat().st_size:
        raise BadCapture(f"{path}: not finished: part of it is still in {wal.name}", fold)
    if journal.exists() and _head(journal, len(JOURNAL_MAGIC)) == JOURNAL_MAGIC:
        raise BadCapture(f"{path}: not finished: {journal.name} holds a change that was cut off", fold)


@contextmanager
def _expanded(path: Path) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="aaco-", suffix=".db") as whole:
        try:
            with gzip.open(path) as packed:
                _expand(path, packed, whole)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadCapture(f"{path}: not gzip, or cut short: {error}", AGAIN) from error
        yield Path(whole.name)


def _expand(path: Path, packed: Any, whole: Any) -> None:
    chunk = packed.read(CHUNK_BYTES)
    if not chunk.startswith(MAGIC):
        raise BadCapture(f"{path}: not an SQLite database, or an encrypted one", "aaco import FILE  # names the format")
    most = min(_length(chunk[:HEADER_BYTES]) or 1 << 62, MOST_EXPANSION * path.stat().st_size) + CHUNK_BYTES
    while chunk:
        if whole.tell() + len(chunk) > most:
            raise BadCapture(f"{path}: it expands to more than a database like it can have, {most:,} bytes",
                             "expand it yourself with gunzip if you trust it")
        _write(path, chunk, whole)
        chunk = packed.read(CHUNK_BYTES)


def _write(path: Path, chunk: bytes, whole: Any) -> None:
    try:
        whole.write(chunk)
        whole.flush()
    except OSError as error:
        raise BadCapture(f"{path}: no room to expand it in {whole.name}: {error.strerror}",
                         "TMPDIR=/a/folder/with/room aaco import ...") from error
