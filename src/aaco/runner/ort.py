"""ONNX Runtime passes in fresh processes: the clean timing passes, and the profiled one."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from msgspec import Struct

from aaco.core import files
from aaco.core.errors import AacoError
from aaco.core.plan import Plan
from aaco.core.records import as_dict
from aaco.runner import iterations, measured, model_file, self_accounting, surroundings
from aaco.runner.job import Job
from aaco.runner.measured import MeasuredProcess
from aaco.runner.registry import BackendEntry
from aaco.tracelake import layout, outputs

# The profile holds the warm-up runs too, and a million events at most; what settles at all (allocations, caches,
# clocks) has settled after some tens of runs.
PROFILE_WARMUP = (2, 50)
# How long a traced process may take, and how long its tracer may go on once its work is done.
TRACED_S, FINISHING_S = 1800.0, 300.0
FIX = "aaco trace -- PROGRAM  # shows what the tracer says"

Progress = Callable[[int], None]
Started = Callable[[int], None]


class Workload(Struct, frozen=True):
    """A model file, the backend to run it on, and one array per input."""

    model: Path
    backend: BackendEntry
    inputs: dict[str, np.ndarray]
    synthetic_weights: bool
    named: Any = None  # onnx.ModelProto with names for nodes, if a profile needs them
    names_made: int = 0
    resident: bool = False  # inputs and outputs stay in the device's memory
    custom_ops: tuple[str, ...] = ()  # libraries of custom operators, as whole paths


def time_pass(folder: Path, workload: Workload, plan: Plan, process: int, *, progress: Progress = lambda rows: None,
              started: Started = lambda pid: None, canaries: bool = False,
              environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Time the workload in one fresh process; write its rows to the session folder as they happen.

    The first process also writes the outputs of its last inference there. progress gets the rows so far, started the
    process id; environment is added to this process's environment. Return the process's report. Raise the AacoError the
    process met, or one that says how it died.
    """
    rows = iterations.path_of(folder, process)
    with files.storage(rows):
        rows.parent.mkdir(parents=True, exist_ok=True)
    with scratch_of(workload) as scratch:
        job = Job(kind="time", rows=str(rows.resolve()),
                  account=str(self_accounting.path_of(folder, process).resolve()),
                  warmup=plan.warmup, settle=plan.settle, iterations=plan.iterations,
                  budget_ns=None if plan.budget_s is None else int(plan.budget_s * 1e9),
                  precision_pct=plan.precision_pct, outputs="" if process else str((folder / outputs.FILE).resolve()),
                  canaries=canaries, probes=plan.watched_by is not None, **job_of(workload, scratch))
        return _run_job(job, scratch, lambda: progress(iterations.count(rows)), started, environment)


def run_once(workload: Workload, limit_s: float | None = None) -> tuple[list[outputs.Output], int]:
    """Make one inference in a fresh process; return its outputs, and the process's peak resident set in bytes.

    Raise the AacoError the process met, or one that says how it died, or that it had not ended after limit_s.
    """
    with scratch_of(workload) as scratch:
        job = Job(kind="once", rows="", account="", warmup=0, iterations=1, outputs=str(scratch / outputs.FILE),
                  **job_of(workload, scratch))
        (scratch / outputs.FILE).parent.mkdir(parents=True, exist_ok=True)
        facts = _run_job(job, scratch, lambda: None, lambda pid: None, {}, limit_s=limit_s)
        return outputs.load(scratch, facts["produced"], sys.maxsize), facts["peak_rss_bytes"]


def traced_pass(folder: Path, workload: Workload, plan: Plan, environment: Mapping[str, str],
                before: tuple[str, ...] = (), most: int | None = None, region: bool = False) -> dict[str, Any]:
    """Run as many inferences as are profiled, in one fresh process under a tracer, which the environment, or the words
    before its command, starts.

    most: inferences at most. region: CUDA's profiler is notified where the measured ones begin and end. Their rows go
    to the folder, separate from the session's latencies, which no tracer disturbed.
    """
    with scratch_of(workload) as scratch:
        job = Job(kind="time", rows=str((folder / iterations.TRACED).resolve()), account=str(scratch / "account"),
                  warmup=_count_warmup(plan), iterations=min(plan.profile_iterations, most or plan.profile_iterations),
                  region=region, **job_of(workload, scratch))
        outcome = _run_watched(job, scratch, environment, before)
    return {"warmup": job.warmup, "iterations": job.iterations, "providers": outcome["providers"]}


def _count_warmup(plan: Plan) -> int:
    """Return the runs before those that are profiled or traced."""
    least, most = PROFILE_WARMUP
    return min(max(plan.warmup, least), most)


