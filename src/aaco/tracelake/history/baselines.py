"""Baselines: names in the history of measurements under which sessions are pinned, so that later ones can be judged.

A baseline grows by sessions: saving under a name that exists adds to it, once per session, and only what was measured
on the same machine, model and configuration. Its samples are only in the history. A JSON file is the
portable form of a baseline: it is written on export or where a path is saved to, and read where a path is named, or a
name that an earlier version kept as a file next to the history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from pydantic import ValidationError

from aaco.core import documents, files
from aaco.core.errors import BadBundle, NoBaseline, StorageError, UsageError, first_problem
from aaco.tracelake.history.history import NAME as HISTORY
from aaco.tracelake.history.history import History, Key, Pinned, Sample
from aaco.tracelake.history.measures import LATENCY, MEASURES
from aaco.tracelake.history.replicates import Baseline, Replicate, require_same_identity

SUFFIX = ".json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")


class Saved(Struct, frozen=True):
    """What a save did: the store or file, the baseline in it, and which sessions were new or already there."""

    path: Path
    baseline: Baseline
    added: tuple[str, ...]
    known: tuple[str, ...]


class Listed(Struct, frozen=True):
    """One baseline of a store, or a file in it and what is wrong with that."""

    path: Path
    baseline: Baseline | None
    problem: str = ""
    version: int = 1


def save(store: Path, reference: str, replicates: Sequence[Replicate], replace: bool = False) -> Saved:
    """Add sessions to a baseline; create it if there is none. `replace` starts its next version.

    A session already in the baseline is left as it is, so saving twice is saving once. Where the reference is a path,
    the baseline is the file there; its new sessions enter the history, too. Raises UsageError when the sessions are not
    comparable with each other or with the baseline, BadBundle when the history, or the file there, is damaged.
    """
    name, path = _name(reference), _file(reference)
    with History.open(_home(store)) as history, history.transaction():
        if path:
            return _save_file(path, history, replicates, replace)
        _adopt(history, name, store / (name + SUFFIX))
        held = history.pins().get(name)
        before = _replicates(history, held) if held and not replace else []
        fresh = _fresh(before, replicates)
        require_same_identity([*before, *fresh], name)
        for replicate in fresh:
            add(history, replicate)
        if replace and held:
            history.promote(name, _ids(fresh))
        else:
            history.pin(name, _ids(fresh))
        return _saved(history.path, _baseline(history, history.pinned(name)), fresh, replicates)


def _save_file(path: Path, history: History, replicates: Sequence[Replicate], replace: bool) -> Saved:
    with files.storage(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(path.parent):
        old = _read(path) if path.exists() and not replace else None
        before = old.replicates if old else ()
        fresh = _fresh(before, replicates)
        require_same_identity([*before, *fresh], path.stem)
        for replicate in fresh:
            add(history, replicate)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        baseline = Baseline(name=path.stem, created_utc=old.created_utc if old else now, updated_utc=now,
                            replicates=(*before, *fresh)) if fresh or not old else old
        if baseline is not old:
            files.write_json(path, baseline.model_dump(mode="json"))
    return _saved(path, baseline, fresh, replicates)


def _saved(path: Path, baseline: Baseline, fresh: Sequence[Replicate], offered: Sequence[Replicate]) -> Saved:
    added = tuple(_ids(fresh))
    return Saved(path, baseline, added, tuple(item for item in _ids(offered) if item not in added))


def _fresh(before: Sequence[Replicate], offered: Sequence[Replicate]) -> list[Replicate]:
    stored_ids = set(_ids(before))
    return [item for item in {item.session_id: item for item in offered}.values() if item.session_id not in stored_ids]


def _ids(replicates: Sequence[Replicate]) -> list[str]:
    return list(dict.fromkeys(replicate.session_id for replicate in replicates))


def add(history: History, replicate: Replicate) -> int:
    """Put a session into the history, once; how many samples were new."""
    if history.document(replicate.session_id) is not None:
        return 0
    return history.append(samples(replicate), {replicate.session_id: replicate.model_dump_json()})


def key(replicate: Replicate, metric: str = LATENCY) -> Key:
    """Under which key a session's values of a metric are kept."""
    return Key(replicate.model or "(unnamed)", metric, replicate.machine_id or "", replicate.config_hash or "")


def samples(replicate: Replicate) -> list[Sample]:
    """A session's values, process by process, of every metric that it has; none where its time is not known."""
    if replicate.created_utc is None:
        return []
    moment = round(datetime.fromisoformat(replicate.created_utc).timestamp() * 1e9)
    return [Sample(key(replicate, metric), replicate.session_id, process, value, measure.unit, measure.direction,
                   moment, replicate.processes[process].iterations, replicate.git_commit, replicate.git_branch,
                   replicate.environment_digest)
            for metric, measure in MEASURES.items() for process, value in enumerate(measure.of(replicate))]


def load(store: Path, reference: str) -> Baseline:
    """The baseline of this name or path. Raises NoBaseline where there is none, BadBundle for a bad or newer file."""
    name, path = _name(reference), _file(reference)
    if path is None and (held := _pinned(store, name)) is not None:
        return held
    path = path or store / (name + SUFFIX)
    if not path.is_file():
        raise NoBaseline(f"no baseline {reference!r}: {path if _file(reference) else store} does not hold it",
                         f"aaco baseline list, or aaco baseline save {name} SESSION")
    return _read(path)


