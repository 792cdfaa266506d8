"""Programs with one fault each, run live: does the diagnosis of `aaco trace --telemetry` name it, and no other?

The programs are planted PyTorch workloads (benchmarks/scenarios_torch.py) under our own tracer, with devices and
operating system recorded beside it; judged is the session's metrics/bottleneck.json alone. What limits a kernel is told
by names and launches there: no counters are asked for. About two minutes.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.core.errors import AacoError
from aaco.core.session import find
from aaco.tracelake import layout
from benchmarks.claims import Claim

ROOT = Path(__file__).parents[2]
PROGRAM = "benchmarks.gpu._programs"
CPU = max(os.sched_getaffinity(0))  # what is to have one CPU has this one
CALM, PINNED = "--calm", ("--cpu", str(CPU))
TIMEOUT_S, READY_S, AT_MOST_S = 120.0, 60.0, 60.0
# What can be wrong with where a program runs, whatever limits the program itself.
FAULTS = frozenset({"throttled", "throttled_clock", "shared_device", "interference"})
# A board that is worked flat out comes near its power limit, and its driver says so: no fault of where it runs, as long
# as the clock is hardly lower (then it is the class `throttled`).
AT_ITS_LIMIT = frozenset({"throttled_clock"})


@contextmanager
def beside(*words: str) -> Iterator[None]:
    """Another process that works until the end of the block, from when it says that it does. Raises AacoError."""
    with subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            if not select.select([process.stdout], [], [], READY_S)[0] or process.stdout.readline() != "ready\n":
                raise AacoError(f"python -m {' '.join(words)} did not become ready", "run it by hand")
            yield
        finally:
            process.kill()


def neighbour() -> AbstractContextManager[None]:
    """A process that multiplies on the same device."""
    return beside(PROGRAM, "compute_gemm_bf16_4096", str(AT_MOST_S), CALM)


def hog() -> AbstractContextManager[None]:
    """A process that computes on the program's CPU."""
    return beside("benchmarks.faults.hogs", "busy", str(CPU), "1.0", str(os.getpid()))


class Case(Struct, frozen=True):
    """A workload that runs for some seconds, and what the diagnosis must name: any of `named`, a class or a condition.

    may: what else of FAULTS it may say truly.
    """

    what: str
    plant: str
    seconds: float
    named: frozenset[str]
    options: tuple[str, ...] = ()
    beside: Callable[[], AbstractContextManager[None]] = nullcontext
    may: frozenset[str] = frozenset()


CASES = (
    Case("launch-bound: tiny kernels", "launch_tiny_multiplies", 1.0, frozenset({"launch_bound"})),
    Case("memory-bound: elementwise over 1 GiB", "memory_gelu_passes", 2.5, frozenset({"memory_bound"}),
         may=AT_ITS_LIMIT),
    Case("compute-bound: products of bf16", "compute_gemm_bf16_4096", 2.5, frozenset({"compute_bound"}), (CALM,),
         may=AT_ITS_LIMIT),
    Case("transfers: pinned uploads", "transfer_upload_pinned", 2.5, frozenset({"transfer_bound"})),
    Case("power throttling: large products flat out", "compute_gemm_fp16_8192", 5.0,
         frozenset({"throttled", "throttled_clock"})),
    Case("GPU contention: products beside another's", "compute_gemm_bf16_4096", 4.0, frozenset({"shared_device"}),
         (CALM,), neighbour, AT_ITS_LIMIT),
    Case("host contention: input beside a busy process", "cpu_text_input", 3.0, frozenset({"interference"}), PINNED,
         hog),
    Case("control: the same input, its CPU its own", "cpu_text_input", 3.0, frozenset({"cpu_bound"}), PINNED))


def claims(captures: Path) -> list[Claim]:
    """Each case, run now; one that cannot run misses, and the others go on."""
    with tempfile.TemporaryDirectory() as folder:
        return [_claim(case, Path(folder)) for case in CASES]


def _claim(case: Case, folder: Path) -> Claim:
    try:
        with case.beside():
            return judged(case, traced(case, folder))
    except (AacoError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return Claim(case.what, _bar(case), f"{type(error).__name__}: {error}".splitlines()[0][:200], False)


def traced(case: Case, folder: Path) -> Mapping[str, Any]:
    """What the product says of the program: the content of bottleneck.json. Raises AacoError.

    The product runs as its own process, so that what runs beside the program is no child of it.
    """
    program = [sys.executable, "-m", PROGRAM, case.plant, str(case.seconds), *case.options]
    done = subprocess.run([sys.executable, "-m", "aaco", "trace", "--tool", "cupti", "--telemetry", "--sessions-dir",
                           str(folder), "--timeout", f"{TIMEOUT_S:g}", "--", *program], cwd=ROOT, capture_output=True,
                          text=True, timeout=2 * TIMEOUT_S, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise AacoError(f"aaco trace ended with {done.returncode}: {said[-1]}", "run it by hand")
    document: Mapping[str, Any] = find("latest", folder).read_json(layout.BOTTLENECK)
    return document


def judged(case: Case, document: Mapping[str, Any]) -> Claim:
    """Whether a session's diagnosis names what the case has, and no fault that it has not."""
    found = {document["bottleneck_class"]: document["top_evidence"],
             **{one["label"]: one["evidence"] for one in document["conditions"]}}
    told = [f"{name} ({_evidence(found[name])})" for name in found if name in case.named | FAULTS]
    others = [name for name in found if name not in case.named | FAULTS]
    met = bool(case.named & found.keys()) and not (FAULTS & found.keys()) - case.named - case.may
    why = document["abstained_because"]
    return Claim(case.what, _bar(case), "; ".join([*told, *others, *([why] if why else [])]), met)


def _bar(case: Case) -> str:
    but = f" but {' or '.join(sorted(case.may))}" if case.may else ""
    return f"{' or '.join(sorted(case.named))}{'' if case.named & FAULTS else f', no fault{but}'}"


def _evidence(items: list[Mapping[str, Any]]) -> str:
    """The essential readings of a verdict."""
    return ", ".join(f"{one['signal']} {one['value']:.3g}" for one in items
                     if one["essential"] and one["value"] is not None)
