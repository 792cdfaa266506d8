"""Which sessions are old enough to go, and their removal."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aaco.core import files
from aaco.core.errors import BadBundle
from aaco.core.session import LATEST, Session, sessions


@dataclass(frozen=True)
class Removal:
    """One session to remove, why, and the space it gives back."""

    session: Session
    why: str
    size_bytes: int


def choose(root: Path, max_sessions: int, max_age_days: int, kept: Collection[str] = (),
           now: datetime | None = None) -> list[Removal]:
    """Sessions beyond the newest `max_sessions` or older than `max_age_days`, oldest last.

    Never chosen: one that runs, one whose id is in `kept` (a baseline's), and one whose record cannot be read, because
    what cannot be understood is not ours to delete.
    """
    now = now or datetime.now(UTC)
    found = [session for session in sessions(root) if _readable(session)]
    removals = []
    for rank, session in enumerate(found):
        age = now - datetime.fromisoformat(session.record.created_utc)
        why = _why(rank, age, max_sessions, max_age_days)
        if why and session.id not in kept and session.status != "running":
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


def _readable(session: Session) -> bool:
    try:
        return bool(session.record)
    except BadBundle:
        return False
