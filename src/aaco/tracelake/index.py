"""Which sessions there are, at a glance: what a list shows of each, kept in memory for as long as its file stays.

Nothing is kept on disk, so nothing can be out of date there: to look at each of 10,000 session.json costs 40 ms, to
read them all half a second (benchmarks/server measures both), and a file is read again only when it was replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import Struct

from aaco.core import files
from aaco.core.errors import BadBundle, StorageError
from aaco.core.session import RECORD, Owner, Session

Stamp = tuple[int, int, int]


class Entry(Struct, frozen=True):
    """What a list shows of a session."""

    session_id: str
    folder: Path
    recorded: str  # status by its record; `unreadable` where that cannot be read
    model: str = ""
    backend: str = ""
    tag: str = ""
    created_utc: str | None = None
    finished_utc: str | None = None
    failure: str | None = None
    owner: Owner | None = None

    @property
    def status(self) -> str:
        """The recorded status, or incomplete when the owner died before it finished."""
        if self.recorded == "running" and not (self.owner and self.owner.alive):
            return "incomplete"
        return self.recorded

    def row(self) -> dict[str, Any]:
        """As JSON lists have it."""
        return {"session_id": self.session_id, "status": self.status, "model": self.model, "backend": self.backend,
                "tag": self.tag, "created_utc": self.created_utc, "finished_utc": self.finished_utc,
                "folder": str(self.folder), "failure": self.failure}


def entry(session: Session) -> Entry:
    """What a list shows of this session, be its record readable or not."""
    try:
        record = session.record
    except (BadBundle, StorageError) as error:
        return Entry(session.id, session.folder, "unreadable", failure=error.what)
    backend = "imported" if "imports" in record.plan else record.plan.get("backend", "")
    return Entry(session.id, session.folder, record.status, str(record.plan.get("model", "")), str(backend), record.tag,
                 record.created_utc, record.finished_utc, record.failure, record.owner)


class Index:
    """The sessions under a folder. Every look at it sees what came, went and changed, at most `age_s` ago."""

    def __init__(self, root: Path, age_s: float = 0.0) -> None:
        self._root, self._age_s = root, age_s
        self._lock = Lock()
        self._looked: float | None = None
        self._known: dict[str, tuple[Stamp, Entry]] = {}
        self._by_id: dict[str, Entry] = {}

    def entries(self) -> list[Entry]:
        """Every session, newest first. Raises StorageError."""
        return list(self._fresh().values())

    def find(self, session_id: str) -> Entry | None:
        """The session of this very id. Of one that is known no other is looked at. Raises StorageError."""
        with self._lock:
            held = self._by_id.get(session_id)
            if held and (now := stamp(held.folder)):
                if self._known[str(held.folder)][0] != now:
                    held = self._by_id[session_id] = entry(Session(held.folder))
                    self._known[str(held.folder)] = now, held
                return held
        return self._fresh().get(session_id)

    def knows(self, session_id: str) -> bool:
        """Whether a session of this id was there when it was looked last."""
        return session_id in self._by_id

    @property
    def stale(self) -> bool:
        """Whether the next question looks at the disk."""
        return self._looked is None or time.monotonic() - self._looked >= self._age_s

    def look_again(self) -> None:
        """Let the next question look at the disk, however young the last look is."""
        with self._lock:
            self._looked = None

    def _fresh(self) -> dict[str, Entry]:
        with self._lock:
            if self.stale:
                self._look()
                self._looked = time.monotonic()
            return self._by_id

    def _look(self) -> None:
        """Read what is new or was replaced, and forget what has gone."""
        entries_by_folder: dict[str, tuple[Stamp, Entry]] = {}
        with files.storage(self._root):
            for path in _folders(self._root):
                if now := stamp(path):
                    held = self._known.get(path)
                    entries_by_folder[path] = held if held and held[0] == now else (now, entry(Session(Path(path))))
        if entries_by_folder != self._known:
            self._known = entries_by_folder
            self._by_id = {each.session_id: each for _, (_, each) in sorted(entries_by_folder.items())}
            self._by_id = dict(reversed(self._by_id.items()))


def _folders(root: Path) -> Iterator[str]:
    """The folders that may be sessions: ROOT/<date>/<id>, as core.session.sessions finds them."""
    for day in _inside(str(root)):
        if day.name[:1].isdigit():
            yield from (child.path for child in _inside(day.path) if not child.name.startswith("."))


def _inside(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it is gone or not a folder."""
    try:
        with os.scandir(folder) as scanned:
            return list(scanned)
    except (FileNotFoundError, NotADirectoryError):
        return []


def stamp(folder: Path | str, name: str = RECORD) -> Stamp | None:
    """What changes whenever a file of a session is replaced, or may be read again; None where there is none."""
    try:
        status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - for 10,000 of them
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ctime_ns, status.st_ino, status.st_size


class Choice(Struct, frozen=True):
    """Which sessions, and in which order: None takes all. since, until: times with a zone; text: in an id or a tag."""

    tag: str | None = None
    model: str | None = None
    backend: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    by: str = "created_utc"
    descending: bool = True

    def takes(self, entry: Entry) -> bool:
        """Whether a session is among them."""
        return (self.tag in (None, entry.tag) and self.model in (None, entry.model)
                and self.backend in (None, entry.backend) and (self.status is None or entry.status == self.status)
                and (self.text is None or self.text in entry.session_id or self.text in entry.tag)
                and self._then(entry))

    def of(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of the entries, sorted; equals stay in the order of their ids."""
        ordered = sorted(filter(self.takes, entries), key=lambda entry: entry.session_id, reverse=self.descending)
        return sorted(ordered, key=self._key, reverse=self.descending)

    def _key(self, entry: Entry) -> str | float:
        return _time(entry) if self.by == "created_utc" else str(getattr(entry, self.by))

    def _then(self, entry: Entry) -> bool:
        if self.since is None and self.until is None:
            return True
        created = _time(entry)
        return ((self.since is None or created >= self.since.timestamp())
                and (self.until is None or created < self.until.timestamp()))


def _time(entry: Entry) -> float:
    """When it was created, in seconds of the epoch; before everything else where that is not known."""
    return datetime.fromisoformat(entry.created_utc).timestamp() if entry.created_utc else float("-inf")
