"""A plan becomes evidence: a model's graph, clean passes and profiled pass, or a command's runs; and the host."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aaco import __version__
from aaco.analytics import roofline
from aaco.calibration import card, cpu
from aaco.collectors import arguments, environment, machine
from aaco.collectors.arguments import Shown
from aaco.collectors.procfs import Sampler
from aaco.core import clocks, files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing, UsageError
from aaco.core.plan import HOST, Command, Plan
from aaco.core.session import Session
from aaco.runner import command as program
from aaco.runner import inputs, iterations, model_file, ort, registry
from aaco.runner.ort import Workload
from aaco.tracelake import layout

SCHEMA_VERSION = 1
OF_A_PASS = ("load_ms", "stopped_by", "null_loop", "telemetry")


@dataclass(frozen=True)
class Show:
    """Where talk goes while work goes on: a line per step, and (done, total) while something is counted."""

    step: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None


SILENT = Show()


@dataclass(frozen=True)
class Prepared:
    """A plan whose model, backend and inputs exist: nothing about it can be misspelt any more."""

    plan: Plan
    workload: Workload
    model: Any  # onnx.ModelProto without weight data
    identity: model_file.ModelIdentity

    @property
    def identifies(self) -> dict[str, Any]:
        """What session.json says of the plan: itself, and what tells whether two runs measured the same thing."""
        return {"plan": self.plan.model_dump(), "config_hash": _config_hash(self), "model_hash": self.identity.sha256,
                "backend_asked": self.workload.backend.provider,
                "synthetic_weights": self.workload.synthetic_weights}


@dataclass(frozen=True)
class PreparedCommand:
    """A plan whose command exists, and its words as they may be kept."""

    plan: Plan
    command: Command
    shown: Shown
    sha256: str  # of the executable

    @property
    def identifies(self) -> dict[str, Any]:
        """As Prepared's; the withheld words are not in it, so commands that differ only there count as the same."""
        words = self.shown.words
        plan = self.plan.model_dump() | {"command": self.command.model_dump() | {"argv": words}}
        return {"plan": plan, "config_hash": _digest({"argv": words}), "model_hash": self.sha256,
                "backend_asked": HOST}


def complete_plan(settings: Settings, model: str, given: dict[str, Any]) -> Plan:
    """The plan for a model: what is given, else the settings, else the model's registry entry, else Plan's default."""
    entry = registry.models(_files(settings, "models_file")).get(model)
    registered = entry.model_dump(include={"warmup", "iterations"}) if entry else {}
    chosen = settings.config.profiling.model_dump(include=set(Plan.model_fields))
    layers = (registered, chosen, given)
    wanted = {name: value for layer in layers for name, value in layer.items() if value is not None}
    try:
        return Plan(model=model, **wanted)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", "aaco run --help") from error


def prepare(plan: Plan, settings: Settings, show: Show = SILENT) -> Prepared | PreparedCommand:
    """Find or build the model, find the backend, make the inputs; or find the command.

    Raises ModelError, UsageError or Missing.
    """
    return _prepare_command(plan, plan.command) if plan.command else _prepare_model(plan, settings, show)


def _prepare_command(plan: Plan, command: Command) -> PreparedCommand:
    found = program.find(command.argv[0])
    with files.storage(found):
        return PreparedCommand(plan, command, arguments.shown(command.argv), files.sha256(found))


def _prepare_model(plan: Plan, settings: Settings, show: Show) -> Prepared:
    show.step(f"model {plan.model}")
    entries = registry.models(_files(settings, "models_file"))
    found = registry.resolve_model(plan.model, entries, settings.config.storage.cache_dir.expanduser() / "models")
    backend = registry.backend(plan.backend, registry.backends(_files(settings, "backends_file")))
    model = model_file.load(found.path, weights=False)
    arrays = inputs.for_model(model, found.entry, batch=plan.batch, seed=plan.seed, shapes=plan.shapes,
                              npz=Path(plan.inputs) if plan.inputs else None)
    workload = Workload(found.path, backend, arrays, found.synthetic)
    return Prepared(plan, workload, model, model_file.identity(found.path, model))


def _files(settings: Settings, key: str) -> list[Path]:
    """The user's registry file; the default one may be missing, one that was named may not."""
    path: Path = getattr(settings.config.storage, key)
    if settings.origins[f"storage.{key}"] != "default" and not path.is_file():
        raise UsageError(f"storage.{key}: {path} does not exist", "aaco config show  # where the setting comes from")
    return [path]


