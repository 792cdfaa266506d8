"""A plan becomes evidence: a model's graph, clean passes and profiled pass, or a command's runs; and the host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from aaco import __version__
from aaco.analytics.quality import features, sentinel
from aaco.calibration import card
from aaco.calibration.driver import Vendor
from aaco.collectors.inventory import environment, machine
from aaco.core import clocks, files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, UsageError, first_problem
from aaco.core.machine import Machine
from aaco.core.plan import HOST, LONGEST_WARMUP, Command, Plan
from aaco.core.providers import MEMORY, MIGRAPHX, ON_CUDA
from aaco.core.records import as_dict
from aaco.core.redaction import redact
from aaco.core.redaction.command_line import RedactedCommand, redact_command
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.runner import command as program
from aaco.runner import dimensions, inputs, iterations, model_file, ort, registry, self_accounting
from aaco.runner.ort import Workload
from aaco.steps import calibrate, choose_backend, lab_session
from aaco.steps.device import cooldown, counter_passes, telemetry, trace_passes
from aaco.steps.device.choose_profiler import ProfilerShare
from aaco.tracelake import layout, outputs

SCHEMA_VERSION = 1
MOST_TIMES = 3  # as many processes as were asked for, at most, to have enough clean iterations
OF_A_PASS = ("load_ms", "warmup", "stopped_by", "null_loop", "witness", "probes", "cpu", "telemetry", "cooling")


class PreparedModel(Struct, frozen=True):
    """A plan with an existing model, backend and inputs: nothing about it is misspelt."""

    plan: Plan
    fixed_batch: bool  # the model takes no other batch
    workload: Workload
    model: Any  # onnx.ModelProto without weight data
    identity: model_file.ModelIdentity
    counting: ProfilerShare | None = None  # what counts the device's kernels, where that is wanted

    @property
    def identifies(self) -> dict[str, Any]:
        """Return what session.json holds of the plan: the plan, and what identifies the same measurement."""
        return {"plan": self.plan.model_dump(), "config_hash": _config_hash(self), "model_hash": self.identity.sha256,
                "backend_asked": self.workload.backend.provider,
                "synthetic_weights": self.workload.synthetic_weights}


class PreparedCommand(Struct, frozen=True):
    """A plan with an existing command, and its words after redaction."""

    plan: Plan
    command: Command
    shown: RedactedCommand
    sha256: str  # of the executable

    @property
    def identifies(self) -> dict[str, Any]:
        """As Prepared's; the redacted words are not in it, so commands that differ only there count as the same."""
        words = self.shown.words
        plan = self.plan.model_dump() | {"command": self.command.model_dump() | {"argv": words}}
        return {"plan": plan, "config_hash": _digest({"argv": words}), "model_hash": self.sha256,
                "backend_asked": HOST}


class Begun(Struct, frozen=True):
    """A session with its folder, and the machine that it is recorded on."""

    session: Session
    host: Machine


def complete_plan(settings: Settings, model: str, given: dict[str, Any], show: Show = SILENT) -> Plan:
    """The plan for a model: what is given, else the settings, else the model's registry entry, else Plan's default.

    The backend of `auto` is decided here and written into the plan. Raise UsageError, or Missing if there is none.
    """
    entry = registry.models(registry_files(settings, "models_file")).get(model)
    registered = entry.model_dump(include={"warmup", "iterations"}) if entry else {}
    defaults = settings.config.profiling.model_dump(include=set(Plan.model_fields))
    layers = (registered, defaults, given)
    plan_fields = {name: value for layer in layers for name, value in layer.items() if value is not None}
    if plan_fields.get("warmup") == "auto":
        plan_fields |= {"warmup": LONGEST_WARMUP, "settle": True}
    plan_fields |= _chosen_backend(plan_fields.get("backend"), settings, show)
    try:
        return Plan(model=model, **plan_fields)
    except ValidationError as error:
        raise UsageError(first_problem(error), "aaco run --help") from error


def _chosen_backend(asked: Any, settings: Settings, show: Show) -> dict[str, str]:
    """Return the backend of `auto`, and why. A default that leaves a device unused gives a message."""
    if asked not in (None, registry.AUTO):
        return {}
    entries = registry.backends(registry_files(settings, "backends_file"))
    if asked is None:
        default = Plan.model_fields["backend"].default
        if better := choose_backend.unused(entries, default):
            show.step(f"backend {default}, by default; {better} would run here: --backend {better}, or auto")
        return {}
    name, why = choose_backend.choose(entries)
    show.step(f"backend {name}: {why}")
    return {"backend": name, "backend_why": why}


