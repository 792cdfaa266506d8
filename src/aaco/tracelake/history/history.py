"""The history of measurements: raw values per process, never changed, in one SQLite file that many may write at once.

What is in it are facts (samples, and the documents of the sessions they come from) and, as events, statements about
them: which sessions a baseline is made of, which shifts are accepted and why, where a branch began. Nothing is ever
updated or deleted; the state of today is what the events come to. Every row carries a checksum, because SQLite has
none: a value that a bad disk changed must not look like a measurement. docs/decisions/0006-history.md says why SQLite.
"""

from __future__ import annotations

import math
import os
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from aaco.core import files, transactions
from aaco.core.errors import BadBundle, NoBaseline, StorageError, UsageError
from aaco.tracelake.history import history_tables
from aaco.tracelake.history.history_tables import APPLICATION, FORMAT, SCHEMA

NAME = "history.db"
PATIENCE_S = 60.0  # how long a writer waits for its turn: a turn is one transaction, milliseconds
LONGEST = 4096  # characters of a name
TIMES = ("ns", "us", "ms", "s")
AHEAD_NS = 86_400 * 10**9  # a clock may be a time zone off, not more
Direction = Literal["lower_is_better", "higher_is_better"]


class Key(Struct, frozen=True, order=True):
    """What may be compared over time. An empty machine or config was not recorded, as in an import."""

    benchmark: str
    metric: str
    machine: str
    config: str


class Sample(Struct, frozen=True):
    """One process's value of one metric: the unit of replication. time_ns: of the measurement, since the epoch."""

    key: Key
    session_id: str
    process: int
    value: float
    unit: str
    direction: Direction
    time_ns: int
    iterations: int
    commit: str | None = None
    branch: str | None = None
    environment: str | None = None
    source: str = "session"


class Accepted(Struct, frozen=True):
    """An accepted shift of a key's level: from this session on the mean is different."""

    session_id: str
    author: str
    reason: str
    time_ns: int


class Pinned(Struct, frozen=True):
    """The sessions of a name, in the order they were pinned; `version` rises when it is replaced."""

    name: str
    sessions: tuple[str, ...]
    version: int
    created_ns: int
    updated_ns: int


class BranchStart(Struct, frozen=True):
    """Where a branch began: the commit its history goes back to, and its branch (None: any)."""

    branch: str
    commit: str
    parent: str | None


