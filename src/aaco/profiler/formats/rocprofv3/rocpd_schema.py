"""The schema of a rocpd database around its long tables: its sets of tables, and its processes, agents, names.

A file may hold several sets of tables, one for each process that recorded into it, distinguished by the suffix of the
tables' common names (`rocpd_string_<guid with _>`, in older files without the first `_`, or nothing); and one set may
hold several processes, distinguished by the column guid. A `RocpdSource` is one process of one set: ids are valid only
in it. Schema: rocm-systems, projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql (version 3),
and version 4, in which rows name a track and two timestamps instead of their process, queue, start and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CapturedDevice
from aaco.profiler.formats.rocprofv3 import rocm_agent
from aaco.profiler.io.lookup import Reference
from aaco.profiler.io.names import NamesById, read
from aaco.profiler.io.sqlite import Database, SqliteTable, quoted

PREFIX = "rocpd_"
LONG = ("kernel_dispatch", "memory_copy", "memory_allocate", "region", "sample", "pmc_event", "arg")
KINDS = (*LONG, "info_agent", "info_node", "info_process", "info_thread", "info_pmc", "info_kernel_symbol",
         "info_category", "event", "string", "track", "timestamp", "metadata")
MOST_PROCESSES = 4096


class RocpdAgent(Struct, frozen=True):
    """A processor: its id in the source, whether it is a GPU, and its device."""

    id: int
    gpu: bool
    device: CapturedDevice


class RocpdSource(Struct):
    """One recording process: the tables of its set by kind, and the guid of its rows if others share the set."""

    number: int
    tables: Mapping[str, SqliteTable]
    guid: str | None
    shared: bool
    processes: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    agents: list[RocpdAgent] = field(default_factory=list)

    def has(self, kind: str, *columns: str) -> bool:
        """Return whether the set has the table, with these columns."""
        return kind in self.tables and all(column in self.tables[kind] for column in columns)

    def where(self, alias: str, kind: str) -> str:
        """Return the SQL condition that a table's row is of this source; true for every row if the set is not shared.
        """
        if not self.shared or "guid" not in self.tables[kind]:
            return "1"
        return f"{alias}.guid IS {literal(self.guid)}"

    def table(self, kind: str) -> str:
        """Return the table's name in SQL."""
        return quoted(self.tables[kind].name)


def literal(text: str | None) -> str:
    """Return an SQL string, or NULL."""
    return "NULL" if text is None else "'" + text.replace("\0", "").replace("'", "''") + "'"


def sources(database: Database) -> list[RocpdSource]:
    """Return every recording process of the file, in the order of its tables. Raise BadCapture.

    GPUs keep their number within their node; a second node's numbers begin where the first's end.
    """
    sources: list[RocpdSource] = []
    for tables in _table_sets(database).values():
        guids = _guids(database, tables)
        if len(sources) + len(guids) > MOST_PROCESSES:
            raise BadCapture(f"{database.path}: more than {MOST_PROCESSES} processes in one file", "import them apart")
        sources += [RocpdSource(len(sources) + index, tables, guid, len(guids) > 1) for index, guid in enumerate(guids)]
    first_by_node: dict[str, int] = {}
    next_number = 0
    for source in sources:
        source.nodes = rows(database, source, "info_node", "id", "hostname", "machine_id", "release")
        source.processes = rows(database, source, "info_process", "id", "pid", "ppid", "start", "end", "command",
                                "environment")
        node = str(source.nodes[0]["machine_id"]) if source.nodes else ""
        source.agents = list(_read_agents(database, source, first_by_node.setdefault(node, next_number)))
        next_number = max([next_number, *(agent.device.id + 1 for agent in source.agents if agent.gpu)])
    return sources


def rows(database: Database, source: RocpdSource, kind: str, *columns: str) -> list[dict[str, Any]]:
    """Return the source's rows of a small table; a column that the table does not have is None in each."""
    if kind not in source.tables:
        return []
    table = source.tables[kind]
    selected = ", ".join(f"t.{quoted(table.columns[name])}" if name in table else "NULL" for name in columns)
    query = f"SELECT {selected} FROM {source.table(kind)} t NOT INDEXED WHERE {source.where('t', kind)}"
    return [dict(zip(columns, row, strict=True)) for row in database.rows(query)]


