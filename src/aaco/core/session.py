"""A session: one folder that holds everything known about one run.

The folder appears with its session.json already inside, in state `running`, and names the process that owns it. A
session with an owner that is gone without having finished is `incomplete`, for any cause.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from aaco import __version__
from aaco.core import documents, files, notebook
from aaco.core.clocks import ClockOffsets
from aaco.core.errors import BadBundle, StorageError, UsageError, first_problem
from aaco.core.near import meant
from aaco.core.plan import Planned
from aaco.core.redaction import redact_json

FORMAT = 1
RECORD = "session.json"
LATEST = "latest"
STANDING = ("running", "complete")  # states of a session that `latest` may mean
TRACED_BY = "AACO_TRACED_BY"  # environment of a traced program: the session that its trace becomes
REMEMBERED = 200  # sessions whose names somebody may have misspelt
Status = Literal["running", "complete", "incomplete", "failed"]


class Owner(BaseModel):
    """The process that writes the session: enough to recognise that very process."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(pid=os.getpid(), start_ticks=_start_ticks(os.getpid()) or 0, boot_id=_boot_id())

    @property
    def alive(self) -> bool:
        """Whether this very process (not a later one of the same pid, nor one before a reboot) runs here."""
        return self.boot_id == _boot_id() and _start_ticks(self.pid) == self.start_ticks


