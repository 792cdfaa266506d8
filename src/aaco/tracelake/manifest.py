"""The manifest: the hash of every file of a bundle, and the reason for every expected file that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import files
from aaco.core.errors import BadBundle
from aaco.core.session import RECORD, Session
from aaco.tracelake.layout import EXPECTED

NAME = "manifest.json"
SCHEMA_VERSION = 1


def write(session: Session, why_absent: Mapping[str, str]) -> dict[str, Any]:
    """Hash every file of the bundle and write manifest.json. Files known from before keep their reason.

    `why_absent` maps an expected file to the reason it is not there. A file neither present nor explained is recorded
    as such: that is a defect of the writer, and the contract test looks for it.
    """
    before = files.read_json(session.folder / NAME)["absent"] if (session.folder / NAME).is_file() else {}
    reasons = before | dict(why_absent)
    document = {
        "schema_version": SCHEMA_VERSION,
        "files": {name: _describe(session.folder / name) for name in content(session)},
        "absent": {name: reasons.get(name, "not explained") for name in dict.fromkeys((*EXPECTED, *reasons))
                   if not _present(session.folder / name)},
    }
    session.write_json(NAME, document)
    return document


def content(session: Session) -> list[str]:
    """Every file of the bundle, as sorted relative names; session.json and the manifest itself are left out."""
    found = (path for path in session.folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(session.folder).as_posix() for path in found)
    return sorted(name for name in names if name not in (RECORD, NAME) and not Path(name).name.startswith("."))


def check(session: Session) -> dict[str, str]:
    """Files that are not as the manifest says: {name: what is wrong}. Empty when the bundle is whole.

    Raises BadBundle when there is no manifest, which is so for a session that did not finish.
    """
    listed = session.read_json(NAME)["files"]
    wrong = {name: "not in the manifest" for name in content(session) if name not in listed}
    for name, facts in listed.items():
        path = session.folder / name
        if not path.is_file():
            wrong[name] = "missing"
        elif files.sha256(path) != facts["sha256"]:
            wrong[name] = "changed since it was written"
    return wrong


def refuse_damage(session: Session) -> None:
    """Raise BadBundle when a file is not as it was sealed: sealing it again would make the change look original."""
    wrong = check(session) if (session.folder / NAME).is_file() else {}
    if wrong:
        name, problem = next(iter(wrong.items()))
        raise BadBundle(f"{session.folder / name}: {problem}", "aaco info SESSION  # lists every difference")


def _present(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def _describe(path: Path) -> dict[str, Any]:
    return {"sha256": files.sha256(path), "bytes": path.stat().st_size, "rows": _rows(path)}


def _rows(path: Path) -> int | None:
    if path.suffix != ".parquet":
        return None
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return None


