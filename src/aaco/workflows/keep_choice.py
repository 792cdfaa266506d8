"""A change that was kept, written as a backend by name, and judged again by that name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from aaco.core import files
from aaco.core.candidate import Candidate
from aaco.core.config import Settings
from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.optimize import gates, recorded_run
from aaco.optimize.gates import GateOutcome
from aaco.optimize.search import Search
from aaco.runner import registry
from aaco.runner.registry import BackendEntry
from aaco.workflows import trial_steps, try_advice
from aaco.workflows.duet import compare, sides
from aaco.workflows.duet.compare import Compared, DuetSide


class Written(NamedTuple):
    """What was written, the model to run with it, and what of the change no backend can hold: batch and io."""

    model: str
    paths: tuple[Path, ...]
    options: Mapping[str, str]


class JudgedAgain(NamedTuple):
    """A backend judged again: the comparison, what it says by the rule of a search, and by which quantity."""

    compared: Compared
    outcome: GateOutcome
    judged_by: str


def write(session: Session, name: str, settings: Settings) -> Written:
    """Write the change that the session's last successful search kept as a backend of this name, into the user's file
    of backends; a model file that it rewrote is copied next to that file.

    What the file holds already stays as it is, byte by byte. Raise UsageError for a name that is taken, or a file that
    is no list of backends.
    """
    state, change = _kept(session)
    path = settings.config.storage.backends_file
    entry = _entry(session, change, settings)
    if name in registry.backends([path]):
        raise UsageError(f"a backend {name!r} is there already", f"choose another name, or remove it from {path}")
    text = _with_entry(path.read_text(encoding="utf-8") if path.exists() else "", name, entry, path)
    paths = [path]
    model = str(recorded_run.plan_fields(session)["model"])
    if change.rewrite:
        model = str(_copy_model(settings, state.begun.origin.model_sha256, change, path.parent / f"{name}.onnx"))
        paths.append(Path(model))
    files.write_atomically(path, lambda file: file.write(text.encode()))
    return Written(model, tuple(paths), _of_plan(change))


def again(session: Session, name: str, settings: Settings, show: Show = SILENT) -> JudgedAgain:
    """Judge a backend that was written so against the session's own, as the search confirmed it. Raise UsageError."""
    state, change = _kept(session)
    fields = recorded_run.plan_fields(session)
    model = str(fields.pop("model"))
    rewritten = settings.config.storage.backends_file.parent / f"{name}.onnx"
    current = DuetSide(model=str(rewritten) if change.rewrite else model, options={"backend": name, **_of_plan(change)})
    confirmed = state.confirmed[change.name]
    request = trial_steps.confirmation(state, confirmed.processes, confirmed.level)
    compared = compare.compare(DuetSide(model=model), current, request, settings, fields, show)
    saved = gates.gain(compared.verdict, change.batch_factor)
    return JudgedAgain(compared, gates.fast_enough(saved, state.terms, compared.verdict.why), saved.of)


def _kept(session: Session) -> tuple[Search, Candidate]:
    """Return the last search that kept a change, and the change. Raise UsageError."""
    state = try_advice.kept(session)
    assert state.decided and state.decided.kept
    return state, state.change(state.decided.kept)


def _of_plan(change: Candidate) -> dict[str, str]:
    return {name: setting for name, setting in change.settings.items() if name in sides.OF_A_PLAN}


def _entry(session: Session, change: Candidate, settings: Settings) -> dict[str, Any]:
    """Return the fields of the backend: those of the session's, with what the change sets."""
    fields = dict(recorded_run.plan_fields(session))
    side = sides.prepare(DuetSide(model=fields.pop("model"), options=change.settings), settings, fields)
    backend: BackendEntry = side.runs.workload.backend  # type: ignore[union-attr]
    return backend.model_dump(exclude_defaults=True, exclude={"name", "priority"}, mode="json")


def _with_entry(text: str, name: str, entry: Mapping[str, Any], path: Path) -> str:
    """Return the text of a file of backends with one more entry at its end. Raise UsageError."""
    block = yaml.safe_dump({name: dict(entry)}, sort_keys=False, allow_unicode=True)
    indented = "".join(f"  {line}\n" for line in block.splitlines())
    before = text if not text or text.endswith("\n") else text + "\n"
    merged = before + ("" if before.strip() else "backends:\n") + indented
    try:
        present = (yaml.safe_load(text) or {"backends": {}})["backends"] or {}
        expected = present | {name: dict(entry)}
        if yaml.safe_load(merged) == {"backends": expected}:
            return merged
    except (yaml.YAMLError, KeyError, TypeError):
        pass
    raise UsageError(f"{path}: an entry cannot be added at its end",
                     f"add this below `backends:` yourself:\n{indented}")


def _copy_model(settings: Settings, model_sha256: str, change: Candidate, target: Path) -> Path:
    source = trial_steps.rewritten_model(settings, model_sha256, change)
    if target.exists() and files.sha256(target) != files.sha256(source):
        raise UsageError(f"{target} is there already", "choose another name")
    content = source.read_bytes()
    files.write_atomically(target, lambda file: file.write(content))
    return target