@documents.document(RECORD)
class Record(BaseModel):
    """The content of session.json. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = FORMAT
    session_id: str
    created_utc: str
    finished_utc: str | None = None
    status: Status = "running"
    failure: str | None = None
    tag: str = ""
    plan: dict[str, Any]
    clocks: dict[str, int] = {}
    machine_id: str | None = None
    config_hash: str | None = None
    model_hash: str | None = None
    tool_version: str
    backend_asked: str | None = None
    backend_ran: str | None = None
    synthetic_weights: bool | None = None
    owner: Owner | None = None
    kept_by: list[str] = []  # baseline files that may hold its samples: aaco gc asks them

    @model_validator(mode="before")
    @classmethod
    def _redact(cls, record: Any) -> Any:
        """Redact credentials, of which an older version may have written one."""
        return redact_json(record)

    @field_validator("created_utc", "finished_utc")
    @classmethod
    def _utc(cls, text: str | None) -> str | None:
        if text is not None and datetime.fromisoformat(text).tzinfo is None:
            raise ValueError("a time without its zone")
        return text

    @field_validator("plan")
    @classmethod
    def _plan(cls, plan: dict[str, Any]) -> dict[str, Any]:
        try:
            Planned.model_validate(plan)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from error
        return plan

    @field_validator("clocks")
    @classmethod
    def _clocks(cls, clocks: dict[str, int]) -> dict[str, int]:
        if clocks.keys() not in ({}.keys(), set(ClockOffsets.__struct_fields__)):
            raise ValueError(f"expected {', '.join(ClockOffsets.__struct_fields__)}, or nothing")
        return clocks

    @property
    def is_import(self) -> bool:
        """Return whether the session holds captures of other tools, in place of a run."""
        return "imports" in self.plan

    @property
    def is_endpoint(self) -> bool:
        """Return whether the session holds answers of an endpoint of a language model, in place of a run."""
        return bool(self.plan.get("endpoint"))

    @property
    def planned(self) -> Planned:
        """Return the plan as far as it is known; missing fields have defaults. A session without a run has none."""
        return Planned.model_validate(self.plan)


@dataclass(frozen=True)
class Session:
    """A session folder; its record is read from disk each time, so it is never stale."""

    folder: Path

    @classmethod
    def create(cls, root: Path, plan: dict[str, Any], tag: str, tool_version: str) -> Session:
        """A new session under root/<date>/<id>. Raises StorageError."""
        now = datetime.now(UTC)
        # Names are in the order of time, those of one second, too; four bits for other machines.
        name = f"{now:%Y%m%d_%H%M%S}_{now.microsecond << 4 | os.urandom(1)[0] >> 4:06x}"
        day = root / f"{now:%Y-%m-%d}"
        record = Record(session_id=name, created_utc=now.isoformat(timespec="milliseconds"), tag=tag, plan=plan,
                        tool_version=tool_version, owner=Owner.current())
        unborn = day / f".{name}"
        try:
            with files.storage(root):
                unborn.mkdir(parents=True)
                files.write_json(unborn / RECORD, record.model_dump())
                unborn.rename(day / name)
        except StorageError:  # a full disk has no room for a folder that says nothing
            shutil.rmtree(unborn, ignore_errors=True)
            raise
        return cls(day / name)

    def _repr_html_(self) -> str:
        """Return what a notebook shows. Raise BadBundle."""
        record = self.record
        return notebook.table((("session", record.session_id), ("model", record.plan.get("model")),
                               ("backend", record.backend_ran), ("status", record.status), ("failure", record.failure),
                               ("tag", record.tag), ("folder", self.folder)))

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """An existing session. Raises BadBundle where there is none, or one of a newer format."""
        session = cls(Path(folder).resolve())
        session.record  # noqa: B018 - reading it is the check
        return session

    @property
    def id(self) -> str:
        """The session's name, unique over machines."""
        return self.folder.name

    @property
    def record(self) -> Record:
        """What session.json says now. Raises BadBundle."""
        path = self.folder / RECORD
        if not files.is_file(path):
            raise BadBundle(f"{self.folder}: not a session (no {RECORD})",
                            "aaco ls  # lists sessions; aaco import FOLDER makes one of the traces in it")
        return documents.load(path, Record, "bundle", "aaco ls")

    @property
    def status(self) -> Status:
        """The recorded status, or incomplete when the owner died before it finished."""
        record = self.record
        if record.status == "running" and not (record.owner and record.owner.alive):
            return "incomplete"
        return record.status

    def amend(self, **changes: Any) -> None:
        """Change fields of session.json atomically."""
        self._write(self.record.model_copy(update=changes))

    def keep_for(self, baseline: Path) -> None:
        """Note that a baseline file is to hold this session's samples, for `aaco gc`. Raises StorageError."""
        path = str(baseline.resolve())
        with files.locked(self.folder):
            record = self.record
            if path not in record.kept_by:
                self._write(record.model_copy(update={"kept_by": [*record.kept_by, path]}))

    def _write(self, record: Record) -> None:
        self.write_json(RECORD, record.model_dump())

    def finish(self, status: Status, failure: str | None = None) -> None:
        """Mark the end of the run; after this the status no longer depends on the owner. Raises StorageError.

        root/latest points at the newest session that came to its end. A full disk, which has no room for another file,
        has that of this one.
        """
        ended = self.record.model_copy(update={
            "status": status, "failure": failure, "finished_utc": datetime.now(UTC).isoformat(timespec="milliseconds")})
        try:
            self._write(ended)
        except StorageError:
            content = json.dumps(redact_json(ended.model_dump()), allow_nan=False)
            files.overwrite(self.folder / RECORD, f"{content}\n".encode())
        if status == "complete":
            self._point_latest(self.folder.parent.parent)

    def write_json(self, name: str, document: Any) -> None:
        """Write one JSON file of the bundle atomically, credentials redacted."""
        files.write_json(self.folder / name, redact_json(document))

    def read_json(self, name: str) -> Any:
        """One JSON file of the bundle. Raises BadBundle."""
        return files.read_json(self.folder / name)

    def _point_latest(self, root: Path) -> None:
        if files.is_folder(root / LATEST) and (root / LATEST).resolve().name > self.id:
            return  # a later one was quicker
        temporary = root / f".latest-{self.id}"
        with files.storage(root):
            try:
                temporary.symlink_to(self.folder.relative_to(root))
                temporary.replace(root / LATEST)
            finally:
                temporary.unlink(missing_ok=True)


def sessions(root: Path) -> Iterator[Session]:
    """Every session under `root`, newest first; `latest` is a pointer, not another session."""
    for record in sorted(root.glob(f"[0-9]*/[!.]*/{RECORD}"), reverse=True):
        yield Session(record.parent)


