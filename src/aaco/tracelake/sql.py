"""SQL over sessions' tables: DuckDB in a sandbox that may read the tables' Parquet files and nothing else.

The walls: a query is a single SELECT; no file can be touched but those of the tables; the configuration is locked;
memory, threads and the room for what does not fit in memory are bounded.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from msgspec import Struct

from aaco.core import files, tables
from aaco.core.errors import UsageError, first_line
from aaco.core.session import Session
from aaco.core.tables import TableSpec
from aaco.tracelake import manifest, store

T = TypeVar("T")

# Infinity and the year 290,000 are times of DuckDB, and none of Python; Arrow has no such numbers.
_UNSPELT = re.compile(r"\b(?:DATE|TIME|TIMESTAMP\w*|INTERVAL|UHUGEINT|BIGNUM|VARINT|BIT)\b")
MEMORY = "400MB"
OVERFLOW = "8GB"
ROWS = 1 << 14  # of a batch of the answer
EXAMPLE = 'aaco sql "select name, count(*), sum(dur_ns) from events group by all order by 3 desc"'
EVENTS = "events"
EVENT_COLUMNS = ("session_id", "capture", "ts_ns", "dur_ns", "type", "name", "device", "queue", "stream", "process",
                 "thread", "correlation", "iteration", "rank", "id", "parent", "preorder", "subtree")
# What tells of the engine, its settings and files, or executes a text; none of it is a session's.
ENGINE = re.compile(r"(duckdb|pragma|pg|sqlite|json_execute)_.*|query|query_table|current_setting|which_secret|"
                    r"information_schema", re.IGNORECASE)
NAMED = re.compile(r'"(?:table|schema|catalog|function)(?:_name)?":"([^"]*)"')  # in a parsed query, as JSON
_SPAN = {"capture": "capture", "ts_ns": "t_start_ns", "dur_ns": "dur_ns", "rank": "rank", "process": "process_id",
         "thread": "thread_id", "correlation": "correlation_id"}
_WORK = {**_SPAN, "device": "device_id", "queue": "queue_id", "stream": "stream_id", "iteration": "iteration"}
# Of each table that has a time: what stands in the columns of `events`; it has no others of them.
EVENT_SOURCES: dict[str, dict[str, str]] = {
    "kernels": {**_WORK, "type": "'kernel'", "name": "kernel_name", "id": "kernel_id"},
    "copies": {**_WORK, "type": "'copy'", "name": "kind", "id": "copy_id"},
    "api_calls": {**_SPAN, "type": "domain", "name": "name", "id": "call_id", "parent": "parent_id",
                  "preorder": "preorder", "subtree": "subtree_size"},
    "allocations": {"capture": "capture", "ts_ns": "t_ns", "dur_ns": "dur_ns", "type": "'allocation'", "name": "kind",
                    "device": "device_id", "process": "process_id", "thread": "thread_id",
                    "correlation": "correlation_id"},
    "samples": {"capture": "capture", "ts_ns": "t_ns", "type": "'sample'", "name": "name", "device": "device_id",
                "process": "process_id"},
    "system_events": {"ts_ns": "t_ns", "dur_ns": "dur_ns", "type": "'system'", "name": "kind",
                      "process": "process_id", "thread": "thread_id"},
}


class Answer(Struct, frozen=True):
    """A query's rows in batches of its schema, to be read while the connection is open."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@contextmanager
def ask(sessions: Sequence[Session], query: str, memory: str = MEMORY, sealed: bool = True, spelt: bool = False
        ) -> Iterator[Answer]:
    """Ask the sessions' tables. Each is a view with a column session_id; `events` is everything that has a time.

    sealed: whether the tables must match the seal; False while they are rewritten, before the next seal. spelt: times
    and numbers that Python cannot hold come as text, as DuckDB writes them.
    Raises UsageError for anything but a single SELECT over them, and for one that does not fit the memory limit;
    BadBundle for a table that is not as it was sealed.
    """
    settings: Any = {"memory_limit": memory, "threads": 2, "max_temp_directory_size": OVERFLOW,
                "autoinstall_known_extensions": False, "autoload_known_extensions": False,
                "python_enable_replacements": False}
    with tempfile.TemporaryDirectory(prefix="aaco-sql-") as folder:
        connection: Any = duckdb.connect(config=settings | {"temp_directory": f"{folder}/overflow"})
        door = _Door(Path(folder))
        try:
            _refuse_all_but_select(connection, query)
            _open(connection, sessions, set(re.findall(r"\w+", query.lower())), door, sealed)
            with ThreadPoolExecutor(1) as worker:
                reader = _stoppable(worker, connection,
                                    lambda: _relation(connection, query, spelt).to_arrow_reader(ROWS))
                following = partial(_stoppable, worker, connection, lambda: next(reader, None))
                yield Answer(reader.schema, iter(following, None))
        except duckdb.Error as error:
            raise UsageError(f"the query: {door.named(first_line(error))}", _remedy(error)) from error
        finally:
            connection.close()


