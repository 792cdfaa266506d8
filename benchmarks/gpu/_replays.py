"""Captures and replays of the kernels of _kernels.py, for benchmarks.gpu.replay. Each prints a line."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from msgspec import Struct

from aaco.core.errors import AacoError
from aaco.profiler.formats.nvidia import cupti as cupti_format
from aaco.profiler.launchers import cupti
from aaco.replay import capture as captures
from aaco.replay.engine import CacheMode, ReplayRequest
from aaco.replay.record import record
from aaco.replay.run import ReplayResult, child_command, replay
from benchmarks.gpu._kernels import SMALL

PROGRAM = Path(__file__).with_name("_kernels.py")
LAUNCH = 12
LAST = 18  # launches of a program, or of a replay, that are timed


class Case(Struct):
    """A kernel: its capture, or what prevented it, and what was measured of it."""

    name: str
    path: Path
    error: str = ""
    application_us: float | None = None
    results: tuple[ReplayResult, ...] = ()


def say(*words: object) -> None:
    """Print one line for the reader of a run."""
    print("   ", *words, flush=True)


def capture(folder: Path, name: str, pattern: str) -> Case:
    """Return the case of a program, with its capture or what prevented it; of a small one in one file."""
    case, begin = Case(name, folder / (f"{name}.aacocap" if name.startswith(SMALL) else name)), time.monotonic()
    try:
        record(case.path, [sys.executable, str(PROGRAM), name, str(folder / "lock")], pattern, LAUNCH)
        with captures.open(case.path) as opened:
            size = sum(region.size for region in opened.regions)
            changed = sum(len(opened.changed_pages(region)) for region in opened.regions)
            launch = opened.launch
            say(f"captured {name}: {launch.symbol[:70]} grid {launch.grid} block {launch.block} shared "
                f"{launch.dynamic_lds_bytes} {launch.passed_as} {len(launch.arguments) // 2} B, attributes "
                f"{[attribute.id for attribute in launch.attributes]}, {len(opened.regions)} regions "
                f"{size / 2**20:.0f} MiB, {changed} pages changed, {time.monotonic() - begin:.1f} s; "
                f"not captured: {[absent.what for absent in opened.document.not_captured][:3]}")
    except Exception as error:  # noqa: BLE001  the others go on
        case.error = f"{type(error).__name__}: {error}"
        say(f"NOT captured {name}: {case.error}")
        if not isinstance(error, AacoError):
            traceback.print_exc(file=sys.stdout)
    return case


def tried(name: str, path: Path, request: ReplayRequest, loud: bool = True, code: Path | None = None,
           limit_s: float = 60.0) -> tuple[ReplayResult, ...]:
    """Return the result of a replay, in a tuple that is empty where it failed."""
    begin = time.monotonic()
    try:
        result = replay(path, request, code, limit_s)
    except Exception as error:  # noqa: BLE001  a claim says how many failed
        say(f"replay of {name} failed after {time.monotonic() - begin:.1f} s: {type(error).__name__}: {error}")
        if not isinstance(error, AacoError):
            traceback.print_exc(file=sys.stdout)
        return ()
    if loud or result.fidelity.verdict != "exact":
        used = dict(Counter(use.written + ("+read" if use.read else "") + ("" if use.survives else "!")
                            for use in result.uses))
        say(f"replay of {name}: {result.fidelity.verdict} ({result.fidelity.reason}); median {result.median_us} us, "
            f"empty pair {result.empty_pair_us:.2f} us, addresses {result.exact_addresses}/{result.regions}, "
            f"{result.substituted} of the host's in device memory, no time: {result.no_time}, "
            f"uses {used}, {result.processes} processes, {result.taken} of them for addresses, "
            f"{result.seconds:.2f} s of the child's, "
            f"{time.monotonic() - begin:.2f} s in all")
    return (result,)


def replay_us(case: Case, mode: CacheMode) -> float:
    """Return the median time of a restored replay's launches, by our tracer, us."""
    request = ReplayRequest(iterations=LAST + 2, cache=mode)
    with captures.open(case.path) as opened:
        measured = opened.roles.regions if opened.roles else []
        with child_command(opened, request, measured=measured) as command:
            times = traced(case, ["-m", *command])
    each = 2 if mode == "warm" else 1  # the launch that warms is not the one that is timed
    return statistics.median(times[::-each][:LAST])


def traced(case: Case, arguments: list[str]) -> list[float]:
    """Return the times of the kernel's launches, us, in Python with these arguments under our tracer."""
    with captures.open(case.path) as opened:
        names = {opened.launch.symbol, opened.launch.demangled}
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, *arguments], env=os.environ | cupti.environment(Path(made), "kernels"),
                       check=True,
                       timeout=120, stdout=subprocess.DEVNULL)
        times = []
        for path in sorted(Path(made).glob("*.cupti")):
            for table in cupti_format.read(path)[0].get("kernels", ()):
                times += [row["dur_ns"] / 1e3 for row in table.select(["kernel_name", "dur_ns"]).to_pylist()
                          if row["kernel_name"] in names]
    if len(times) < LAST:
        raise AacoError(f"{len(times)} launches were traced")
    return times