def begin(prepared: Prepared | PreparedCommand, settings: Settings, session: Session | None = None) -> Session:
    """A session's folder (a new one, unless given) with the first facts of the run. Raises StorageError."""
    facts, host = prepared.identifies, machine.identify()
    if session is None:
        session = Session.create(settings.config.storage.sessions_dir, facts["plan"], prepared.plan.tag, __version__)
    session.amend(clocks=asdict(clocks.snapshot()), machine_id=host.id, **facts)
    return session


def record(session: Session, prepared: Prepared | PreparedCommand, settings: Settings, show: Show = SILENT) -> None:
    """Keep what was measured on and with, then measure. Raises AacoError."""
    if isinstance(prepared, PreparedCommand):
        _keep_environment(session, None, show)
        _run_command(session, prepared, show)
    else:
        _record_model(session, prepared, settings, show)


def _record_model(session: Session, prepared: Prepared, settings: Settings, show: Show) -> None:
    """Keep the model's graph and the environment, then time and profile the workload."""
    _keep_model(session, prepared)
    _keep_environment(session, _ceilings(prepared, settings, show), show)
    runtime = _time(session, prepared, show)
    session.amend(backend_ran=runtime["providers"][0])
    if prepared.plan.profile:
        show.step(f"profiling {prepared.plan.profile_iterations} iterations in a separate process")
        runtime["profile"] = ort.profile_pass(session.folder, prepared.workload, prepared.plan)
        session.write_json(layout.ORT_CONFIG, runtime)


def _keep_model(session: Session, prepared: Prepared) -> None:
    graph = model_file.strip_weights(prepared.model).SerializeToString()
    files.write_atomically(session.folder / layout.SOURCE_GRAPH, lambda file: file.write(graph))
    session.write_json(layout.MODEL_META, {
        "schema_version": SCHEMA_VERSION, "name": prepared.plan.model, **asdict(prepared.identity),
        "synthetic_weights": prepared.workload.synthetic_weights})


def _keep_environment(session: Session, found: card.MachineCard | None, show: Show) -> None:
    show.step("environment")
    host = machine.identify()
    ceilings = {item.name: item.value for item in found.ceilings} if found else None
    facts = asdict(replace(host, ceilings=ceilings)) | {"card": found.model_dump(mode="json") if found else None}
    session.write_json(layout.ENVIRONMENT, environment.capture(Path.cwd()) | {"machine": facts})


def _ceilings(prepared: Prepared, settings: Settings, show: Show) -> card.MachineCard | None:
    """What this machine can do at most with the workload's threads; None where that is not to be measured."""
    if not settings.config.profiling.calibrate:
        return None
    threads = prepared.workload.backend.session_options.get("intra_op_num_threads") or None
    return _card(machine.identify().id, threads, settings, show)


def calibrate(settings: Settings) -> tuple[card.MachineCard, list[card.Drift]]:
    """Measure this machine's ceilings now and keep them; also what moved since the card in the cache, however old."""
    cache, host = settings.config.storage.cache_dir.expanduser(), machine.identify()
    before = card.load(cache, host.id, max_age_s=float("inf"))
    found = card.MachineCard(machine_id=host.id, ceilings=cpu.measure())
    card.save(found, cache)
    return found, card.drift(before, found) if before else []


def _card(machine_id: str, threads: int | None, settings: Settings, show: Show) -> card.MachineCard | None:
    """This machine's ceilings at a thread count (None: all CPUs), from the cache or, where it has none, measured.

    None where it cannot be measured: the run goes on, and readings that need ceilings are absent.
    """
    cache = settings.config.storage.cache_dir.expanduser()
    kept = card.load(cache, machine_id, tell=show.step)
    wanted = threads or len(os.sched_getaffinity(0))
    if kept and any(item.threads == wanted for item in kept.ceilings if item.name == roofline.PEAK):
        return kept
    show.step("measuring this machine's ceilings (once a day on a quiet machine)")
    try:
        found = card.MachineCard(machine_id=machine_id, ceilings=cpu.measure(wanted))
    except Missing as reason:
        show.step(f"no ceilings: {reason.what}")
        return None
    card.save(found, cache)
    return found


