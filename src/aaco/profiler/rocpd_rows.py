"""Rows of rocpd's long tables, streamed with what their events, timestamps and tracks say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadCapture
from aaco.profiler import ranks, rocpd_schema
from aaco.profiler.columns import coded, titled
from aaco.profiler.ledger import ABSENT, Ledger, integers
from aaco.profiler.lookup import PROCESS_IDS, Reference
from aaco.profiler.names import Names
from aaco.profiler.rocm_labels import direction, domain
from aaco.profiler.rocpd_schema import Source, json_object
from aaco.profiler.sqlite import LONGEST_NAME, Batch, Database, joined, quoted

PLACES = ("pid", "tid", "agent_id", "queue_id", "stream_id")
# What a row of each long table is, in the account of records.
RECORDS = {"kernel_dispatch": "kernel", "memory_copy": "copy", "memory_allocate": "allocation", "region": "region",
           "sample": "sample", "pmc_event": "counter", "arg": "argument"}
COPY_KINDS = ("unknown", "h2h", "h2d", "d2h", "d2d", "p2p", "memset")
LONGEST_WORD, LONGEST_CATEGORY, MOST_CATEGORIES = 64, 64, 200


@dataclass(frozen=True)
class Query:
    """SQL over one long table, and its columns' names and kinds in order."""

    kind: str
    sql: str
    columns: dict[str, str]