def prepare(plan: Plan, settings: Settings, show: Show = SILENT) -> PreparedModel | PreparedCommand:
    """Find or build the model, find the backend, make the inputs; or find the command.

    Raises ModelError, UsageError or Missing.
    """
    return _prepare_command(plan, plan.command) if plan.command else _prepare_model(plan, settings, show)


def resized(plan: Plan, settings: Settings, name: str, sizes: Sequence[int]) -> list[Plan]:
    """The plan of a model at each size of a dynamic dimension of its inputs. Raises AacoError."""
    prepared = _prepare_model(plan, settings, SILENT)
    specs = inputs.specs(prepared.model)
    shapes = {input_name: array.shape for input_name, array in prepared.workload.inputs.items()}
    return [prepared.plan.model_copy(update={
        "shapes": plan.shapes | dimensions.resized(specs, shapes, name, size)}) for size in sizes]


def _prepare_command(plan: Plan, command: Command) -> PreparedCommand:
    program_path = program.find(command.argv[0])
    with files.storage(program_path):
        return PreparedCommand(plan, command, redact_command(command.argv), files.sha256(program_path))


def _prepare_model(plan: Plan, settings: Settings, show: Show) -> PreparedModel:
    backend = registry.backend(plan.backend, registry.backends(registry_files(settings, "backends_file")))
    choose_backend.refuse_missing(backend)
    show.step(f"model {plan.model}")
    entries = registry.models(registry_files(settings, "models_file"))
    resolved = registry.resolve_model(plan.model, entries, settings.config.storage.cache_dir.expanduser() / "models")
    model = model_file.load(resolved.path, weights=False)
    fed = inputs.for_model(model, resolved.entry, batch=plan.batch, seed=plan.seed, shapes=plan.shapes,
                           npz=Path(plan.inputs) if plan.inputs else None)
    redacted, made = model_file.redact_nodes(model), model_file.name_nodes(model)
    if plan.io == "device" and backend.provider not in MEMORY:
        raise UsageError(f"--io device: {plan.backend} has no memory of a device that data could stay in", "--io host")
    workload = Workload(resolved.path, backend, fed.arrays, resolved.synthetic, model if made or redacted else None,
                        made, plan.io == "device", _custom_ops(plan))
    counting = counter_passes.asked(plan, backend.provider, settings.config.storage.sessions_dir)
    return PreparedModel(plan.model_copy(update={"batch": fed.batch}), fed.fixed, workload, model,
                         model_file.identity(resolved.path, model), counting)


def _custom_ops(plan: Plan) -> tuple[str, ...]:
    """Return the whole paths of the plan's libraries of custom operators. Raise UsageError for one that is no file."""
    for library in plan.custom_ops:
        if not Path(library).is_file():
            raise UsageError(f"--custom-op {library}: no such file", "check the path")
    return tuple(str(Path(library).resolve()) for library in plan.custom_ops)


def registry_files(settings: Settings, key: str) -> list[Path]:
    """The user's registry file; the default one may be missing, one that was named may not."""
    path: Path = getattr(settings.config.storage, key)
    if settings.origins[f"storage.{key}"] != "default" and not path.is_file():
        raise UsageError(f"storage.{key}: {path} does not exist", "aaco config show  # where the setting comes from")
    return [path]


def begin(prepared: PreparedModel | PreparedCommand, settings: Settings, session: Session | None = None) -> Begun:
    """A session's folder (a new one, unless given) with the first facts of the run. Raises StorageError.

    The machine is identified here, once: with NVIDIA GPUs that starts nvidia-smi, which may take seconds.
    """
    facts, host = prepared.identifies, machine.identify()
    if session is None:
        session = Session.create(settings.config.storage.sessions_dir, facts["plan"], prepared.plan.tag, __version__)
    session.amend(clocks=as_dict(clocks.snapshot()), machine_id=host.id, **facts)
    return Begun(session, host)


