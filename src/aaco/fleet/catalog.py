"""The catalog of a lake: which sessions it holds, in which files, and what was decided about them; one SQLite file.

Files of the lake are named by their content and never change. What a reader sees is decided only here, so that a kill
at any moment leaves the lake as it was before or after, and files that no row names are leftovers.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from aaco.core import files, transactions
from aaco.core.errors import BadBundle, UsageError
from aaco.fleet.lakes import open_store
from aaco.fleet.store import CatalogFile, Place

if TYPE_CHECKING:
    from aaco.fleet.facts import BundleFacts

LANDING = "landing"
FORMAT = 1
APPLICATION = 0x41434654  # "ACFT"
PATIENCE_S = 60.0
RESTORE = "restore the catalog, or ingest the bundles into another --lake"
SCHEMA = (
    "CREATE TABLE sources (sha256 TEXT PRIMARY KEY, session_id TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, facts TEXT NOT NULL, month TEXT NOT NULL, model TEXT, "
    "device TEXT, node TEXT, time_ns INTEGER NOT NULL, ingested_ns INTEGER NOT NULL, place TEXT NOT NULL) "
    "WITHOUT ROWID",  # place: landing, data, or dropped, which a retired session is after the next compaction
    "CREATE TABLE manifests (number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL)",
    "CREATE TABLE events (id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, kind TEXT NOT NULL, "
    "session_id TEXT NOT NULL, author TEXT NOT NULL, reason TEXT NOT NULL)",
)


def landing_file(sha256: str) -> str:
    """Return where in a lake the facts of this digest are until the next compaction."""
    return f"{LANDING}/{sha256}.parquet"


class LakeState(Struct, frozen=True):
    """What a reader sees: the manifest (None: nothing was compacted yet), the sessions in landing with the digests of
    their facts, and the retired sessions that files still hold."""

    manifest: str | None
    number: int
    pending: tuple[tuple[str, str], ...]
    retired: frozenset[str]


class Catalog:
    """An open catalog. Raise BadBundle for a damaged or newer file, StorageError where the disk refuses."""

    def __init__(self, file: CatalogFile, connection: sqlite3.Connection) -> None:
        self._file, self._connection = file, connection

    @classmethod
    @contextmanager
    def open(cls, lake: Place, create: bool = False, write: bool = False) -> Iterator[Self]:
        """Open the catalog of a lake. Raise NoBaseline where there is none and none may be made, UsageError where
        somebody else is to write it."""
        with (open_store(lake).catalog(create, write) as file, transactions.explained(file.name, RESTORE),
              closing(_connect(file, create)) as connection):
            yield cls(file, connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything inside the block or nothing, as the only writer; then others see it."""
        before = self._connection.total_changes
        with transactions.exclusive(self._connection):
            yield
        if self._connection.total_changes > before:
            self._file.publish(self._connection)

    def knows(self, source: str) -> bool:
        """Return whether a bundle of these very bytes was taken in."""
        return bool(self._connection.execute("SELECT 1 FROM sources WHERE sha256 = ?", [source]).fetchone())

    def add(self, source: str, facts: BundleFacts) -> bool:
        """Enter a session that has its facts in landing; return whether it is new. Raise UsageError where a session of
        this id with other facts is here."""
        row = self._connection.execute("SELECT facts FROM sessions WHERE session_id = ?", [facts.session_id]).fetchone()
        if row and row[0] != facts.sha256 and row[0] not in facts.earlier_digests():
            raise UsageError(f"session {facts.session_id} is in the lake with other facts",
                             "two bundles claim one id: compare their digests (aaco bundle verify)")
        self._connection.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", [source, facts.session_id])
        if not row:
            self._connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'landing')", [
                facts.session_id, facts.sha256, facts.month, facts.model, facts.device, facts.node, facts.time_ns,
                time.time_ns()])
        return not row

    def state(self) -> LakeState:
        """Return what a reader sees now, of one moment."""
        self._connection.execute("BEGIN")
        try:
            number, manifest = self._connection.execute(
                "SELECT number, sha256 FROM manifests ORDER BY number DESC LIMIT 1").fetchone() or (0, None)
            pending = self._connection.execute(
                "SELECT session_id, facts FROM sessions WHERE place = 'landing' ORDER BY session_id").fetchall()
            retired = self._connection.execute("SELECT session_id FROM events JOIN sessions USING (session_id) "
                                               "WHERE kind = 'retire' AND place <> 'dropped'").fetchall()
            return LakeState(manifest, number, tuple(pending), frozenset(row[0] for row in retired))
        finally:
            self._connection.execute("COMMIT")

    def sessions(self) -> list[sqlite3.Row]:
        """Return the row of every session that was not retired, by id."""
        cursor = self._connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute("SELECT * FROM sessions WHERE session_id NOT IN (SELECT session_id FROM events "
                              "WHERE kind = 'retire') ORDER BY session_id").fetchall()

    def commit(self, before: LakeState, manifest: str) -> None:
        """Make a manifest the present one, in place of the landing files of `before`. Raise UsageError where another
        compaction was faster: nothing is lost then."""
        with self.transaction():
            if self.number() != before.number:
                raise UsageError("another compaction ended first", "aaco fleet compact  # if it is still needed")
            self._connection.execute("INSERT INTO manifests VALUES (?, ?)", [before.number + 1, manifest])
            self._place("data", (session_id for session_id, _ in before.pending))
            self._place("dropped", before.retired)

    def _place(self, place: str, session_ids: Iterable[str]) -> None:
        self._connection.executemany("UPDATE sessions SET place = ? WHERE session_id = ?",
                                     [(place, session_id) for session_id in session_ids])

    def number(self) -> int:
        """Return the number of the present manifest, 0 where there is none."""
        return int(self._connection.execute("SELECT coalesce(max(number), 0) FROM manifests").fetchone()[0])

    def compacted(self) -> set[str]:
        """Return the digests of the facts that compacted files hold, or that were dropped."""
        return {row[0] for row in self._connection.execute("SELECT facts FROM sessions WHERE place <> 'landing'")}

    def retire(self, session_ids: Sequence[str], author: str, reason: str) -> int:
        """Record that sessions are to be left out from now on; return how many were not retired before."""
        with self.transaction():
            present = {row[0] for row in self._connection.execute("SELECT session_id FROM sessions")}
            if unknown := sorted(set(session_ids) - present):
                raise UsageError(f"no session {unknown[0]} in the lake", "aaco fleet regressions --json names sessions")
            retired = {row[0] for row in self._connection.execute("SELECT session_id FROM events")}
            fresh = sorted(set(session_ids) - retired)
            self._connection.executemany("INSERT INTO events VALUES (NULL, ?, 'retire', ?, ?, ?)", [
                (time.time_ns(), session_id, author, reason) for session_id in fresh])
        return len(fresh)


def _connect(file: CatalogFile, create: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(file.path, timeout=PATIENCE_S, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    if create and not _has_tables(connection):
        with files.locked(file.path.parent):
            _make(connection)
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0]
                            for name in ("application_id", "user_version"))
    if application != APPLICATION or version > FORMAT:
        connection.close()
        raise BadBundle(f"{file.name}: " + (f"catalog format {version}; this version of aaco reads up to {FORMAT}"
                                       if application == APPLICATION else "no catalog of a fleet"),
                        "upgrade aaco on this machine, or name another --lake")
    return connection


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables where there are none; of two that come at once, one does.

    The caller holds a lock: SQLite refuses two that turn to a write-ahead log at once, without waiting for either.
    """
    connection.execute("PRAGMA journal_mode = WAL")
    with transactions.exclusive(connection):
        if not _has_tables(connection):
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
