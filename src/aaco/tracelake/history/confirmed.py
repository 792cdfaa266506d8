"""Confirmed causes: one per session, next to the baselines, used by later answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from aaco.core import files
from aaco.core.documents import FrozenModel
from aaco.core.errors import BadBundle, UsageError, first_problem

FILE = "confirmed-causes.jsonl"
NAME = r"^[a-z][a-z0-9_]{0,63}$"
MOST_BYTES = 16 << 20


class Confirmed(FrozenModel):
    """One confirmation."""

    session_id: str
    cause: Annotated[str, Field(pattern=NAME)]
    created_utc: str


_ROWS = TypeAdapter(list[Confirmed])


def read(store: Path) -> list[Confirmed]:
    """Every confirmation, the oldest first; none where nothing was confirmed. Raises BadBundle, StorageError."""
    path = store / FILE
    if not files.is_file(path):
        return []
    with files.storage(path):
        if path.stat().st_size > MOST_BYTES:
            raise BadBundle(f"{path}: larger than {MOST_BYTES >> 20} MiB", "remove it, and confirm again")
        lines = path.read_bytes().splitlines()
    try:
        return _ROWS.validate_python([json.loads(line) for line in lines])
    except ValidationError as error:
        raise BadBundle(f"{path}: {first_problem(error)}", "remove the line, or the file") from error
    except (ValueError, RecursionError) as error:
        raise BadBundle(f"{path}: not JSON lines: {error}", "remove the line, or the file") from error


def counts(store: Path) -> Mapping[str, int]:
    """How often each cause was confirmed."""
    return Counter(row.cause for row in read(store))


def confirm(store: Path, session_id: str, cause: str) -> bool:
    """Keep that this was the cause; False where that is known already. A session has one cause: a later word replaces
    an earlier one. Raises UsageError, BadBundle, StorageError."""
    try:
        row = Confirmed(session_id=session_id, cause=cause, created_utc=datetime.now(UTC).isoformat("T", "seconds"))
    except ValidationError as error:
        raise UsageError(f"{cause!r} is no name of a cause: {first_problem(error)}", "--confirm cpu_contention"
                         ) from error
    with files.storage(store):
        store.mkdir(parents=True, exist_ok=True)
    with files.locked(store):
        kept = read(store)
        if any((cause_kept.session_id, cause_kept.cause) == (session_id, cause) for cause_kept in kept):
            return False
        rows = [*(cause_kept for cause_kept in kept if cause_kept.session_id != session_id), row]
        text = "".join(cause_kept.model_dump_json() + "\n" for cause_kept in rows)
        files.write_atomically(store / FILE, lambda file: file.write(text.encode()))
    return True
