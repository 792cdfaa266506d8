"""The measured process: loads one model in ONNX Runtime, runs it, and writes rows. Started by runner.ort.

It imports numpy and onnxruntime and no other large package, so that the measurement is the workload. A job comes as
JSON on stdin; the outcome goes to the job's `outcome` file. Timing and profiling are separate jobs in separate
processes, because ONNX Runtime's node profiling adds 13-15 us per node.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from aaco import markers
from aaco.core import files
from aaco.core.errors import AacoError, ModelError
from aaco.runner import cpu_times, iterations, launch, probes, provider, region
from aaco.runner.job import Job
from aaco.runner.self_accounting import SelfAccounting
from aaco.runner.stopping import Reason, Stop
from aaco.runner.surroundings import Rest
from aaco.tracelake import outputs

NULL_LOOPS = 2000
WHOLE = 1 << 28  # elements: 1 GiB of float32
LONGEST_WARMUP_NS = 60_000_000_000  # of one that goes on until the latencies have settled
NOTHING = nullcontext()
PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Run the job on stdin."""
    job = Job(**json.load(sys.stdin))
    answer(job.parent, Path(job.outcome), lambda: KINDS[job.kind](job))


def answer(parent: int, outcome: Path, work: Callable[[], dict[str, Any]]) -> None:
    """Do the parent's work and write its outcome. Exit code and outcome file return any AacoError."""
    die_with(parent)
    try:
        files.write_json(outcome, work())
    except AacoError as error:
        files.write_json(outcome, {"error": {"what": error.what, "fix": error.fix}})
        sys.exit(int(error.exit_code))