def record(begun: Begun, prepared: PreparedModel | PreparedCommand, settings: Settings, show: Show = SILENT) -> None:
    """Write down the machine and the software, then measure. Raise AacoError.

    A laboratory that the plan asks for is around every pass, but not around the measuring of the machine's ceilings.
    """
    if isinstance(prepared, PreparedCommand):
        _keep_environment(begun, None, show)
        with lab_session.around(begun.session, prepared.plan, settings), \
                telemetry.devices(begun.session, prepared.plan.watched_by):
            _run_command(begun.session, prepared, show)
    else:
        _record_model(begun, prepared, settings, show)


def _record_model(begun: Begun, prepared: PreparedModel, settings: Settings, show: Show) -> None:
    """Keep the model's graph and the environment, then time and profile the workload."""
    session = begun.session
    _keep_model(session, prepared)
    _keep_environment(begun, _ceilings(begun.host, prepared, settings, show), show)
    with lab_session.around(session, prepared.plan, settings), \
            telemetry.devices(session, prepared.plan.watched_by):
        runtime = _time(session, prepared, show)
        session.amend(backend_ran=runtime["providers"][0])
        if prepared.plan.profile:
            show.step(f"profiling {prepared.plan.profile_iterations} iterations in a separate process")
            for facts in trace_passes.profile(session.folder, prepared.workload, prepared.plan, show,
                                              prepared.counting):
                runtime |= facts
                session.write_json(layout.ORT_CONFIG, runtime)


def _keep_model(session: Session, prepared: PreparedModel) -> None:
    graph = model_file.strip_weights(prepared.model).SerializeToString()
    files.write_atomically(session.folder / layout.SOURCE_GRAPH, lambda file: file.write(graph))
    session.write_json(layout.MODEL_META, {
        "schema_version": SCHEMA_VERSION, "name": prepared.plan.model, **as_dict(prepared.identity),
        "synthetic_weights": prepared.workload.synthetic_weights})


def _keep_environment(begun: Begun, measured_card: card.MachineCard | None, show: Show) -> None:
    show.step("environment")
    ceilings = {item.name: item.value for item in measured_card.ceilings} if measured_card else None
    facts = as_dict(replace(begun.host, ceilings=ceilings)) | {"card": measured_card.model_dump(mode="json")
                                                              if measured_card else None}
    begun.session.write_json(layout.ENVIRONMENT, environment.capture(Path.cwd()) | {"machine": facts})


def _ceilings(host: Machine, prepared: PreparedModel, settings: Settings, show: Show) -> card.MachineCard | None:
    """What this machine can do at most with the workload's threads; None where that is not to be measured."""
    if not settings.config.profiling.calibrate:
        return None
    backend = prepared.workload.backend
    vendor: Vendor | None = "NVIDIA" if backend.provider in ON_CUDA else "AMD" if backend.provider == MIGRAPHX else None
    number = backend.provider_options.get("device_id", "0")
    if vendor and not number.isdecimal():
        show.step(f"no ceilings of a GPU: device_id {number!r} is no number")
        return None
    place = calibrate.DeviceAddress(vendor, int(number)) if vendor else None
    return calibrate.of_run(host, backend.intra_op_threads or None, place, settings, show)


def _time(session: Session, prepared: PreparedModel, show: Show) -> dict[str, Any]:
    """All clean passes, one fresh process after the other; the runtime's facts are kept after each."""
    plan, workload = prepared.plan, prepared.workload
    total = plan.warmup + plan.iterations
    runtime: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION, "backend": plan.backend, "provider": workload.backend.provider,
        "provider_options": workload.backend.provider_options, "session_options": workload.backend.session_options,
        "graph_optimization": workload.backend.graph_optimization,
        "custom_ops": [{"path": redact(library), "sha256": files.sha256(Path(library))}
                       for library in workload.custom_ops],
        "fed": [{"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "sha256": outputs.digest(array)}
                for name, array in workload.inputs.items()],
        "batch": plan.batch, "batch_fixed_by_model": prepared.fixed_batch, "produced": None, "passes": []}
    session.write_json(layout.ORT_CONFIG, runtime)
    for process in _processes(session, plan):
        more = f"{process + 1} of {plan.processes}" if process < plan.processes else "one more: too few were clean"
        warm = f"{plan.warmup}{' at most' if plan.settle else ''}"
        show.step(f"timing {plan.iterations} iterations after {warm} of warm-up (process {more})")
        facts = _time_once(session, prepared, process, lambda rows: show.progress(rows, total), show)
        runtime["passes"].append({name: facts.pop(name) for name in OF_A_PASS})
        produced = facts.pop("produced") or runtime["produced"]
        runtime |= facts | {"produced": produced}
        session.write_json(layout.ORT_CONFIG, runtime)
        if plan.settle:
            show.step(_settled(runtime["passes"][-1]["warmup"]))
    return runtime


