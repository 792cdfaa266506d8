"""Rows of rocpd's long tables, streamed with the data of their events, timestamps and tracks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.profiler.formats import ranks
from aaco.profiler.formats.rocprofv3 import rocpd_schema
from aaco.profiler.formats.rocprofv3.rocm_labels import direction, domain
from aaco.profiler.formats.rocprofv3.rocpd_schema import RocpdSource, json_object
from aaco.profiler.io.columns import coded, titled
from aaco.profiler.io.lookup import PROCESS_IDS, Reference
from aaco.profiler.io.names import NamesById
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount, integers
from aaco.profiler.io.sqlite import LONGEST_NAME, ColumnBatch, Database, joined, quoted

PLACES = ("pid", "tid", "agent_id", "queue_id", "stream_id")
# The kind of a row of each long table, in the account of records.
RECORDS = {"kernel_dispatch": "kernel", "memory_copy": "copy", "memory_allocate": "allocation", "region": "region",
           "sample": "sample", "pmc_event": "counter", "arg": "argument"}
COPY_KINDS = ("unknown", "h2h", "h2d", "d2h", "d2d", "p2p", "memset")
LONGEST_WORD, LONGEST_CATEGORY, MOST_CATEGORIES = 64, 64, 200


class RocpdQuery(Struct, frozen=True):
    """SQL over one long table, and its columns' names and kinds in order."""

    kind: str
    sql: str
    columns: dict[str, str]