class History:
    """The store. Every method is one transaction, so a kill leaves only whole ones.

    Raises BadBundle for a damaged or newer file, StorageError where the disk or another writer refuses, UsageError for
    what cannot be stored.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, create: bool = True) -> Self:
        """The store at this path, or in this folder under its usual name; made where there is none.

        Raises NoBaseline where there is none and none may be made.
        """
        path = path / NAME if files.is_folder(path) or path.suffix != ".db" else path
        if not files.is_file(path):
            if not create:
                raise NoBaseline(f"no history of measurements: {path} does not exist",
                                 "aaco baseline save NAME SESSION; aaco history add SESSION")
            _make(path)
        with transactions.explained(path, _restore(path)):
            connection = _connect(path)
            try:
                _require_ours(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything inside the block or nothing, with exclusive write access."""
        if self._connection.in_transaction:
            yield
            return
        with transactions.explained(self.path, _restore(self.path)), transactions.exclusive(self._connection):
            yield

    def append(self, samples: Iterable[Sample], documents: Mapping[str, str] | None = None) -> int:
        """Add samples and, by session, the documents they come from; how many samples were new.

        The same sample twice is once. Raises UsageError for a value that cannot be (none of the samples is then
        added), and for one that contradicts what is there: raw values never change.
        """
        listed = list(samples)
        for sample in listed:
            _require_possible(sample)
        with self.transaction():
            numbers = {key: self._number(key, unit, direction) for key, unit, direction in
                       {(sample.key, sample.unit, sample.direction): None for sample in listed}}
            rows = [_row(numbers[sample.key], sample) for sample in listed]
            before = self._connection.total_changes
            self._connection.executemany(f"INSERT OR IGNORE INTO samples VALUES ({_marks(rows)})", rows)
            added = self._connection.total_changes - before
            if added < len(rows):
                self._refuse_contradictions(rows)
            for session_id, document in (documents or {}).items():
                self._connection.execute("INSERT OR IGNORE INTO documents VALUES (?, ?, ?)",
                                         _checked(session_id, document))
        return added

    def keys(self) -> list[Key]:
        """Every key that has samples, in order."""
        return sorted(Key(*row[1:5]) for row in self._rows("SELECT * FROM keys"))

    def unit(self, key: Key) -> tuple[str, Direction]:
        """The unit of a key's values, and which of them are better. Raises UsageError for an unknown key."""
        row = self._key_row(key)
        return row[5], row[6]

    def samples(self, key: Key, branch: str | None = None) -> pa.Table:
        """A key's samples in time order (history_tables.SAMPLES).

        branch: only this branch's, after those up to its start, if that is recorded.
        """
        rows = self._rows("SELECT * FROM samples WHERE key = ? ORDER BY time_ns, session_id, process",
                          [self._key_row(key)[0]])
        table = history_tables.samples(rows)
        return table if branch is None else history_tables.of_branch(table, branch, self.branch_starts().get(branch))

    def sessions(self, key: Key, branch: str | None = None) -> pa.Table:
        """A key's sessions in time order, one row each (history_tables.SESSIONS)."""
        return history_tables.sessions(self.samples(key, branch))

    def set_back_ns(self) -> int:
        """Return by how much the writers' clock was set back, ns, as far as it shows; 0 if nothing shows it.

        It shows if an entry of the log, which is in the order of writing, is earlier than one before it, or if
        something was measured later than now. Sessions before and after may then be in the wrong order.
        """
        logged = [row[1] for row in self._rows("SELECT * FROM events ORDER BY id")]
        latest, = self._connection_rows("SELECT max(time_ns) FROM samples")[0]
        return max([backward_ns(logged), 0 if latest is None else latest - time.time_ns()])

    def document(self, session_id: str) -> str | None:
        """The document that a session came with."""
        rows = self._rows("SELECT * FROM documents WHERE session_id = ?", [session_id])
        return rows[0][1] if rows else None

    def holds(self, session_id: str) -> bool:
        """Whether any sample or document of this session is here."""
        matches = self._connection_rows("SELECT 1 FROM documents WHERE session_id = ?1 UNION ALL "
                                        "SELECT 1 FROM samples WHERE session_id = ?1 LIMIT 1", [session_id])
        return bool(matches)

    def pin(self, name: str, sessions: Sequence[str]) -> None:
        """Add sessions to a name. Raise UsageError for one that is not here."""
        with self.transaction():
            for session_id in dict.fromkeys(sessions):
                if not self.holds(session_id):
                    raise UsageError(f"session {session_id} is not in {self.path}", f"aaco history add {session_id}")
                self._say("pin", name, session_id=session_id)

    def promote(self, name: str, sessions: Sequence[str]) -> None:
        """Replace the sessions of a name: its next version."""
        with self.transaction():
            if self.pins(name):
                self._say("promote", name)
            self.pin(name, sessions)

    def expire(self, name: str, sessions: Sequence[str] | None = None) -> None:
        """Remove these sessions, or all, from a name. Their samples stay."""
        with self.transaction():
            held = self.pinned(name)
            if unknown := [session for session in sessions or () if session not in held.sessions]:
                raise UsageError(f"baseline {name} holds no session {unknown[0]}", "aaco baseline list")
            for session_id in held.sessions if sessions is None else sessions:
                self._say("expire", name, session_id=session_id)

    def pinned(self, name: str) -> Pinned:
        """Return the sessions of a name. Raise NoBaseline if it has none."""
        pins = self.pins(name)
        if not pins:
            raise NoBaseline(f"no baseline {name!r} in {self.path}",
                             f"aaco baseline list, or aaco baseline save {name} SESSION")
        return pins[name]

    def pins(self, only: str | None = None) -> dict[str, Pinned]:
        """Return the sessions of every name that has any, or of one: its events replayed in order."""
        rows = self._rows("SELECT * FROM events WHERE kind IN ('pin', 'promote', 'expire') AND ifnull(name = ?1, 1) "
                          "ORDER BY id", [only])
        pins: dict[str, Pinned] = {}
        for _, time_ns, kind, name, session_id, *_ in rows:
            was = pins.get(name, Pinned(name, (), 1, time_ns, time_ns))
            remaining = () if kind == "promote" else tuple(pin for pin in was.sessions if pin != session_id)
            kept = was.sessions if kind == "pin" and session_id in was.sessions else (
                (*remaining, session_id) if kind == "pin" else remaining)
            pins[name] = Pinned(name, kept, was.version + (kind == "promote"), was.created_ns, time_ns)
        return {name: pinned for name, pinned in pins.items() if pinned.sessions}

    def accept(self, key: Key, session_id: str, author: str, reason: str) -> None:
        """From this session on the key's level is another one, and that is meant: the mean moves, the spread stays."""
        if not author.strip() or not reason.strip():
            raise UsageError("an accepted shift needs who accepts it and why", "--author NAME --reason TEXT")
        number = self._key_row(key)[0]
        with self.transaction():
            if not self._connection_rows("SELECT 1 FROM samples WHERE key = ? AND session_id = ? LIMIT 1",
                                         [number, session_id]):
                raise UsageError(f"{key.benchmark} {key.metric} has no session {session_id}", "aaco history sessions")
            self._say("accept", key=number, session_id=session_id, author=author, text=reason)

    def accepted(self, key: Key) -> list[Accepted]:
        """The shifts that were accepted of this key, in the order they were."""
        rows = self._rows("SELECT * FROM events WHERE kind = 'accept' AND key = ? ORDER BY id", [self._key_row(key)[0]])
        return [Accepted(row[4], row[6], row[7], row[1]) for row in rows]

    def branch_start(self, branch: str, commit: str, parent: str | None = None) -> None:
        """The branch began at this commit (of the parent branch): what was measured up to it is its history, too."""
        if not branch or not commit:
            raise UsageError("a branch's start needs the branch and a commit", "aaco history branch NAME COMMIT")
        with self.transaction():
            self._say("branch_start", branch, author=parent, text=commit)

    def branch_starts(self) -> dict[str, BranchStart]:
        """Return the last recorded start of each branch."""
        rows = self._rows("SELECT * FROM events WHERE kind = 'branch_start' ORDER BY id")
        return {row[3]: BranchStart(row[3], row[7], row[6]) for row in rows}

    def _say(self, kind: str, name: str | None = None, session_id: str | None = None, key: int | None = None,
             author: str | None = None, text: str | None = None) -> None:
        for word in (name, session_id, author, text):
            _require_text(word)
        number = self._connection.execute("SELECT ifnull(max(id), 0) + 1 FROM events").fetchone()[0]
        row = _checked(number, time.time_ns(), kind, name, session_id, key, author, text)
        self._connection.execute(f"INSERT INTO events VALUES ({_marks([row])})", row)

    def _number(self, key: Key, unit: str, direction: str) -> int:
        """The number of a key, a new one if need be. Raises UsageError where it is known with another unit."""
        where = "benchmark = ? AND metric = ? AND machine = ? AND config = ?"
        for row in self._rows(f"SELECT * FROM keys WHERE {where}", list(astuple(key))):
            if (row[5], row[6]) != (unit, direction):
                raise UsageError(f"{key.benchmark} {key.metric} is kept in {row[5]}, {row[6]}; offered in {unit}, "
                                 f"{direction}", "convert it, or name it otherwise: units do not mix in one history")
            return int(row[0])
        number = self._connection.execute("SELECT ifnull(max(id), 0) + 1 FROM keys").fetchone()[0]
        self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                                 _checked(number, *astuple(key), unit, direction))
        return int(number)

    def _key_row(self, key: Key) -> tuple[Any, ...]:
        where = "benchmark = ? AND metric = ? AND machine = ? AND config = ?"
        rows = self._rows(f"SELECT * FROM keys WHERE {where}", list(astuple(key)))
        if not rows:
            raise UsageError(f"no history of {key.benchmark} {key.metric} on machine {key.machine or '(unknown)'}, "
                             f"configuration {key.config[:12] or '(unknown)'}", "aaco history list")
        return rows[0]

    def _refuse_contradictions(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            held = self._rows("SELECT * FROM samples WHERE key = ? AND session_id = ? AND process = ?", list(row[:3]))
            if held[0][3] != row[3]:
                raise UsageError(f"session {row[1]}, process {row[2]} is kept as {held[0][3]:g}, offered as "
                                 f"{row[3]:g}: raw values never change", "give another measurement another session id")

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return whole rows, each verified by its checksum, the last column, which is left out."""
        rows = self._connection_rows(statement, values)
        for row in rows:
            if row[-1] != _checksum(row[:-1]):
                raise BadBundle(f"{self.path}: damaged: a row of it is not what was written", _restore(self.path))
        return [row[:-1] for row in rows]

    def _connection_rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with transactions.explained(self.path, _restore(self.path)):
            return self._connection.execute(statement, values).fetchall()


def backward_ns(times_ns: Sequence[int]) -> int:
    """By how much times go back at most, from the latest before; 0 where they never do."""
    return max((before - after for before, after in zip(accumulate(times_ns, max), times_ns, strict=True)), default=0)


def _make(path: Path) -> None:
    """Create a store atomically. A second process finds the first one's."""
    with files.storage(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(path.parent), transactions.explained(path, _restore(path)):
        if files.is_file(path):
            return
        with files.storage(path):
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
        temporary = Path(name)
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript("BEGIN;" + ";".join(SCHEMA) + f";PRAGMA application_id = {APPLICATION};"
                                         f"PRAGMA user_version = {FORMAT};COMMIT;")
            with files.storage(path):
                temporary.chmod(0o644)
                temporary.replace(path)
        except BaseException:
            for extra in ("", "-wal", "-shm"):
                Path(name + extra).unlink(missing_ok=True)
            raise


def _connect(path: Path) -> sqlite3.Connection:
    """The file open for reading and writing or, where the folder may not be written, for reading what is whole."""
    left = Path(f"{path}-wal")
    read_only = not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK)
    if read_only and left.exists() and left.stat().st_size:
        raise StorageError(f"{path} has unfinished business in {left.name}, and may not be written",
                           "open it once where it may: aaco history list")
    mode = "mode=ro&immutable=1" if read_only else "mode=rw"
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?{mode}", uri=True, isolation_level=None,
                                 timeout=PATIENCE_S)
    connection.execute("PRAGMA trusted_schema = OFF")
    if not read_only:
        connection.execute("PRAGMA synchronous = FULL")  # what was said to be stored outlives the power, too
    return connection