def _settled(warmup: dict[str, Any]) -> str:
    """How a warm-up ended that was to go on until the latencies had settled."""
    had = "had" if warmup["stopped_by"] == "settled" else "had not"
    most = "" if warmup["stopped_by"] == "settled" else ", which is the most"
    return f"the latencies {had} settled after {warmup['iterations']} iterations of warm-up{most}"


def _processes(session: Session, plan: Plan) -> Iterator[int]:
    """Run the requested processes; under --noise repeat, more while too few iterations are clean, up to a bound."""
    yield from range(plan.processes)
    most = plan.processes * (MOST_TIMES if plan.noise == "repeat" else 1)
    for process in range(plan.processes, most):
        made, clean = _made(session, plan.processes)
        if clean >= made:
            return
        yield process


def _made(session: Session, processes: int) -> tuple[int, int]:
    """Iterations measured by the first processes, and clean ones of all, by what the processes kept of themselves."""
    made = iterations.parse(session.folder, None)
    account = self_accounting.parse(session.folder)
    made = sentinel.tag(made, features.of_iterations(made, None, None, account), only_clean=True)
    made = made.filter(pc.equal(made["phase"].cast(pa.string()), "measurement"))
    return pc.sum(pc.less(made["process"], processes)).as_py() or 0, pc.sum(made["counted"]).as_py() or 0


def _time_once(session: Session, prepared: PreparedModel, process: int, progress: Callable[[int], None],
               show: Show) -> dict[str, Any]:
    cooled = cooldown.before(prepared.plan.cool_s, show)
    with telemetry.system(session, prepared.plan.watched_by, process, show) as watch:
        facts = ort.time_pass(
            session.folder, prepared.workload, prepared.plan, process, progress=progress, started=watch.begin,
            environment=telemetry.marks(session, process) if prepared.plan.watched_by else {})
    return facts | {"telemetry": watch.told, "cooling": cooled}


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
        ran, its_facts = _run_once(session, prepared, process, phase, show)
        facts["runs"].append(its_facts)
        session.write_json(layout.COMMAND, facts)
        if ran.code and not prepared.command.ignore_failure:
            ending = f": {ran.last_words}" if ran.last_words else ""
            raise AacoError(f"run {process + 1} of {total} of {plan.model} {program.ending(ran.code)}{ending}",
                            "--ignore-failure goes on and counts its time all the same")
        show.progress(process + 1, total)
    session.amend(backend_ran=HOST)


def _run_once(session: Session, prepared: PreparedCommand, process: int, phase: str,
              show: Show) -> tuple[program.Ran, dict[str, Any]]:
    """Return one run and its facts, with the command line's credentials redacted in its output."""
    command, redact_output = prepared.command, prepared.shown.redact_output
    cooled = cooldown.before(prepared.plan.cool_s, show)
    with telemetry.system(session, prepared.plan.watched_by, process, show) as watch:
        ran = program.run(command.argv, command.timeout_s, watch.begin, telemetry.marks(session, process))
    ran = replace(ran, stdout=redact_output(ran.stdout), stderr=redact_output(ran.stderr))
    program.keep(session.folder, process, phase, ran)
    facts = {name: value for name, value in as_dict(ran).items() if name not in ("stdout", "stderr")}
    return ran, {"process": process, "phase": phase, **facts, "telemetry": watch.told, "cooling": cooled}


def _config_hash(prepared: PreparedModel) -> str:
    """What must be equal for two runs to be the same experiment; the model and the machine have hashes of their own."""
    plan, backend = prepared.plan, prepared.workload.backend
    fed = {name: [str(array.dtype), list(array.shape)] for name, array in prepared.workload.inputs.items()}
    facts = {"provider": backend.provider, "provider_options": backend.provider_options,
             "session_options": backend.session_options, "graph_optimization": backend.graph_optimization,
             "batch": plan.batch, "inputs": fed}
    libraries = [files.sha256(Path(library)) for library in prepared.workload.custom_ops]
    # Older sessions are all of the host, and without libraries.
    return _digest(facts | ({"io": plan.io} if plan.io != "host" else {})
                   | ({"custom_ops": libraries} if libraries else {}))


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