def find(reference: str, root: Path) -> Session:
    """The session meant by a path, `latest`, an id, the beginning of one, a tag, or the name of an import (of
    several with it, the newest).

    Raises UsageError or BadBundle.
    """
    if reference == LATEST or Path(reference) == root / LATEST:
        return _latest(root)
    if files.is_file(Path(reference) / RECORD):
        return Session.open(Path(reference))
    literal = glob.escape(reference.replace("/", "_"))
    matches = [folder for folder in root.glob(f"[0-9]*/{literal}*") if files.is_file(folder / RECORD)]
    if len(matches) == 1:
        return Session.open(matches[0])
    if matches:
        names = ", ".join(sorted(folder.name for folder in matches)[:4])
        raise UsageError(f"session {reference!r} is ambiguous: {names}", "give more of the id")
    labelled = next((folder for folder in sessions(root) if reference in _labels(folder)), None)
    if labelled is None and files.is_folder(Path(reference)):
        return Session.open(Path(reference))  # says what the folder lacks
    if labelled is None and files.is_file(Path(reference)):
        raise UsageError(f"{reference} is a file, not a session",
                         f"aaco import {shlex.quote(reference)}  # a trace; aaco bundle import: a bundle")
    if labelled is None:
        raise UsageError(f"no session {reference!r} under {root}{meant(reference, _names(root))}",
                         "aaco ls  # --sessions-dir looks elsewhere")
    return labelled


def _labels(session: Session) -> list[str]:
    """Return what the user calls the session: its tag, and the name of an import; none where that cannot be read."""
    try:
        record = session.record
    except (BadBundle, StorageError):
        return []
    imported = record.plan.get("model") if record.is_import else None
    return [str(label) for label in (record.tag, imported) if label]


def _names(root: Path) -> Iterator[str]:
    """What the newest sessions can be called by: ids, tags and names of imports."""
    for session in islice(sessions(root), REMEMBERED):
        yield session.id
        yield from _labels(session)


def _latest(root: Path) -> Session:
    """Return what root/latest points at, unless that failed or was cut short; then the newest session that was not.

    Where there is none, a failed one is better than nothing: its screens say so.
    """
    pointed = Session.open(root / LATEST) if files.is_folder(root / LATEST) else None
    if pointed and pointed.status in STANDING:
        return pointed
    newest = next(filter(_stands, sessions(root)), next(sessions(root), None))
    if newest is None:
        raise UsageError(f"no session yet under {root}",
                         "aaco import TRACE, or aaco run MODEL; --sessions-dir looks elsewhere")
    return Session.open(newest.folder)


def _stands(session: Session) -> bool:
    """Return whether the session runs or is complete; False where that cannot be read."""
    try:
        return session.status in STANDING
    except (BadBundle, StorageError):
        return False


def _start_ticks(pid: int) -> int | None:
    """Start time of a live process in clock ticks since boot: field 22 of proc_pid_stat(5)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


class UnwrittenSession(Session):
    """A new session under root, whose folder appears when it is asked for."""

    _root: Path
    _tag: str

    def __init__(self, root: Path, tag: str) -> None:
        vars(self).update(_root=root, _tag=tag)  # a session is frozen

    @cached_property
    def folder(self) -> Path:
        """The folder, made at the first use. Raise StorageError."""
        return Session.create(self._root, {}, self._tag, __version__).folder

    def __repr__(self) -> str:
        return f"UnwrittenSession(root={self._root!r}, tag={self._tag!r})"

    def _repr_html_(self) -> str:
        return notebook.table((("session", self),))  # showing it makes no folder


class SessionManager:
    """Makes a session from Python."""

    @staticmethod
    def create_session(root: Path | str = "sessions", tag: str = "") -> Session:
        """Return a new, empty session; hand it to a runner, or write to it and call `finish`.

        Nothing is written until it is used: a session that is never used leaves no folder.
        """
        return UnwrittenSession(Path(root), tag)