class RocpdRows:
    """One source's long tables.

    `left` holds the row ids, by kind, of records that became no row; `used` counts, by kind, the records of side tables
    that belong to a record of the file.
    """

    def __init__(self, database: Database, source: RocpdSource, account: RecordAccount, several: bool) -> None:
        self.database, self.source, self.account, self.several = database, source, account, several
        self.offset = source.number * PROCESS_IDS if several else 0
        self.left: dict[str, list[np.ndarray]] = {}
        self.used: Counter[str] = Counter()
        self._processes = self.reference("info_process", "pid")
        self._threads = self.reference("info_thread", "tid")
        gpus = {agent.id: agent.device.id if agent.gpu else None for agent in source.agents}
        self._devices = Reference(list(gpus), list(gpus.values()))
        self.gpus = Reference(list(gpus), [int(number is not None) for number in gpus.values()])
        self._tracks = {column: self.reference("track", column) for column in (*PLACES, "name_id")}
        placements = [ranks.of(json_object(process["environment"])) for process in source.processes]
        self._rank = placements[0][0] if several and len(placements) == 1 else None

    def reference(self, kind: str, column: str) -> Reference | None:
        """Return the values of ids of a small table; None if the source has no such table or column."""
        return rocpd_schema.reference(self.database, self.source, kind, column)

    def query(self, kind: str, *columns: str, words: Sequence[str] = (), events: Sequence[str] = (),
              message: bool = False, valued: bool = True) -> RocpdQuery:
        """Return a query for every row of a long table: its place, time, event, and the named columns.

        `words` are columns of text, `events` further columns of the event; `message` adds the JSON text of events that
        are markers; `valued=False` leaves out samples that have a value.
        """
        table = self.source.tables[kind]
        selected, joins = {"row": self.row("k", kind)}, list[str]()
        self.choose_times(kind, selected, joins)
        for name in (*PLACES, "track_id", *columns):
            if name in table:
                selected[name] = f"k.{quoted(table.columns[name])}"
        texts = {name: f"coalesce(substr(k.{quoted(table.columns[name])}, 1, {LONGEST_WORD}), '')"
                 for name in words if name in table}
        self._choose_event(kind, ("stack_id", "correlation_id", *events), message, selected, texts, joins)
        where = self.source.where("k", kind)
        if not valued and self._has_values():
            joins.append(f"LEFT JOIN (SELECT DISTINCT event_id FROM {self.source.table('pmc_event')}) p "
                         "ON p.event_id = k.event_id")
            where += " AND p.event_id IS NULL"
        sql = (f"SELECT {', '.join((*selected.values(), *texts.values()))} "
               f"FROM {self.source.table(kind)} k NOT INDEXED {' '.join(joins)} WHERE {where}")
        return RocpdQuery(kind, sql, dict.fromkeys(selected, "int") | dict.fromkeys(texts, "text"))

    def timed(self, kind: str, query: RocpdQuery) -> Iterator[tuple[ColumnBatch, int]]:
        """Yield batches of the rows that can be placed in time, and their number of rows; account for the others."""
        record = RECORDS[kind]
        self.account.saw(record, 0)  # the file records this kind, though perhaps none of it
        for batch in self.database.batches(query.sql, query.columns, self.source.tables[kind].name):
            batch.setdefault("end", batch["start"])
            fit = self.account.timed(record, batch["start"], batch["end"])
            if not fit.all():
                self.left.setdefault(kind, []).append(integers(batch["row"])[~fit])
                batch = batch.filter(fit)
            if batch.count:
                for name in PLACES:
                    if name not in batch:
                        batch[name] = self.track(batch, name)
                yield batch, batch.count

    def row(self, alias: str, kind: str) -> str:
        """Return the SQL of a long table's row id. Raise BadCapture."""
        table = self.source.tables[kind]
        if table.rowid is None:
            raise BadCapture(f"{self.database.path}: {table.name} has no row ids", "record it again with rocprofv3")
        return f"{alias}.{table.rowid}"

    def count(self, kind: str) -> int:
        """Return the number of this source's rows of the table."""
        table, condition = self.source.table(kind), self.source.where("t", kind)
        return int(self.database.value(f"SELECT sum(1) FROM {table} t NOT INDEXED WHERE {condition}") or 0)

    def kept(self, kind: str, row: np.ndarray) -> np.ndarray:
        """Return the mask of the rows that were not left out."""
        return ~np.isin(row, np.concatenate(self.left[kind])) if kind in self.left else np.ones(len(row), bool)

    def keys(self, rows: pa.Array, half: int | None = None) -> np.ndarray:
        """Return row ids as keys that are unique in the capture; `half` (0 or 1) separates the keys of two tables."""
        row_keys = self.database.keys(rows)
        return (row_keys if half is None else 2 * row_keys + half) + 2 * self.offset

    def place(self, batch: ColumnBatch, what: str) -> dict[str, Any]:
        """Return process and thread as the operating system numbers them, and the rank if the file holds several."""
        rank = {} if self._rank is None else {"rank": np.full(batch.count, self._rank)}
        return {"process_id": self._resolve(self._processes, batch["pid"], f"{what} name a process"),
                "thread_id": self._resolve(self._threads, batch["tid"], f"{what} name a thread"), **rank}

    def queue(self, batch: ColumnBatch) -> dict[str, Any]:
        """Return queue and stream."""
        return {"queue_id": batch["queue_id"], "stream_id": batch["stream_id"]}

    def device(self, agents: pa.Array, what: str) -> pa.Array:
        """Return the GPU's number; null if the agent is the host or unknown."""
        devices, dangling = self._devices.of(agents)
        self.account.trouble(f"{what} name an agent that is not in the file", dangling)
        return devices

    def linked(self, batch: ColumnBatch, what: str | None = None) -> dict[str, Any]:
        """Return the correlation id, and the id that the user pushed; 0 means none and becomes null.

        With `what`, report rows without a correlation id.
        """
        inner, outer = integers(batch["stack_id"]), integers(batch["correlation_id"])
        is_absent = (inner == ABSENT) | (inner == 0)
        if self.several:
            is_absent |= (inner < 0) | (inner >= PROCESS_IDS)
        if what:
            self.account.trouble(f"{what} have no correlation id, so no call can be found for them",
                                 int(is_absent.sum()))
        return {"correlation_id": pa.array(np.where(is_absent, 0, inner) + self.offset, mask=is_absent),
                "external_id": pa.array(outer, mask=(outer == ABSENT) | (outer == 0))}

    def track(self, batch: ColumnBatch, column: str) -> pa.Array:
        """Return the values of the rows' tracks."""
        reference = self._tracks[column]
        return ColumnBatch({}, batch.count)[column] if reference is None else reference.of(batch["track_id"])[0]

    @cached_property
    def strings(self) -> NamesById:
        """Return the file's strings by id."""
        return rocpd_schema.names(self.database, self.source, "string", "string")

    @cached_property
    def categories(self) -> NamesById:
        """Return the names of the events' categories by id."""
        has_table = self.source.has("info_category")
        return rocpd_schema.names(self.database, self.source, "info_category", "name") if has_table else self.strings

    def joined(self, kind: str, alias: str, on: str, *columns: str) -> str:
        """Return SQL that joins at most one row of a table by its id."""
        return joined(self.source.tables[kind], alias, "id", on, columns, self.source.where(alias, kind))

    def _resolve(self, reference: Reference | None, ids: pa.Array, what: str) -> pa.Array:
        if reference is None:
            return ids
        values, dangling = reference.of(ids)
        self.account.trouble(f"{what} that is not in the file", dangling)
        return values

    def choose_times(self, kind: str, selected: dict[str, str], joins: list[str]) -> None:
        """Add the SQL of the times of a kind of rows: columns of its table, or of one of timestamps. Raise BadCapture.
        """
        table = self.source.tables[kind]
        for name, column in (("start", "timestamp"),) if kind == "sample" else (("start", "start"), ("end", "end")):
            if column in table:
                selected[name] = f"k.{quoted(table.columns[column])}"
            elif f"{column}_id" in table and self.source.has("timestamp", "id", "value"):
                selected[name] = f"{name}_at.value"
                joins.append(self.joined("timestamp", f"{name}_at", f"k.{column}_id", "value"))
            else:
                raise BadCapture(f"{self.database.path}: {table.name} has no column {column}, nor {column}_id with a "
                                 "table of timestamps", "record it with a rocprofv3 whose rocpd is of version 3 or 4")

    def _choose_event(self, kind: str, columns: Sequence[str], message: bool, selected: dict[str, str],
                      texts: dict[str, str], joins: list[str]) -> None:
        if "event_id" not in self.source.tables[kind] or not self.source.has("event", "id"):
            return
        present = [name for name in (*columns, "extdata") if name in self.source.tables["event"]]
        if not present:
            return
        joins.append(self.joined("event", "e", "k.event_id", *present))
        selected |= {name: f"e.{name}" for name in present if name != "extdata"}
        markers = self._markers() if message and {"category_id", "extdata"} <= set(present) else ""
        if markers:
            texts["message"] = (f"CASE WHEN e.category_id IN ({markers}) THEN "
                                f"coalesce(CAST(substr(e.extdata, 1, {LONGEST_NAME}) AS TEXT), '') ELSE '' END")

    def _markers(self) -> str:
        """Return the ids of the categories that have events with a message, for SQL."""
        categories = self.categories
        ids = [key for key, name in zip(categories.ids, categories.names.to_pylist(), strict=True)
               if name and len(name) < LONGEST_CATEGORY and domain(name) == "marker"]
        return ", ".join(map(str, ids[:MOST_CATEGORIES]))

    def _has_values(self) -> bool:
        return self.source.has("pmc_event", "event_id") and \
            self.database.value(f"SELECT 1 FROM {self.source.table('pmc_event')} LIMIT 1") is not None