class Rows:
    """One source's long tables.

    `left` holds the row ids, by kind, of records that became no row; `used` counts, by kind, the records of side tables
    whose record was found.
    """

    def __init__(self, database: Database, source: Source, ledger: Ledger, several: bool) -> None:
        self.database, self.source, self.ledger, self.several = database, source, ledger, several
        self.offset = source.number * PROCESS_IDS if several else 0
        self.left: dict[str, list[np.ndarray]] = {}
        self.used: Counter[str] = Counter()
        self._processes = self.reference("info_process", "pid")
        self._threads = self.reference("info_thread", "tid")
        gpus = {agent.id: agent.device.id if agent.gpu else None for agent in source.agents}
        self._devices = Reference(list(gpus), list(gpus.values()))
        self.gpus = Reference(list(gpus), [int(number is not None) for number in gpus.values()])
        self._tracks = {column: self.reference("track", column) for column in (*PLACES, "name_id")}
        told = [ranks.of(json_object(process["environment"])) for process in source.processes]
        self._rank = told[0][0] if several and len(told) == 1 else None

    def reference(self, kind: str, column: str) -> Reference | None:
        """What ids of a small table stand for; None where the source has no such table or column."""
        return rocpd_schema.reference(self.database, self.source, kind, column)

    def query(self, kind: str, *columns: str, words: Sequence[str] = (), events: Sequence[str] = (),
              message: bool = False, valued: bool = True) -> Query:
        """A query for every row of a long table: its place, time, event, and the columns named.

        `words` are columns of text, `events` further columns of the event; `message` adds the JSON text of events that
        are markers; `valued=False` leaves out samples that have a value.
        """
        table = self.source.tables[kind]
        chosen, joins = {"row": self.row("k", kind)}, list[str]()
        self.choose_times(kind, chosen, joins)
        for name in (*PLACES, "track_id", *columns):
            if name in table:
                chosen[name] = f"k.{quoted(table.columns[name])}"
        texts = {name: f"coalesce(substr(k.{quoted(table.columns[name])}, 1, {LONGEST_WORD}), '')"
                 for name in words if name in table}
        self._choose_event(kind, ("stack_id", "correlation_id", *events), message, chosen, texts, joins)
        where = self.source.where("k", kind)
        if not valued and self._any_values():
            joins.append(f"LEFT JOIN (SELECT DISTINCT event_id FROM {self.source.table('pmc_event')}) p "
                         "ON p.event_id = k.event_id")
            where += " AND p.event_id IS NULL"
        sql = (f"SELECT {', '.join((*chosen.values(), *texts.values()))} "
               f"FROM {self.source.table(kind)} k NOT INDEXED {' '.join(joins)} WHERE {where}")
        return Query(kind, sql, dict.fromkeys(chosen, "int") | dict.fromkeys(texts, "text"))

    def timed(self, kind: str, query: Query) -> Iterator[tuple[Batch, int]]:
        """The batches of rows that can be placed in time, and how many rows each has; the others are accounted for."""
        record = RECORDS[kind]
        self.ledger.saw(record, 0)  # the file records this kind, though perhaps none of it
        for batch in self.database.batches(query.sql, query.columns, self.source.tables[kind].name):
            batch.setdefault("end", batch["start"])
            fit = self.ledger.timed(record, batch["start"], batch["end"])
            if not fit.all():
                self.left.setdefault(kind, []).append(integers(batch["row"])[~fit])
                batch = batch.filter(fit)
            if batch.count:
                for name in PLACES:
                    if name not in batch:
                        batch[name] = self.track(batch, name)
                yield batch, batch.count

    def row(self, alias: str, kind: str) -> str:
        """The SQL of a long table's row id. Raises BadCapture."""
        table = self.source.tables[kind]
        if table.rowid is None:
            raise BadCapture(f"{self.database.path}: {table.name} has no row ids", "record it again with rocprofv3")
        return f"{alias}.{table.rowid}"

    def count(self, kind: str) -> int:
        """How many rows of the table are this source's."""
        table, here = self.source.table(kind), self.source.where("t", kind)
        return int(self.database.value(f"SELECT sum(1) FROM {table} t NOT INDEXED WHERE {here}") or 0)

    def kept(self, kind: str, row: np.ndarray) -> np.ndarray:
        """Which of the rows were not left out (a mask)."""
        return ~np.isin(row, np.concatenate(self.left[kind])) if kind in self.left else np.ones(len(row), bool)

    def keys(self, rows: pa.Array, half: int | None = None) -> np.ndarray:
        """Row ids as keys that are unique in the capture; `half` (0 or 1) keeps two tables' keys apart."""
        found = self.database.keys(rows)
        return (found if half is None else 2 * found + half) + 2 * self.offset

    def when(self, batch: Batch) -> dict[str, Any]:
        """The columns of time."""
        start, end = integers(batch["start"]), integers(batch["end"])
        return {"t_start_ns": start, "t_end_ns": end, "dur_ns": end - start}

    def place(self, batch: Batch, what: str) -> dict[str, Any]:
        """Process and thread as the operating system numbers them, and the rank where the file holds several."""
        rank = {} if self._rank is None else {"rank": np.full(batch.count, self._rank)}
        return {"process_id": self._resolve(self._processes, batch["pid"], f"{what} name a process"),
                "thread_id": self._resolve(self._threads, batch["tid"], f"{what} name a thread"), **rank}

    def queue(self, batch: Batch) -> dict[str, Any]:
        """Queue and stream."""
        return {"queue_id": batch["queue_id"], "stream_id": batch["stream_id"]}

    def device(self, agents: pa.Array, what: str) -> pa.Array:
        """The GPU's number; null where the agent is the host or unknown."""
        found, dangling = self._devices.of(agents)
        self.ledger.trouble(f"{what} name an agent that is not in the file", dangling)
        return found

    def linked(self, batch: Batch, what: str | None = None) -> dict[str, Any]:
        """The correlation id, and what the user pushed; 0 means none of either and is null.

        Given `what`, rows without a correlation id are reported.
        """
        inner, outer = integers(batch["stack_id"]), integers(batch["correlation_id"])
        none = (inner == ABSENT) | (inner == 0)
        if self.several:
            none |= (inner < 0) | (inner >= PROCESS_IDS)
        if what:
            self.ledger.trouble(f"{what} have no correlation id, so no call can be found for them", int(none.sum()))
        return {"correlation_id": pa.array(np.where(none, 0, inner) + self.offset, mask=none),
                "external_id": pa.array(outer, mask=(outer == ABSENT) | (outer == 0))}

    def track(self, batch: Batch, column: str) -> pa.Array:
        """What the row's track says."""
        known = self._tracks[column]
        return Batch({}, batch.count)[column] if known is None else known.of(batch["track_id"])[0]

    @cached_property
    def strings(self) -> Names:
        """The file's strings by id."""
        return rocpd_schema.names(self.database, self.source, "string", "string")

    @cached_property
    def categories(self) -> Names:
        """Names of the events' categories by id."""
        found = self.source.has("info_category")
        return rocpd_schema.names(self.database, self.source, "info_category", "name") if found else self.strings

    def joined(self, kind: str, alias: str, on: str, *columns: str) -> str:
        """SQL that joins at most one row of a table by its id."""
        return joined(self.source.tables[kind], alias, "id", on, columns, self.source.where(alias, kind))

    def _resolve(self, known: Reference | None, ids: pa.Array, what: str) -> pa.Array:
        if known is None:
            return ids
        found, dangling = known.of(ids)
        self.ledger.trouble(f"{what} that is not in the file", dangling)
        return found

    def choose_times(self, kind: str, chosen: dict[str, str], joins: list[str]) -> None:
        """Add where the times of a kind of rows stand: in its own table, or in one of timestamps. Raises BadCapture."""
        table = self.source.tables[kind]
        for name, column in (("start", "timestamp"),) if kind == "sample" else (("start", "start"), ("end", "end")):
            if column in table:
                chosen[name] = f"k.{quoted(table.columns[column])}"
            elif f"{column}_id" in table and self.source.has("timestamp", "id", "value"):
                chosen[name] = f"{name}_at.value"
                joins.append(self.joined("timestamp", f"{name}_at", f"k.{column}_id", "value"))
            else:
                raise BadCapture(f"{self.database.path}: {table.name} has no column {column}, nor {column}_id with a "
                                 "table of timestamps", "record it with a rocprofv3 whose rocpd is of version 3 or 4")

    def _choose_event(self, kind: str, columns: Sequence[str], message: bool, chosen: dict[str, str],
                      texts: dict[str, str], joins: list[str]) -> None:
        if "event_id" not in self.source.tables[kind] or not self.source.has("event", "id"):
            return
        known = [name for name in (*columns, "extdata") if name in self.source.tables["event"]]
        if not known:
            return
        joins.append(self.joined("event", "e", "k.event_id", *known))
        chosen |= {name: f"e.{name}" for name in known if name != "extdata"}
        markers = self._markers() if message and {"category_id", "extdata"} <= set(known) else ""
        if markers:
            texts["message"] = (f"CASE WHEN e.category_id IN ({markers}) THEN "
                                f"coalesce(CAST(substr(e.extdata, 1, {LONGEST_NAME}) AS TEXT), '') ELSE '' END")

    def _markers(self) -> str:
        """Ids of the categories whose events carry a message, for SQL."""
        found = self.categories
        ids = [key for key, name in zip(found.ids, found.names.to_pylist(), strict=True)
               if name and len(name) < LONGEST_CATEGORY and domain(name) == "marker"]
        return ", ".join(map(str, ids[:MOST_CATEGORIES]))

    def _any_values(self) -> bool:
        return self.source.has("pmc_event", "event_id") and \
            self.database.value(f"SELECT 1 FROM {self.source.table('pmc_event')} LIMIT 1") is not None