def reference(database: Database, source: RocpdSource, kind: str, column: str) -> Reference | None:
    """Return the values of ids into a small table, or None if the set has no such table."""
    if not source.has(kind, "id", column):
        return None
    id_rows = [row for row in rows(database, source, kind, "id", column) if type(row["id"]) is int]
    return Reference([row["id"] for row in id_rows],
                     [row[column] if type(row[column]) is int else None for row in id_rows])


def names(database: Database, source: RocpdSource, kind: str, *columns: str) -> NamesById:
    """Return names by id: in each row the first of the columns that holds text."""
    table = source.tables.get(kind)
    return read(database, table, columns, source.where("t", kind) if table else "1")


def json_object(text: Any) -> dict[str, Any]:
    """Return the JSON object in a column, empty if it holds none."""
    if not isinstance(text, str):
        return {}
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _table_sets(database: Database) -> dict[str, dict[str, SqliteTable]]:
    """Return the tables of each set by kind. A set without any long table holds nothing and is not one."""
    tables_by_suffix: dict[str, dict[str, SqliteTable]] = {}
    suffixes = set()
    for name, table in database.tables.items():
        stem = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        kind = max((kind for kind in KINDS if stem.startswith(kind)), key=len, default=None)
        if kind:
            suffixes.add(stem.removeprefix(kind))
            tables_by_suffix.setdefault(stem.removeprefix(kind).removeprefix("_"), {})[kind] = table
    # Views without a suffix join the sets of a file; of a set itself every table has pages.
    database.refuse_unreadable(f"{PREFIX}{kind}{suffix}" for kind in KINDS for suffix in sorted(suffixes))
    return {suffix: tables
            for suffix, tables in sorted(tables_by_suffix.items()) if any(kind in tables for kind in LONG)}


def _guids(database: Database, tables: Mapping[str, SqliteTable]) -> list[str | None]:
    """Return the guids of a set. Its long tables are searched only if the small ones or their ends hold more than one.
    """
    small = {guid for kind, table in tables.items() if kind not in (*LONG, "event", "timestamp", "string")
             for guid in _distinct_guids(database, table)}
    ends = {guid for kind in LONG if kind in tables for guid in _guids_at_ends(database, tables[kind])}
    if len(small | ends) <= 1:
        return [next(iter(small | ends), None)]
    guids = small | {guid for kind in LONG if kind in tables for guid in _distinct_guids(database, tables[kind])}
    return sorted(guids, key=lambda guid: guid or "")


def _distinct_guids(database: Database, table: SqliteTable) -> Iterator[str | None]:
    if "guid" in table:
        for (guid,) in database.rows(f"SELECT DISTINCT substr(guid, 1, 256) FROM {quoted(table.name)} NOT INDEXED"):
            yield guid if isinstance(guid, str) else None


def _guids_at_ends(database: Database, table: SqliteTable) -> Iterator[str | None]:
    if "guid" in table and table.rowid:
        for order in ("ASC", "DESC"):
            query = f"SELECT substr(guid, 1, 256) FROM {quoted(table.name)} ORDER BY {table.rowid} {order} LIMIT 1"
            for (guid,) in database.rows(query):
                yield guid if isinstance(guid, str) else None


def _read_agents(database: Database, source: RocpdSource, first: int) -> Iterator[RocpdAgent]:
    columns = ("id", "type", "type_index", "absolute_index", "name", "product_name", "extdata")
    for row in rows(database, source, "info_agent", *columns):
        if type(row["id"]) is int:
            gpu = row["type"] == "GPU"
            number = next((row[name] for name in ("type_index", "absolute_index", "id") if type(row[name]) is int), 0)
            device = rocm_agent.device(row | json_object(row["extdata"]), first + number if gpu else number)
            yield RocpdAgent(row["id"], gpu, device)