def profile_pass(folder: Path, workload: Workload, plan: Plan,
                 environment: Mapping[str, str] = MappingProxyType({}), before: tuple[str, ...] = ()
                 ) -> dict[str, Any]:
    """Profile the workload in one fresh process: ORT's node profile, and the graph as optimised at each stage.

    A backend that compiles whole subgraphs cannot write its graph; then `stages_absent` says so, the graph it was
    offered is kept instead, and the profile still counts. The graphs are kept without their weights.
    """
    with scratch_of(workload) as scratch:
        common = job_of(workload, scratch) | {"named": _write_named(workload, scratch), "rows": "", "account": "",
                                               "profile": str(scratch / "profile.json"),
                                               "offered": str(scratch / "offered.onnx")}
        job = Job(kind="profile", warmup=_count_warmup(plan), iterations=plan.profile_iterations,
                  dumps={level: str(scratch / f"{level}.onnx") for level in layout.STAGE_GRAPHS}, **common)
        outcome = _run_watched(job, scratch, environment, before)
        _keep_profile(scratch / "profile.json", folder / layout.ORT_PROFILE)
        for level in outcome["dumped"]:
            _keep_graph(Path(job.dumps[level]), folder / layout.STAGE_GRAPHS[level])
        if outcome["offered"]:
            _keep_graph(Path(job.offered), folder / layout.OFFERED_GRAPH)
    return outcome | {"warmup": job.warmup, "iterations": job.iterations, "names_made": workload.names_made}


def _write_named(workload: Workload, scratch: Path) -> str:
    """Return the copy of the model with names for all nodes; empty if the model needs none."""
    if workload.named is None:
        return ""
    path = scratch / "named.onnx"
    path.write_bytes(workload.named.SerializeToString())
    return str(path)


@contextmanager
def scratch_of(workload: Workload) -> Iterator[Path]:
    """Yield a folder with the workload's inputs in it; remove it at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="aaco-") as name, files.storage(Path(name)):
        np.savez(Path(name) / "inputs.npz", **workload.inputs)  # type: ignore[arg-type]
        yield Path(name)


def job_of(workload: Workload, scratch: Path) -> dict[str, Any]:
    """Return the fields of every job of the workload, by the names of Job."""
    backend, around = workload.backend, surroundings.now()
    return {"burst_ns": around.burst_ns, "rest_ns": around.rest_ns,
            "parent": os.getpid(), "model": str(workload.model.resolve()), "provider": backend.provider,
            "provider_options": backend.provider_options, "session_options": backend.session_options,
            "custom_ops": workload.custom_ops,
            "resident": workload.resident, "level": backend.graph_optimization, "install": backend.install,
            "inputs": str(scratch / "inputs.npz"), "outcome": str(scratch / "outcome.json")}


def _run_job(job: Job, scratch: Path, poll: Callable[[], None], started: Started,
             environment: Mapping[str, str], before: tuple[str, ...] = (),
             limit_s: float | None = None) -> dict[str, Any]:
    return measured.run([MeasuredProcess("aaco.runner.worker", as_dict(job), Path(job.outcome), scratch / "stderr",
                                         environment, before=before)], poll, started, limit_s)[0]


def _run_watched(job: Job, scratch: Path, environment: Mapping[str, str], before: tuple[str, ...]) -> dict[str, Any]:
    """Run the job; under a tracer, started by the environment or the words before its command, with a time limit."""
    poll = _limit_time(Path(job.outcome)) if environment or before else lambda: None
    return _run_job(job, scratch, poll, lambda pid: None, environment, before)


def _limit_time(outcome: Path) -> Callable[[], None]:
    """Return a call that raises AacoError once a traced process has taken too long: a tracer that hangs must not block
    the run.
    """
    begin = time.monotonic()
    done = math.inf

    def look() -> None:
        nonlocal done
        now = time.monotonic()
        done = min(done, now) if outcome.is_file() else done
        if now - done > FINISHING_S:
            raise AacoError(f"the tracer had not ended {FINISHING_S:g} s after the work was done", FIX)
        if now - begin > TRACED_S:
            raise AacoError(f"the work had not ended after {TRACED_S:g} s under the tracer", FIX)

    return look


def _keep_profile(raw: Path, kept: Path) -> None:
    def fill(target: IO[bytes]) -> None:
        with raw.open("rb") as source, gzip.GzipFile(filename="", fileobj=target, mode="wb", mtime=0) as zipped:
            shutil.copyfileobj(source, zipped)

    files.write_atomically(kept, fill)


def _keep_graph(dump: Path, kept: Path) -> None:
    model = model_file.strip_weights(model_file.load(dump, weights=False))
    files.write_atomically(kept, lambda target: target.write(model.SerializeToString()))
