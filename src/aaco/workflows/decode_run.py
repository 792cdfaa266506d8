"""A decoder under a load in a process of its own: `aaco llm MODEL` and `aaco llm --genai DIR`."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from aaco.analytics.llm.load import PROCESS, EndpointLoad, InProcess
from aaco.core import files
from aaco.core.arrays import Ints
from aaco.core.config import Settings
from aaco.core.documents import encode
from aaco.core.errors import UsageError
from aaco.core.records import as_dict
from aaco.core.session import TRACED_BY
from aaco.core.show import SILENT, Show
from aaco.llm import arrivals, genai_folder
from aaco.llm.decode_worker import DecodeJob
from aaco.llm.prompts import Lengths
from aaco.pipeline import Run
from aaco.runner import measured, model_file, ort, registry
from aaco.runner.job import Job
from aaco.runner.measured import MeasuredProcess
from aaco.runner.ort import Workload
from aaco.steps import choose_backend
from aaco.steps.device import telemetry
from aaco.steps.run import complete_plan, registry_files
from aaco.steps.seal import outcome, seal
from aaco.tracelake import layout
from aaco.workflows.llm_session import REQUESTS, begin


class DecodeRequest(Struct, frozen=True):
    """What to ask of which decoder, as a user gives it.

    model: a name of the registry, or an .onnx file; genai: the folder of a model of onnxruntime-genai in its place.
    rate_per_s, poisson_per_s: at most one; neither: a batch when the one before has ended.
    telemetry: record this machine's devices.
    """

    model: str = ""
    genai: Path | None = None
    backend: str | None = None
    batch: int = 1
    requests: int | None = None
    rate_per_s: float | None = None
    poisson_per_s: float | None = None
    prompt_tokens: str = "128"
    max_tokens: str = "64"
    terms: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    telemetry: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be."""
        if bool(self.model) == bool(self.genai):
            raise UsageError("--genai DIR is a model of its own", "give MODEL or --genai")
        if self.genai and self.backend:
            raise UsageError("--backend: a model of onnxruntime-genai names its provider itself",
                             "leave out --backend")
        if self.rate_per_s and self.poisson_per_s:
            raise UsageError("--rate and --poisson: two plans of when to send", "give one of them")


def is_model(text: str, settings: Settings) -> bool:
    """Return whether a target is a model of the registry or a file, and no address. Raise UsageError."""
    return "://" not in text and (
        text.endswith(".onnx") or text in registry.models(registry_files(settings, "models_file")))


def ask_decoder(request: DecodeRequest, settings: Settings, tag: str = "", show: Show = SILENT) -> Run:
    """Send a load to a decoder in a fresh process, keep when each token came, and explain it. Raise AacoError."""
    drawn, count = np.random.default_rng(request.seed), request.requests or REQUESTS
    prompts, answers = (_lengths(text, option, count, drawn) for text, option in (
        (request.prompt_tokens, "--prompt-tokens"), (request.max_tokens, "--max-tokens")))
    with tempfile.TemporaryDirectory(prefix="aaco-") as name, files.storage(Path(name)):
        scratch = Path(name)
        workload, process = _found(request, settings, show)
        due = _due(request, count)
        load = _document(request, process, count)
        session = begin(load, settings, tag, request.telemetry)
        with outcome(session):
            record = (session.folder / layout.READS).resolve()
            job = DecodeJob(
                parent=os.getpid(), outcome=str(scratch / "outcome.json"), record=str(record),
                runtime=_runtime(workload, scratch) if workload else None,
                genai=str(request.genai.resolve()) if request.genai else "", prompts=prompts, answers=answers,
                due_ns=None if due is None else due.tolist(), batch=request.batch, seed=request.seed)
            show.step(f"{load.model} answers {count:,} requests")
            with telemetry.devices_and_packages(session, request.telemetry):
                ran = measured.run([MeasuredProcess("aaco.llm.decode_worker", as_dict(job), Path(job.outcome),
                                                    scratch / "stderr")])[0]
            session.write_json(layout.LOAD, encode(replace(load, process=replace(process, engine=ran["engine"]))))
            show.step("explaining")
            return Run(session, seal(session, settings, "complete", show))


def _lengths(text: str, option: str, count: int, drawn: np.random.Generator) -> list[int]:
    lengths = Lengths.parse(text, option)
    return [lengths.draw(drawn) for _ in range(count)]


def _due(request: DecodeRequest, count: int) -> Ints | None:
    if request.rate_per_s:
        return arrivals.constant(request.rate_per_s, count)
    return arrivals.poisson(request.poisson_per_s, count, request.seed) if request.poisson_per_s else None


def _found(request: DecodeRequest, settings: Settings, show: Show) -> tuple[Workload | None, InProcess]:
    """Return the model to load and what it is; of onnxruntime-genai only the latter. Raise AacoError."""
    if request.genai:
        return None, InProcess("", "", _identity(request.genai), request.batch)
    plan = complete_plan(settings, request.model, {"backend": request.backend}, show)
    backend = registry.backend(plan.backend, registry.backends(registry_files(settings, "backends_file")))
    choose_backend.refuse_missing(backend)
    resolved = _resolved(request.model, settings)
    workload = Workload(resolved.path, backend, {}, resolved.synthetic)
    return workload, InProcess("", backend.name, model_file.identity(resolved.path).sha256, request.batch)


def _resolved(model: str, settings: Settings) -> registry.ResolvedModel:
    return registry.resolve_model(model, registry.models(registry_files(settings, "models_file")),
                                  settings.config.storage.cache_dir.expanduser() / "models")


def write_genai(model: str, folder: Path, settings: Settings) -> None:
    """Write a decoder, by its name or file, as a folder for `--genai`. Raise AacoError."""
    genai_folder.write(_resolved(model, settings).path, folder)


def _runtime(workload: Workload, scratch: Path) -> dict[str, Any]:
    """Return the fields of the runner's job that opens the model."""
    return as_dict(Job(kind="time", rows="", account="", warmup=0, iterations=0, **ort.job_of(workload, scratch)))


def _identity(folder: Path) -> str:
    """Return the hash of the files of a folder, by name. Raise UsageError, StorageError."""
    import onnxruntime_genai  # noqa: F401 - the process that answers loads it; without it there is no session

    if not (folder / genai_folder.CONFIG).is_file():
        raise UsageError(f"{folder}: no model of onnxruntime-genai: it has no {genai_folder.CONFIG}", 
                         f"aaco models --genai llama-tiny {folder}")
    digest = hashlib.sha256()
    with files.storage(folder):
        for path in sorted(folder.iterdir()):
            if path.is_file():
                digest.update(f"{path.name}\0{files.sha256(path)}\0".encode())
    return digest.hexdigest()


def _document(request: DecodeRequest, process: InProcess, count: int) -> EndpointLoad:
    name = request.model or request.genai.resolve().name if request.genai else request.model
    timed = request.rate_per_s or request.poisson_per_s
    return EndpointLoad(
        url=f"{PROCESS}{name}", api="process", model=name, answers_as=[], requests=count,
        arrivals="constant" if request.rate_per_s else "poisson" if request.poisson_per_s else "closed",
        rate_per_s=timed, concurrency=request.batch, prompts="random tokens", prompt_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens, shared_prefix_pct=0.0, body="{}", seed=request.seed, gap_timeout_s=0.0,
        timeout_s=0.0, terms=dict(request.terms), process=process,
        device_session=os.environ.get(TRACED_BY, ""))