def domains(rows: RocpdRows, batch: ColumnBatch) -> pa.Array:
    """Return the domain of each call, by the category of its event."""
    categories = rows.categories
    category_rows = categories.rows(batch["category_id"])
    distinct_rows, codes = np.unique(category_rows, return_inverse=True)
    names = [domain(categories.names[row].as_py() or "") if row >= 0 else "" for row in distinct_rows.tolist()]
    is_named = np.array([bool(name) for name in names], bool)
    return coded(np.where(is_named[codes], codes, -1), pa.array(names, pa.string()))


def call_names(batch: ColumnBatch, names: NamesById, named: pa.Array) -> pa.Array:
    """Return the names of functions; of a marker, the message that the program gave it."""
    codes = names.rows(named)
    if "message" not in batch:
        return coded(codes, names.names)
    texts = batch["message"].dictionary_encode()
    messages = pa.array([_read_message(text) for text in texts.dictionary.to_pylist()], pa.string())
    return titled(messages.take(texts.indices), codes, names.names)


def copy_kinds(rows: RocpdRows, batch: ColumnBatch, named: pa.Array) -> pa.Array:
    """Return the direction of each copy, by the processors at its ends; if one is unknown, by its name."""
    source, _ = rows.gpus.of(batch["src_agent_id"])
    target, _ = rows.gpus.of(batch["dst_agent_id"])
    same = pc.fill_null(pc.equal(batch["src_agent_id"], batch["dst_agent_id"]), False)
    ends = integers(source) * 2 + integers(target) + 1
    ends[(integers(source) == ABSENT) | (integers(target) == ABSENT)] = 0
    ends[(ends == 4) & ~same.to_numpy(zero_copy_only=False)] = 5
    return coded(np.where(ends == 0, _directions(named), ends), pa.array(COPY_KINDS))


def _directions(named: pa.Array) -> np.ndarray:
    kinds = [COPY_KINDS.index(direction(name)) for name in named.dictionary.to_pylist()]
    codes: np.ndarray = np.array([*kinds, 0])[named.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return codes


def _read_message(text: str) -> str | None:
    message = json_object(text).get("message") if text else None
    return message if isinstance(message, str) and message else None