def _time(session: Session, prepared: Prepared, show: Show) -> dict[str, Any]:
    """All clean passes, one fresh process after the other; the runtime's facts are kept after each."""
    plan, workload = prepared.plan, prepared.workload
    total = plan.warmup + plan.iterations
    runtime: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION, "backend": plan.backend, "provider": workload.backend.provider,
        "provider_options": workload.backend.provider_options, "session_options": workload.backend.session_options,
        "fed": [{"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
                for name, array in workload.inputs.items()], "passes": []}
    session.write_json(layout.ORT_CONFIG, runtime)
    for process in range(plan.processes):
        show.step(f"timing {plan.iterations} iterations after {plan.warmup} of warm-up "
                  f"(process {process + 1} of {plan.processes})")
        facts = _time_once(session, prepared, process, lambda rows: show.progress(rows, total))
        runtime["passes"].append({name: facts.pop(name) for name in OF_A_PASS})
        runtime |= facts
        session.write_json(layout.ORT_CONFIG, runtime)
    return runtime


def _time_once(session: Session, prepared: Prepared, process: int, progress: Callable[[int], None]) -> dict[str, Any]:
    with _telemetry(session, prepared.plan, process) as (watch, samplers):
        facts = ort.time_pass(session.folder, prepared.workload, prepared.plan, process, progress=progress,
                              started=watch)
    return facts | {"telemetry": samplers[0].overhead if samplers else None}


@contextmanager
def _telemetry(session: Session, plan: Plan, process: int) -> Iterator[tuple[Callable[[int], None], list[Sampler]]]:
    """What to call with a process's id so that it is sampled until the end of the block, and the sampler, if any."""
    samplers: list[Sampler] = []

    def watch(pid: int) -> None:
        if plan.telemetry:
            started = Sampler(pid, raw=session.folder / layout.PROCFS_RAW / f"procfs-{process:03d}.bin")
            started.start()
            samplers.append(started)

    try:
        yield watch, samplers
    finally:
        for running in samplers:
            running.stop()


def _run_command(session: Session, prepared: PreparedCommand, show: Show) -> None:
    """Every run, one fresh process after the other; the facts are kept after each. Raises AacoError for a failed run.
    """
    plan = prepared.plan
    total = plan.warmup + plan.processes
    facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "argv": prepared.shown.words,
                             "executable_sha256": prepared.sha256, "runs": []}
    session.write_json(layout.COMMAND, facts)
    for process in range(total):
        phase = iterations.PHASES[process >= plan.warmup]
        show.step(f"{phase}: run {process + 1} of {total} of {plan.model}")
        ran, its_facts = _run_once(session, prepared, process, phase)
        facts["runs"].append(its_facts)
        session.write_json(layout.COMMAND, facts)
        if ran.code and not prepared.command.ignore_failure:
            said = f": {ran.last_words}" if ran.last_words else ""
            raise AacoError(f"run {process + 1} of {total} of {plan.model} {program.ending(ran.code)}{said}",
                            "--ignore-failure goes on and counts its time all the same")
        show.progress(process + 1, total)
    session.amend(backend_ran=HOST)


def _run_once(session: Session, prepared: PreparedCommand, process: int,
              phase: str) -> tuple[program.Ran, dict[str, Any]]:
    """One run and its facts, what it said freed of what is withheld from its words."""
    command, hide = prepared.command, prepared.shown.hide
    with _telemetry(session, prepared.plan, process) as (watch, samplers):
        ran = program.run(command.argv, command.timeout_s, watch)
    ran = replace(ran, stdout=hide(ran.stdout), stderr=hide(ran.stderr))
    program.keep(session.folder, process, phase, ran)
    facts = {name: value for name, value in asdict(ran).items() if name not in ("stdout", "stderr")}
    return ran, {"process": process, "phase": phase, **facts,
                 "telemetry": samplers[0].overhead if samplers else None}


def _config_hash(prepared: Prepared) -> str:
    """What must be equal for two runs to be the same experiment; the model and the machine have hashes of their own."""
    plan, backend = prepared.plan, prepared.workload.backend
    fed = {name: [str(array.dtype), list(array.shape)] for name, array in prepared.workload.inputs.items()}
    facts = {"provider": backend.provider, "provider_options": backend.provider_options,
             "session_options": backend.session_options, "batch": plan.batch, "inputs": fed}
    return _digest(facts)


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
