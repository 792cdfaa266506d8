"""Sessions of models, and searches over changes that are planted in the place of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from numpy.typing import NDArray

from aaco import pipeline
from aaco.core.candidate import Candidate
from aaco.core.config import Settings, resolve
from aaco.core.session import Session
from aaco.core.show import Show
from aaco.optimize import recorded_run
from aaco.optimize.search import Search
from aaco.runner import duet, ort
from aaco.tracelake.document_schemas.ledger import TurnsMeasured
from aaco.workflows import trial_steps, try_advice
from aaco.workflows.duet import sides
from aaco.workflows.duet.sides import DuetSide
from benchmarks.try_advice import _models

Array = NDArray[np.generic]
# Options that change nothing where operators run one after the other, and one that nobody reads.
NOTHING: Sequence[Mapping[str, str]] = (
    {"session.inter_op.allow_spinning": "0"}, {"inter_op_threads": "1"}, {"session.nobody_reads_this": "1"},
    {"session.disable_cpu_ep_fallback": "0"}, {"session.use_device_allocator_for_initializers": "0"})


class Planted(Struct, frozen=True):
    """A change that is planted: its kind, and the changed model where it has one."""

    kind: str
    change: Candidate
    model: onnx.ModelProto | None = None


class Ended(Struct, frozen=True):
    """How far a planted change came: by which gate it was refused, or that it was kept; and why."""

    kind: str
    gate: str
    why: str


class Subject(Struct, frozen=True):
    """A recorded session of a model, with its inputs and outputs by name."""

    session: Session
    settings: Settings
    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def settings_in(folder: Path, backends: Path | None = None) -> Settings:
    """Return settings that keep everything in the folder. backends: the user's file of backends."""
    places = {"sessions_dir": folder / "sessions", "baselines_dir": folder / "baselines",
              "cache_dir": folder / "cache"} | ({"backends_file": backends} if backends else {})
    return resolve(overrides={"storage": {name: str(path) for name, path in places.items()},
                              "profiling": {"calibrate": False}}, environment={}, overridden_by="benchmarks.try_advice")


def record(folder: Path, model: Path | str, iterations: int = 100, backends: Path | None = None,
           **plan: Any) -> Subject:
    """Run a model as `aaco run` does, and keep what it computed of its inputs. backends: the user's file of them."""
    settings = settings_in(folder, backends)
    session = pipeline.observe(pipeline.plan(settings, str(model), iterations=iterations, warmup=5, **plan), settings)
    opened = Session.open(session.folder)
    fields = recorded_run.plan_fields(opened)
    runs = sides.prepare(DuetSide(model=fields.pop("model")), settings, fields).runs
    assert isinstance(runs, duet.ModelSide)
    computed, _ = ort.run_once(runs.workload)
    outputs = {output.name: output.values.reshape(output.shape) for output in computed if output.values is not None}
    return Subject(opened, settings, onnx.load(runs.workload.model), runs.workload.inputs, outputs)


def no_changes(count: int) -> list[Planted]:
    """Return so many changes that are none."""
    made = []
    for number in range(count):
        options = dict(NOTHING[number % len(NOTHING)])
        name = f"nothing_{number}"
        options |= {f"session.aaco_unread_{number}": "1"} if number >= len(NOTHING) else {}
        made.append(Planted("option that does nothing", Candidate(name, name, options)))
    return made


def rewritten(kind: str, name: str, model: onnx.ModelProto, settings: Mapping[str, str] | None = None,
              precisions: tuple[str, ...] = ()) -> Planted:
    """Return a change of the model file."""
    return Planted(kind, Candidate(name, kind, settings or {}, rewrite=name, precisions=precisions), model)


def search(subject: Subject, planted: Sequence[Planted], seed: int, budget_s: float = 900.0,
           step: Callable[[str], None] = lambda text: None) -> list[Any]:
    """Search over the planted changes alone; return the lines of the search. step: hears what is done."""
    for one in planted:
        if one.model is not None:
            sha256 = subject.session.record.model_hash or ""
            _models.save(one.model, trial_steps.rewritten_model(subject.settings, sha256, one.change))
    request = try_advice.TryRequest(everything=True, budget_s=budget_s, seed=seed)
    tried = try_advice.try_advice(subject.session, request, subject.settings, Show(step=step),
                                  catalogue=lambda facts: ([one.change for one in planted], []))
    return list(tried.lines)


def ended(lines: Sequence[Any], planted: Sequence[Planted]) -> list[Ended]:
    """Return how far each planted change came."""
    state = Search(lines)
    return [Ended(one.kind, *_gate(state, one.change.name)) for one in planted]


def _gate(state: Search, name: str) -> tuple[str, str]:
    assert state.decided is not None
    kept = (state.decided.kept or "").split(" + ")
    if name in kept:
        return "KEPT", state.decided.why
    if name not in state.checked or not state.checked[name].passed:
        checked = state.checked.get(name)
        why = checked.why if checked else "not looked at"
        return ("does not run" if why.startswith("does not run") else "outputs" if checked else "budget"), why
    screened, confirmed = state.screened.get(name), state.confirmed.get(name)
    if confirmed is None:
        if screened is None:
            return "budget", "not timed"
        ran = bool(screened.log_ratios)
        return ("first look" if ran else "does not run"), screened.why or f"{100 * state.gain(name):.1f} % faster"
    again = state.again
    if confirmed.passed:
        return "last comparison", again.why if again is not None else "another was faster"
    return _of_confirmation(confirmed), confirmed.why


def _of_confirmation(line: TurnsMeasured) -> str:
    if not line.session:
        return "does not run"
    return "guards" if any(guard.worse for guard in line.guards) else "confirmation"