def _require_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Raise BadBundle unless the file is a history of a format that this version reads, and its pages hang together."""
    application, = connection.execute("PRAGMA application_id").fetchone()
    version, = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise BadBundle(f"{path}: not a history of measurements", _restore(path))
    if version > FORMAT:
        raise BadBundle(f"{path}: history format {version}, this version of aaco reads up to {FORMAT}",
                        "upgrade aaco on this machine")
    declared = [sql for sql, in connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY rowid")]
    problem, = connection.execute("PRAGMA quick_check(1)").fetchone()
    if declared != list(SCHEMA) or problem != "ok":
        raise BadBundle(f"{path}: damaged: {problem if problem != 'ok' else 'its tables are not as declared'}",
                        _restore(path))


def _restore(path: Path) -> str:
    return (f"restore {path.name} from a backup, or move it away and save the sessions again: aaco baseline save; "
            f"sqlite3 {path} .recover shows what can still be read")


def _require_possible(sample: Sample) -> None:
    """Raise UsageError, with the reason, for a sample that is no measurement."""
    where = f"session {sample.session_id}, process {sample.process}, {sample.key.metric}"
    for text in (*astuple(sample.key), sample.session_id, sample.unit, sample.commit, sample.branch,
                 sample.environment, sample.source):
        _require_text(text)
    if not sample.key.benchmark or not sample.key.metric or not sample.session_id:
        raise UsageError(f"{where}: benchmark, metric and session must be named", "")
    if sample.direction not in ("lower_is_better", "higher_is_better"):
        raise UsageError(f"{where}: direction {sample.direction!r}", "lower_is_better or higher_is_better")
    if isinstance(sample.value, bool) or not math.isfinite(sample.value):
        raise UsageError(f"{where}: {sample.value} is not a measured number", "leave out what was not measured")
    if sample.unit in TIMES and sample.value <= 0:
        raise UsageError(f"{where}: {sample.value:g} {sample.unit}: no time is zero or negative",
                         "check the clock and the unit of the source")
    if not 0 < sample.time_ns < time.time_ns() + AHEAD_NS:
        raise UsageError(f"{where}: measured {sample.time_ns:,} ns after 1970: in the future, or before all clocks",
                         "check the clock of the machine that measured, and the unit of the times")
    if not 0 <= sample.process < 2**63 or not 1 <= sample.iterations < 2**63:
        raise UsageError(f"{where}: process {sample.process}, {sample.iterations} iterations: not possible", "")


def _require_text(text: str | None) -> None:
    if text is None:
        return
    if len(text) > LONGEST:
        raise UsageError(f"{text[:40]}...: longer than {LONGEST} characters", "shorten the name")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text[:40]!a}: half of a surrogate pair is no character", "") from error


def _row(key: int, sample: Sample) -> tuple[Any, ...]:
    return _checked(key, sample.session_id, sample.process, float(sample.value), sample.time_ns, sample.iterations,
                    sample.commit, sample.branch, sample.environment, sample.source)


def _checked(*values: Any) -> tuple[Any, ...]:
    return *values, _checksum(values)


def _checksum(values: tuple[Any, ...]) -> int:
    return zlib.crc32(ascii(values).encode())  # ascii(): the same text in every version of Python


def _marks(rows: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join("?" * (len(rows[0]) if rows else 11))
