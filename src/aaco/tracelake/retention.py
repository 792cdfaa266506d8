"""Which sessions are old enough to go, and their removal."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from aaco.core import files
from aaco.core.errors import BadBundle, StorageError
from aaco.core.session import LATEST, Session, sessions
from aaco.tracelake.history import baselines


class Removal(Struct, frozen=True):
    """One session to remove, why, and the space it gives back."""

    session: Session
    why: str
    size_bytes: int


def choose(root: Path, max_sessions: int, max_age_days: int, kept: Collection[str] = (),
           now: datetime | None = None) -> list[Removal]:
    """Sessions beyond the newest `max_sessions` or older than `max_age_days`, oldest last.

    Never chosen: one that runs, one with its id in `kept`, one in a baseline file that its record names, and
    one whose record cannot be read, because what cannot be understood must not be deleted.
    """
    now = now or datetime.now(UTC)
    readable = [session for session in sessions(root) if _readable(session)]
    removals = []
    for rank, session in enumerate(readable):
        age = now - datetime.fromisoformat(session.record.created_utc)
        why = _why(rank, age, max_sessions, max_age_days)
        held = {session.id, session.record.session_id} & set(kept)  # a renamed folder is still that session
        if why and not held and session.status != "running" and not _is_kept(session):
            removals.append(Removal(session, why, size(session)))
    return removals


def remove(root: Path, removals: list[Removal]) -> None:
    """Delete the folders. A session leaves its place in one rename first, so that no half of it is ever listed."""
    for removal in removals:
        folder = removal.session.folder
        with files.storage(folder):
            condemned = folder.with_name(f".{folder.name}.gone")
            folder.rename(condemned)
            shutil.rmtree(condemned)
            if not any(folder.parent.iterdir()):
                folder.parent.rmdir()
    if (root / LATEST).is_symlink() and not (root / LATEST).exists():
        (root / LATEST).unlink()


def size(session: Session) -> int:
    """Bytes of every file of the session."""
    return sum(path.stat().st_size for path in session.folder.rglob("*") if path.is_file())


def _why(rank: int, age: timedelta, max_sessions: int, max_age_days: int) -> str:
    if age > timedelta(days=max_age_days):
        return f"older than {max_age_days} days"
    return f"beyond the newest {max_sessions}" if rank >= max_sessions else ""


def stores(root: Path, store: Path) -> list[Path]:
    """Return the folders of baselines for sessions under `root`: the configured one, and the one next to them.

    Where the command is given decides neither of the latter: a project's baselines are next to its sessions.
    """
    return list(dict.fromkeys((store.resolve(), root.resolve().parent / "baselines")))


def _is_kept(session: Session) -> bool:
    """Return whether a baseline file that the session names holds it or cannot be read."""
    names = {session.id, session.record.session_id}
    return any(baselines.holds(Path(path), name) for path in session.record.kept_by for name in names)


def _readable(session: Session) -> bool:
    try:
        return bool(session.record)
    except (BadBundle, StorageError):
        return False
