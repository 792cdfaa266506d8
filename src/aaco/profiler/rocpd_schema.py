"""What a rocpd database holds beside its long tables: which tables belong together, and its processes, agents, names.

A file may hold several sets of tables, one for each process that recorded into it, told apart by what follows the
tables' common names (`rocpd_string_<guid with _>`, in older files without the first `_`, or nothing); and one set may
hold several processes, told apart by the column guid. A `Source` is one process of one set: ids mean something only in
it. Schema: rocm-systems, projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql (version 3), and
version 4, in which rows name a track and two timestamps instead of their process, queue, start and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aaco.core.errors import BadCapture
from aaco.profiler import rocm_agent
from aaco.profiler.capture import Device
from aaco.profiler.lookup import Reference
from aaco.profiler.names import Names, read
from aaco.profiler.sqlite import Database, Table, quoted

PREFIX = "rocpd_"
LONG = ("kernel_dispatch", "memory_copy", "memory_allocate", "region", "sample", "pmc_event", "arg")
KINDS = (*LONG, "info_agent", "info_node", "info_process", "info_thread", "info_pmc", "info_kernel_symbol",
         "info_category", "event", "string", "track", "timestamp", "metadata")
MOST_PROCESSES = 4096


@dataclass(frozen=True)
class Agent:
    """A processor: its id in the source, whether it is a GPU, its number among the GPUs of its node."""

    id: int
    gpu: bool
    device: Device


@dataclass
class Source:
    """One recording process: the tables of its set by kind, and the guid its rows carry if others share the set."""

    number: int
    tables: Mapping[str, Table]
    guid: str | None
    shared: bool
    processes: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)

    def has(self, kind: str, *columns: str) -> bool:
        """Whether the set has the table, with these columns."""
        return kind in self.tables and all(column in self.tables[kind] for column in columns)

    def where(self, alias: str, kind: str) -> str:
        """The SQL condition that a table's row is of this source; true for every row where the set is not shared."""
        if not self.shared or "guid" not in self.tables[kind]:
            return "1"
        return f"{alias}.guid IS {literal(self.guid)}"

    def table(self, kind: str) -> str:
        """The table's name in SQL."""
        return quoted(self.tables[kind].name)


def literal(text: str | None) -> str:
    """An SQL string, or NULL."""
    return "NULL" if text is None else "'" + text.replace("\0", "").replace("'", "''") + "'"


def sources(database: Database) -> list[Source]:
    """Every recording process of the file, in the order of its tables. Raises BadCapture.

    GPUs keep the number they have among those of their node; a second node's numbers begin where the first's end.
    """
    found: list[Source] = []
    for tables in _sets(database).values():
        guids = _guids(database, tables)
        if len(found) + len(guids) > MOST_PROCESSES:
            raise BadCapture(f"{database.path}: more than {MOST_PROCESSES} processes in one file", "import them apart")
        found += [Source(len(found) + at, tables, guid, len(guids) > 1) for at, guid in enumerate(guids)]
    first: dict[str, int] = {}
    free = 0
    for source in found:
        source.nodes = rows(database, source, "info_node", "id", "hostname", "machine_id", "release")
        source.processes = rows(database, source, "info_process", "id", "pid", "ppid", "start", "end", "command",
                                "environment")
        node = str(source.nodes[0]["machine_id"]) if source.nodes else ""
        source.agents = list(_agents(database, source, first.setdefault(node, free)))
        free = max([free, *(agent.device.id + 1 for agent in source.agents if agent.gpu)])
    return found


def rows(database: Database, source: Source, kind: str, *columns: str) -> list[dict[str, Any]]:
    """The source's rows of a small table; a column that the table lacks is None in each."""
    if kind not in source.tables:
        return []
    table = source.tables[kind]
    chosen = ", ".join(f"t.{quoted(table.columns[name])}" if name in table else "NULL" for name in columns)
    query = f"SELECT {chosen} FROM {source.table(kind)} t NOT INDEXED WHERE {source.where('t', kind)}"
    return [dict(zip(columns, row, strict=True)) for row in database.rows(query)]


def reference(database: Database, source: Source, kind: str, column: str) -> Reference | None:
    """What ids into a small table stand for, or None where the set has no such table."""
    if not source.has(kind, "id", column):
        return None
    found = [row for row in rows(database, source, kind, "id", column) if type(row["id"]) is int]
    return Reference([row["id"] for row in found],
                     [row[column] if type(row[column]) is int else None for row in found])


def names(database: Database, source: Source, kind: str, *columns: str) -> Names:
    """Names by id: in each row the first of the columns that holds text."""
    table = source.tables.get(kind)
    return read(database, table, columns, source.where("t", kind) if table else "1")


def json_object(text: Any) -> dict[str, Any]:
    """The JSON object in a column, empty where it holds none."""
    if not isinstance(text, str):
        return {}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _sets(database: Database) -> dict[str, dict[str, Table]]:
    """The tables of each set by kind. A set without any long table holds nothing and is not one."""
    found: dict[str, dict[str, Table]] = {}
    for name, table in database.tables.items():
        rest = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        kind = max((kind for kind in KINDS if rest.startswith(kind)), key=len, default=None)
        if kind:
            found.setdefault(rest.removeprefix(kind).removeprefix("_"), {})[kind] = table
    return {suffix: tables for suffix, tables in sorted(found.items()) if any(kind in tables for kind in LONG)}


def _guids(database: Database, tables: Mapping[str, Table]) -> list[str | None]:
    """The guids of a set. Its long tables are searched only if the small ones or their ends hold more than one."""
    small = {guid for kind, table in tables.items() if kind not in (*LONG, "event", "timestamp", "string")
             for guid in _distinct(database, table)}
    ends = {guid for kind in LONG if kind in tables for guid in _ends(database, tables[kind])}
    if len(small | ends) <= 1:
        return [next(iter(small | ends), None)]
    every = small | {guid for kind in LONG if kind in tables for guid in _distinct(database, tables[kind])}
    return sorted(every, key=lambda guid: guid or "")


def _distinct(database: Database, table: Table) -> Iterator[str | None]:
    if "guid" in table:
        for (guid,) in database.rows(f"SELECT DISTINCT substr(guid, 1, 256) FROM {quoted(table.name)} NOT INDEXED"):
            yield guid if isinstance(guid, str) else None


def _ends(database: Database, table: Table) -> Iterator[str | None]:
    if "guid" in table and table.rowid:
        for order in ("ASC", "DESC"):
            query = f"SELECT substr(guid, 1, 256) FROM {quoted(table.name)} ORDER BY {table.rowid} {order} LIMIT 1"
            for (guid,) in database.rows(query):
                yield guid if isinstance(guid, str) else None


def _agents(database: Database, source: Source, first: int) -> Iterator[Agent]:
    columns = ("id", "type", "type_index", "absolute_index", "name", "product_name", "extdata")
    for row in rows(database, source, "info_agent", *columns):
        if type(row["id"]) is int:
            gpu = row["type"] == "GPU"
            number = next((row[name] for name in ("type_index", "absolute_index", "id") if type(row[name]) is int), 0)
            known = rocm_agent.device(row | json_object(row["extdata"]), first + number if gpu else number)
            yield Agent(row["id"], gpu, known)