def _relation(connection: Any, query: str, spelt: bool) -> Any:
    """Return what the query gives; spelt: what only DuckDB can hold as text."""
    relation = connection.sql(query)
    unspelt = {at for at, kind in enumerate(relation.types, 1) if _UNSPELT.search(str(kind))} if spelt else set()
    names = [name.replace('"', '""') for name in relation.columns]
    columns = (f"CAST(#{at} AS VARCHAR)" if at in unspelt else f"#{at}" for at in range(1, len(names) + 1))
    return relation.project(", ".join(f'{column} AS "{name}"' for column, name in zip(columns, names, strict=True))
                            ) if unspelt else relation


def _stoppable(worker: Executor, connection: Any, work: Callable[[], T]) -> T:
    """Let the worker do it, and stop it on a Ctrl-C.

    DuckDB 2.0's own answer to a Ctrl-C in the main thread waits for the tasks its other threads have begun, without
    telling them to stop: about one long query in twelve then ran to its end. Connection.interrupt() tells them.
    """
    doing = worker.submit(work)
    try:
        return doing.result()
    except KeyboardInterrupt:
        while not doing.done():  # again, for one that had not begun forgets the first
            connection.interrupt()
            wait([doing], timeout=0.05)
        raise


class _Door:
    """The tables' files under names of our own, by links: no folder's name is ever read as SQL or as a pattern."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.paths: dict[str, Path] = {}

    def add(self, file: Path) -> str:
        """The file's name in here."""
        link = self._folder / f"{len(self.paths)}.parquet"
        link.symlink_to(file.resolve())
        self.paths[str(link)] = file
        return str(link)

    def named(self, text: str) -> str:
        """The text with the files' own names."""
        return re.sub(re.escape(f"{self._folder}/") + r"\d+\.parquet",
                      lambda match: str(self.paths.get(match[0], match[0])), text)


def _refuse_all_but_select(connection: Any, query: str) -> None:
    if not files.is_text(query):
        raise UsageError("the query is not UTF-8", EXAMPLE)
    statements = connection.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(statement.type.name for statement in statements) or "nothing"
        raise UsageError(f"the query is {kinds}; only a single SELECT is answered: the lake is read-only", EXAMPLE)
    _refuse_engine(connection, query)


def _refuse_engine(connection: Any, query: str) -> None:
    [parsed] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    for name in NAMED.findall(parsed):
        if ENGINE.fullmatch(name):
            raise UsageError(f"the query asks {name}, which is no table of a session", EXAMPLE)


def _open(connection: Any, sessions: Sequence[Session], words: set[str], door: _Door, sealed: bool) -> None:
    """Create the views that the query names (all if it names none), then forbid file access."""
    named = words | (set(EVENT_SOURCES) if EVENTS in words else set())
    specs = [spec for name, spec in tables.ALL.items() if name in named] or list(tables.ALL.values())
    held = {spec.name: {session.id: door.add(session.folder / spec.file) for session in sessions
                        if store.holds(session, spec)} for spec in specs}
    for session in sessions if sealed else ():  # DuckDB does not look at the checksums in the files
        manifest.refuse_changed(session, [spec.file for spec in specs])
    connection.execute(f"SET allowed_paths = {list(door.paths)}")
    connection.execute("SET enable_external_access = false")
    for spec in specs:
        connection.execute(f"CREATE VIEW {spec.name} AS {_view(spec, held[spec.name])}")
    if set(EVENT_SOURCES) <= {spec.name for spec in specs}:
        connection.execute(f"CREATE VIEW {EVENTS} AS {' UNION ALL '.join(map(_events, EVENT_SOURCES))}")
    connection.execute("SET lock_configuration = true")


def _view(spec: TableSpec, files: Mapping[str, str]) -> str:
    """The table over the sessions, by their ids. A constant session_id per file lets a condition skip the others."""
    empty = ", ".join(f'NULL::{_kind(kind)} AS "{name}"' for name, (kind, _) in spec.columns.items())
    parts = [f"SELECT NULL::VARCHAR AS session_id, {empty} WHERE false"]
    parts += [f"SELECT {_quoted(session)} AS session_id, * FROM read_parquet('{file}')"
              for session, file in files.items()]
    return " UNION ALL BY NAME ".join(parts)


def _events(table: str) -> str:
    found = {"session_id": "session_id", **EVENT_SOURCES[table]}
    columns = (f"{found.get(name, 'NULL')} AS {name}" for name in EVENT_COLUMNS)
    return f"SELECT {', '.join(columns)} FROM {table}"


def _kind(kind: pa.DataType) -> str:
    """DuckDB's name of a column's type."""
    if pa.types.is_list(kind):
        return f"{_kind(kind.value_type)}[]"
    return {tables.INT: "BIGINT", tables.REAL: "DOUBLE", tables.FLAG: "BOOLEAN"}.get(kind, "VARCHAR")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _remedy(error: duckdb.Error) -> str:
    if isinstance(error, duckdb.OutOfMemoryException):
        return "ask for less at once: fewer columns, a time window (where t_start_ns between A and B), or a limit"
    return f"{EXAMPLE}; tables and their columns: docs/reference/tables.md"
