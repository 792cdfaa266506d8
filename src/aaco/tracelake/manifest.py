"""The manifest: the hash of every file of a bundle, and the reason for every expected file that is not there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import files, tables
from aaco.core.errors import BadBundle, StorageError
from aaco.core.session import RECORD, Session
from aaco.tracelake import documents, layout

# What a complete bundle holds. Each is there, or manifest.json says why it is not.
EXPECTED = (
    layout.ENVIRONMENT, layout.MODEL_META, tables.GRAPH_NODES.file, tables.GRAPH_EDGES.file, layout.ORT_CONFIG,
    layout.MIGRAPHX_PARTITION, tables.SYSTEM_EVENTS.file, layout.GPU_EVENTS, layout.ROCPROF_RAW, tables.KERNELS.file,
    tables.KERNEL_GROUPS.file, tables.OP_TO_KERNEL_MAP.file, tables.INFERENCE_ITERS.file, layout.SUMMARY,
    layout.DERIVED_METRICS, layout.BOTTLENECK, layout.BASELINE_REF, layout.DIFF, layout.VERDICT, layout.HTML_REPORT,
    layout.PLOTS,
)
NAME = layout.MANIFEST
SCHEMA_VERSION = 1
DERIVED = ("attribution/", "metrics/", "report/")  # and every table: `aaco analyze` makes them anew from evidence

REWRITTEN = ("regress/", "report/", "optimize/")  # what commands add to a session after it was sealed


def is_sealed(session: Session) -> bool:
    """Whether the session has a manifest, be it readable or not."""
    return documents.holds(session, NAME)


def read(session: Session) -> dict[str, Any]:
    """The manifest. Raises BadBundle, also for a session without one, which is so for one that did not finish."""
    return documents.require(session, NAME)


def write(session: Session, why_absent: Mapping[str, str]) -> dict[str, Any]:
    """Hash every file of the bundle and write manifest.json. Files known from before keep their reason.

    `why_absent` maps an expected file to the reason it is not there. A file neither present nor explained is recorded
    as such: that is a defect of the writer, and the contract test looks for it.
    """
    reasons = documents.read(session, NAME).get("absent", {}) | dict(why_absent)
    document = {
        "schema_version": SCHEMA_VERSION,
        "files": {name: _describe(session.folder / name) for name in content(session)},
        "absent": {name: reasons.get(name, "not explained") for name in dict.fromkeys((*EXPECTED, *reasons))
                   if not _present(session.folder / name)},
    }
    session.write_json(NAME, document)
    return document


def renew(session: Session, names: Collection[str]) -> None:
    """Enter files that were just written; of every other file the manifest goes on saying what it was sealed as.

    Raises BadBundle when there is no manifest.
    """
    document = read(session)
    entries = document["files"] | {name: _describe(session.folder / name) for name in names}
    absent = {name: why for name, why in document["absent"].items() if not _present(session.folder / name)}
    session.write_json(NAME, document | {"files": dict(sorted(entries.items())), "absent": absent})


def content(session: Session) -> list[str]:
    """Every file of the bundle, as sorted relative names; session.json and the manifest itself are left out."""
    files_inside = (path for path in session.folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(session.folder).as_posix() for path in files_inside)
    return sorted(name for name in names if name not in (RECORD, NAME) and not Path(name).name.startswith("."))


def check(session: Session) -> dict[str, str]:
    """Files that are not as the manifest says: {name: what is wrong}. Empty when the bundle is whole.

    Raises BadBundle when there is no manifest, which is so for a session that did not finish.
    """
    listed = read(session)["files"]
    wrong = {name: "not in the manifest" for name in content(session) if name not in listed}
    for name, facts in listed.items():
        if problem := _problem(session.folder / name, facts["sha256"]):
            wrong[name] = problem
    return wrong


def refuse_damage(session: Session, rewritten: tuple[str, ...] = ()) -> None:
    """Raise BadBundle when a file is not as it was sealed: sealing it again would make the change look original.

    Files below the folders `rewritten` are about to be replaced, so their present content is not checked: a
    command that was killed among them can be given again.
    """
    _refuse(session, lambda name: not name.startswith(rewritten))


def refuse_damaged_evidence(session: Session) -> None:
    """Raise BadBundle when a file that tables and answers are derived from is not as it was sealed."""
    _refuse(session, lambda name: not name.startswith(DERIVED) and not name.endswith(".parquet"))


def _refuse(session: Session, matters: Callable[[str], bool]) -> None:
    wrong = check(session) if is_sealed(session) else {}
    for name, problem in wrong.items():
        if matters(name):
            raise BadBundle(f"{session.folder / name}: {problem}", "aaco info SESSION  # lists every difference")


def refuse_changed(session: Session, names: Collection[str]) -> None:
    """Raise BadBundle when one of these files of a sealed session is not as it was sealed. Reads each of them once."""
    sealed = documents.read(session, NAME).get("files", {})
    for name in sealed.keys() & set(names):
        if problem := _problem(session.folder / name, sealed[name]["sha256"]):
            raise BadBundle(f"{session.folder / name}: {problem}", "aaco info SESSION  # lists every difference")


def _problem(path: Path, sha256: str) -> str:
    """What is wrong with a file that was sealed with this hash; empty where nothing is."""
    try:
        if not files.is_file(path):
            return "missing"
        return "" if files.sha256(path) == sha256 else "changed since it was written"
    except StorageError as error:
        return f"cannot be read: {error.what.removeprefix(f'{path}: ')}"


def _present(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def _describe(path: Path) -> dict[str, Any]:
    return {"sha256": files.sha256(path), "bytes": path.stat().st_size, "rows": _rows(path)}


def _rows(path: Path) -> int | None:
    if path.suffix != ".parquet":
        return None
    try:
        with path.open("rb") as file:  # by its path Arrow opens only what is UTF-8
            return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return None