def die_with(parent: int) -> None:
    """Die with a killed parent instead of measuring on, or now if it has gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent not in _ancestors():
        os.kill(os.getpid(), signal.SIGKILL)


def _ancestors() -> Iterator[int]:
    """Yield the process that started this one, and those above it: a profiler that starts us is between us and our
    parent.
    """
    number = os.getppid()
    while number:
        yield number
        try:
            stat = Path(f"/proc/{number}/stat").read_text(errors="replace")
        except OSError:
            return
        number = int(stat.rpartition(")")[2].split()[1])


def _run_timing(job: Job) -> dict[str, Any]:
    started = time.monotonic_ns()
    with markers.phase("load"):
        session = provider.open_session(job)
    load_ms = (time.monotonic_ns() - started) / 1e6
    bound = provider.bind(session, job)
    run, cooldown = bound.run, Rest(job.burst_ns, job.rest_ns)
    probed, warmed = [probes.look()] if job.probes else None, None
    with (appending(job.rows) as descriptor, appending(job.account) as account, no_garbage_collection(),
          closing(SelfAccounting(account, job.canaries)) as witness):
        turn = markers.iteration if markers.heard() else _unmarked
        if job.warmup:
            with markers.phase("warmup"):
                rule = Stop(job.warmup, LONGEST_WARMUP_NS if job.settle else None, settle=job.settle)
                ended, turns = loop(run, descriptor, 0, rule, witness, cooldown, turn)
                warmed = {"iterations": len(turns), "stopped_by": ended}
        before = cpu_times.look()
        with markers.phase("measurement"), region.profiled() if job.region else NOTHING:
            reason, _ = loop(run, descriptor, 1, Stop(job.iterations, job.budget_ns, job.precision_pct), witness,
                             cooldown, turn)
        spent = cpu_times.between(before, cpu_times.look())
    if probed:
        probed.append(probes.look())
    return provider.describe(session) | {"load_ms": load_ms, "warmup": warmed, "stopped_by": reason,
                                         "null_loop": null_loop(),
                                         "witness": witness.cost(), "probes": probed, "cpu": spent,
                                         "produced": outputs.keep(Path(job.outputs), bound.produced()) if job.outputs
                                         else None}


def _unmarked(number: int) -> AbstractContextManager[None]:
    return NOTHING


def loop(run: Callable[[], object], descriptor: int, phase: int, stop: Stop, witness: SelfAccounting | None = None,
         cooldown: Rest | None = None, turn: Callable[[int], AbstractContextManager[None]] = _unmarked,
         ) -> tuple[Reason, list[int]]:
    """Call `run` until the rule says stop, and append one row each. Return the reason and the latencies in ns.

    Only `run` is between the two clock readings; the row is written after them, and so is the account's. turn: a block
    around both readings, by the number of the turn in its phase.
    """
    clock = time.monotonic_ns
    latencies: list[int] = []
    if witness:
        witness.look()
    begin = clock()
    while not (reason := stop.reason(latencies, clock() - begin)):
        with turn(len(latencies)):
            start = clock()
            run()
            end = clock()
        iterations.append(descriptor, len(latencies), phase, start, end)
        latencies.append(end - start)
        if witness:
            witness.beside(end)
        if cooldown:
            cooldown.after(end)
    if witness:
        witness.look()
    return reason, latencies


def null_loop() -> dict[str, float]:
    """Return our overhead for a workload of nothing, in ns: the part inside each latency, and the cost of a whole turn.
    """
    with tempfile.TemporaryFile() as file:
        begin = time.monotonic_ns()
        _, latencies = loop(_nothing, file.fileno(), 1, Stop(NULL_LOOPS))
        whole = time.monotonic_ns() - begin
    return {"inside_ns": float(np.median(latencies)), "per_iteration_ns": whole / NULL_LOOPS}


def _nothing() -> None:
    pass


@contextmanager
def appending(path: str, new: bool = True) -> Iterator[int]:
    """Yield a new file, or one that others append to as well, open for rows to be appended."""
    with files.storage(Path(path)):
        descriptor = os.open(path, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if new else os.O_APPEND), 0o644)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Prevent pauses of the interpreter inside the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run_profile(job: Job) -> dict[str, Any]:
    graphs = _dump_graphs(job)
    with markers.phase("load"):
        session = provider.open_session(job, profile_prefix=job.profile)
    run = provider.bind(session, job).run
    for phase, turns in (("warmup", job.warmup), ("measurement", job.iterations)):
        before = cpu_times.look()
        with markers.phase(phase):
            for number in range(turns):
                with markers.iteration(number):
                    run()
    spent = cpu_times.between(before, cpu_times.look())
    start_ns = session.get_profiling_start_time_ns()
    with files.storage(Path(job.profile)):
        Path(session.end_profiling()).replace(job.profile)
    return provider.describe(session) | graphs | {
        "profiling_start_realtime_ns": start_ns, "cpu": spent,
        "events": dict(Counter(event.get("cat") for event in files.read_json(Path(job.profile))))}


def _run_once(job: Job) -> dict[str, Any]:
    """Make one inference, keep its outputs whole, and say how much memory the process needed at most."""
    session = provider.open_session(job)
    bound = provider.bind(session, job)
    bound.run()
    produced = outputs.keep(Path(job.outputs), bound.produced(), WHOLE, WHOLE)
    return {"produced": produced, "peak_rss_bytes": launch.own_peak_rss_bytes()}


def _dump_graphs(job: Job) -> dict[str, Any]:
    """Write the graph as optimised at each level; if that is refused, as it was offered to the provider, and why."""
    try:
        for level, path in job.dumps.items():
            provider.dump_graph(job, level, path)
    except ModelError as refused:
        return {"dumped": [], "stages_absent": refused.what} | _dump_offered(job)
    return {"dumped": list(job.dumps), "stages_absent": None, "offered": False, "offered_absent": None}


def _dump_offered(job: Job) -> dict[str, Any]:
    try:
        provider.dump_offered(job, job.offered)
    except ModelError as error:
        return {"offered": False, "offered_absent": error.what}
    return {"offered": True, "offered_absent": None}


KINDS: dict[str, Callable[[Job], dict[str, Any]]] = {"time": _run_timing, "profile": _run_profile, "once": _run_once}

if __name__ == "__main__":
    main()