def exists(store: Path, reference: str) -> bool:
    """Whether there is such a baseline. Raises UsageError for what cannot name one, BadBundle, StorageError."""
    path = _file(reference)
    return path.is_file() if path else _pinned(store, _name(reference)) is not None or files.is_file(
        store / (_name(reference) + SUFFIX))


def list_all(store: Path) -> list[Listed]:
    """Every baseline of the store by name; a damaged file is listed with its problem."""
    listed = []
    if files.is_file(_home(store)):
        with History.open(_home(store)) as history:
            listed = [Listed(history.path, _baseline(history, item), version=item.version)
                      for item in history.pins().values()]
    names = {item.baseline.name for item in listed if item.baseline}
    listed += [_list(path) for path in _files(store) if path.stem not in names]
    return sorted(listed, key=lambda item: item.baseline.name if item.baseline else item.path.stem)


def referenced_sessions(store: Path) -> set[str]:
    """Return the sessions that any baseline of the store holds. Raise BadBundle if that is unknown."""
    session_ids = {session for path in _files(store) for session in _read(path).session_ids}
    if files.is_file(_home(store)):
        with History.open(_home(store)) as history:
            session_ids |= {session for item in history.pins().values() for session in item.sessions}
    return session_ids


def holds(path: Path, session_id: str) -> bool:
    """Return whether a baseline of this store or file holds the session; True if it exists but cannot be read."""
    try:
        if not files.is_file(path):
            return False
        if path.suffix == SUFFIX:
            return session_id in _read(path).session_ids
        with History.open(path) as history:
            return any(session_id in item.sessions for item in history.pins().values())
    except (BadBundle, StorageError):
        return True


def locate(store: Path, reference: str) -> Path:
    """Where the baseline of this reference is kept: the file that a path (with a slash, or an existing .json file)
    names, else the history of the store. Raises UsageError for what cannot name a baseline."""
    _name(reference)
    return _file(reference) or _home(store)


def export(store: Path, name: str, path: Path) -> Baseline:
    """Write a baseline as a JSON file, to be read on another machine or by another store. Raises StorageError."""
    baseline = load(store, name)
    files.write_json(path, baseline.model_dump(mode="json"))
    return baseline


def take_in(store: Path, file: Path, name: str | None = None) -> Saved:
    """Take the sessions of a baseline's JSON file into the history, as a baseline of this name or of the file's."""
    document = _read(file)
    target_name = name or document.name
    if _file(target_name):
        raise UsageError(f"{target_name!r} is a file, not a name", "aaco baseline import FILE NAME")
    return save(store, target_name, document.replicates)


def expire(store: Path, name: str, sessions: Sequence[str] | None = None) -> int:
    """Take sessions, or all, out of a baseline of the history; how many it still has. Raises NoBaseline, UsageError."""
    with History.open(_home(store), create=False) as history, history.transaction():
        history.expire(name, sessions)
        held = history.pins().get(name)
        return len(held.sessions) if held else 0


def _home(store: Path) -> Path:
    return store / HISTORY


def _name(reference: str) -> str:
    name = Path(reference).name.removesuffix(SUFFIX)
    if not NAME.fullmatch(name):
        raise UsageError(f"{reference!r} cannot name a baseline",
                         "use up to 200 letters, digits, . _ + and -, beginning with a letter or digit")
    return name


def _file(reference: str) -> Path | None:
    """The file that a reference names, if it is not a name of the store."""
    path = Path(reference)
    if "/" in reference or (path.suffix == SUFFIX and files.is_file(path)):
        return path.parent / (_name(reference) + SUFFIX)
    return None


def _adopt(history: History, name: str, path: Path) -> None:
    """Take over a baseline that is so far a file only: nothing of it is lost when its name is saved to."""
    if files.is_file(path) and name not in history.pins():
        for replicate in _read(path).replicates:
            add(history, replicate)
            history.pin(name, [replicate.session_id])


def _pinned(store: Path, name: str) -> Baseline | None:
    if not files.is_file(_home(store)):
        return None
    with History.open(_home(store)) as history:
        held = history.pins().get(name)
        return _baseline(history, held) if held else None


def _baseline(history: History, held: Pinned) -> Baseline:
    return Baseline(name=held.name, created_utc=_utc(held.created_ns), updated_utc=_utc(held.updated_ns),
                    replicates=tuple(_replicates(history, held)))


def _replicates(history: History, held: Pinned) -> list[Replicate]:
    return [_replicate(history, session_id) for session_id in held.sessions]


def _replicate(history: History, session_id: str) -> Replicate:
    document = history.document(session_id)
    if document is None:
        raise UsageError(f"session {session_id} is in {history.path} by its values only, as imports are",
                         "aaco drift reads its history; a baseline needs sessions of aaco run or aaco import")
    try:
        return Replicate.model_validate_json(document)
    except ValidationError as error:
        raise BadBundle(f"{history.path}: session {session_id}: {first_problem(error)}",
                        "it was written by a later version of aaco: upgrade aaco on this machine") from error


def _utc(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _files(store: Path) -> list[Path]:
    return sorted(path for path in store.glob(f"[!.]*{SUFFIX}") if path.is_file())


def _list(path: Path) -> Listed:
    try:
        return Listed(path, _read(path))
    except (BadBundle, StorageError) as error:
        return Listed(path, None, error.what)


def _read(path: Path) -> Baseline:
    return documents.load(path, Baseline, "baseline", f"export it again: aaco baseline export {path.stem} {path}")