def domains(rows: Rows, batch: Batch) -> pa.Array:
    """The domain of each call, by the category of its event."""
    known = rows.categories
    at = known.rows(batch["category_id"])
    used, codes = np.unique(at, return_inverse=True)
    names = [domain(known.names[row].as_py() or "") if row >= 0 else "" for row in used.tolist()]
    told = np.array([bool(name) for name in names], bool)
    return coded(np.where(told[codes], codes, -1), pa.array(names, pa.string()))


def call_names(batch: Batch, names: Names, named: pa.Array) -> pa.Array:
    """Functions' names; of a marker, the message that the program gave it."""
    codes = names.rows(named)
    if "message" not in batch:
        return coded(codes, names.names)
    found = batch["message"].dictionary_encode()
    messages = pa.array([_message(text) for text in found.dictionary.to_pylist()], pa.string())
    return titled(messages.take(found.indices), codes, names.names)


def copy_kinds(rows: Rows, batch: Batch, named: pa.Array) -> pa.Array:
    """The direction of each copy, by the processors at its ends; where one is unknown, by its name."""
    source, _ = rows.gpus.of(batch["src_agent_id"])
    target, _ = rows.gpus.of(batch["dst_agent_id"])
    same = pc.fill_null(pc.equal(batch["src_agent_id"], batch["dst_agent_id"]), False)
    ends = integers(source) * 2 + integers(target) + 1
    ends[(integers(source) == ABSENT) | (integers(target) == ABSENT)] = 0
    ends[(ends == 4) & ~same.to_numpy(zero_copy_only=False)] = 5
    return coded(np.where(ends == 0, _directions(named), ends), pa.array(COPY_KINDS))


def _directions(named: pa.Array) -> np.ndarray:
    found = [COPY_KINDS.index(direction(name)) for name in named.dictionary.to_pylist()]
    codes: np.ndarray = np.array([*found, 0])[named.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return codes


def _message(text: str) -> str | None:
    found = json_object(text).get("message") if text else None
    return found if isinstance(found, str) and found else None
