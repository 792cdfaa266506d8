"""Kernel replay on a real GPU: twelve kernels captured and run again in fresh processes, and what must not pass.

Everything printed between the claims is for whoever reads a run that failed: one line for each capture and replay.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from aaco.core.errors import AacoError
from aaco.core.readings import Estimate
from aaco.core.statistics import quantile
from aaco.replay import cache
from aaco.replay import capture as captures
from aaco.replay.engine import ReplayRequest
from aaco.replay.run import replay
from aaco.replay.tolerance import NumberTolerance
from benchmarks.claims import Claim
from benchmarks.gpu._kernels import SOURCE, compiled
from benchmarks.gpu._plants import STATEFUL, Plant, copied, plants
from benchmarks.gpu._replays import LAST, PROGRAM, Case, capture, replay_us, say, traced, tried

# The kernels of the bar: what their names match, as POSIX extended regular expressions.
KERNELS = {"add": "CUDAFunctor_add", "softmax": "[sS]oft[mM]ax", "row_sum": "reduce_kernel", "gemm_f32": "gemm|cutlass",
           "nvjet": "nvjet", "nvjet_splitk": "nvjet", "gather": "indexSelect|gather|index_elementwise",
           "attention": "sdpa|flash|fmha", "convolution": "implicit|fprop|xmma|cutlass|gemm|conv2d",
           "triton": "^doubled$",
           "chase": "^chase$", "counter": "^counter$"}
SMALL = {"small_chase": "^chase$", "small_counter": "^counter$"}  # captures of them are tests/captures/replay's
OTHERS = {"scaled": "^scaled$", "waits": "^waits$", **SMALL}
PROCESSES, ITERATIONS, WORKERS = 10, 10, 8
TOLERATED_PCT, MEDIAN_PCT = 3.0, 2.0
EDIT_S = 3.0
EDITS = (("the same work", "1.0f * scale * memory[at]", "exact"), ("other work", "memory[at]", "differs"),
         ("work that rounds otherwise", "scale * memory[at] * 1.0000002f", "within tolerance"),
         ("work that rounds otherwise, bit by bit", "scale * memory[at] * 1.0000003f", "differs"))
MOST_SMALL = 200_000  # bytes
COST_PROCESSES = 3
QUICK = {"PROCESSES": 2, "KERNELS": dict(list(KERNELS.items())[:2])}


def claims(_: Path) -> Iterator[Claim]:
    """Every claim about replays."""
    with tempfile.TemporaryDirectory(prefix="aaco-replay-", dir=os.environ.get("AACO_REPLAY_FOLDER")) as made:
        folder = Path(made)
        begin = time.monotonic()
        with ThreadPoolExecutor(WORKERS) as pool:
            captured = list(pool.map(lambda item: capture(folder, *item), (KERNELS | OTHERS).items()))
        cases, others = captured[:len(KERNELS)], {case.name: case for case in captured[len(KERNELS):]}
        say(f"captures took {time.monotonic() - begin:.1f} s")
        begin = time.monotonic()
        _replay_all(cases)
        say(f"replays took {time.monotonic() - begin:.1f} s")
        whole = [case for case in cases if case.results]
        yield _faithful(cases, whole)
        for part in (_timed, _unrestored, _planted, _edited, _hung, _cost, _small):
            begin = time.monotonic()
            try:
                yield from part(folder, whole, others)
            except Exception as error:  # noqa: BLE001  the other parts are worth having
                traceback.print_exc(file=sys.stdout)
                yield Claim(f"{part.__name__} runs to its end", "no error", f"{type(error).__name__}: {error}"[:200],
                            False)
            say(f"{part.__name__} took {time.monotonic() - begin:.1f} s")


def _replay_all(cases: list[Case]) -> None:
    """First one replay of each alone, whose times count; then the other processes at once."""
    request = ReplayRequest(iterations=ITERATIONS, check_all=True)
    for case in cases:
        if not case.error:
            case.results += tried(case.name, case.path, request)
    captured = [case for case in cases if case.results]
    with ThreadPoolExecutor(WORKERS) as pool:
        turns = [(case, pool.submit(tried, case.name, case.path, request, False))
                 for _ in range(PROCESSES - 1) for case in captured]
        for case, result in turns:
            case.results += result.result()


def _faithful(cases: list[Case], whole: list[Case]) -> Claim:
    results = [result for case in whole for result in case.results]
    exact = sum(result.fidelity.verdict == "exact" for result in results)
    checks = sum(result.fidelity.checked for result in results)
    good = sum(result.fidelity.exact for result in results)
    placed = sum(result.exact_addresses for result in results)
    regions = sum(result.regions for result in results)
    expected = len(KERNELS) * PROCESSES
    for case in cases:
        if len(case.results) < PROCESSES:
            say(f"{case.name}: {len(case.results)} of {PROCESSES} replays; {case.error}")
    return Claim(f"{expected} fresh processes, {expected * ITERATIONS} restored replays: all exact, poisoned, "
                 "at their addresses",
                 "100 %", f"{exact} of {expected} processes, {good} of {checks} checks, {placed} of {regions} regions",
                 exact == expected and good == checks == expected * ITERATIONS and placed == regions)


def _timed(folder: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """Restored replays against the same kernels in their programs, both by our tracer, and what explains the others."""
    with ThreadPoolExecutor(WORKERS) as pool:  # they use the device one after the other: _kernels.py's lock
        list(pool.map(lambda case: _time_application(folder, case), whole))
    differences, unexplained = {}, []
    for case in whole:
        try:
            times = {"as-left": replay_us(case, "as-left")}
            if case.application_us is None or times["as-left"] is None:
                say(f"{case.name}: application {case.application_us} us, replay {times}")
                unexplained.append(case.name)
                continue
            differences[case.name] = 100 * (times["as-left"] / case.application_us - 1)
            if abs(differences[case.name]) > MEDIAN_PCT:
                times |= {mode: replay_us(case, mode) for mode in ("warm", "cold")}
            found = cache.nearest(case.application_us, times)
            say(f"{case.name}: application {case.application_us:.2f} us, replays {times} us by our tracer; by events "
                f"{case.results[0].median_us}; as left {differences[case.name]:+.2f} %; {cache.agreement_line(found)}")
            if not found.agrees:
                unexplained.append(case.name)
        except Exception as error:  # noqa: BLE001  the others go on
            say(f"{case.name}: no comparison: {type(error).__name__}: {error}")
            traceback.print_exc(file=sys.stdout)
            unexplained.append(case.name)
    median = statistics.median(map(abs, differences.values())) if differences else math.inf
    yield Claim("a restored replay takes as long as in the application: median of kernels", f"<= {MEDIAN_PCT:g} %",
                f"{median:.2f} % of {len(differences)} kernels", median <= MEDIAN_PCT)
    yield Claim("each of them, or a state of the caches explains it", f"<= {TOLERATED_PCT:g} %",
                f"unexplained: {unexplained}", not unexplained and bool(differences))


def _time_application(folder: Path, case: Case) -> None:
    try:
        times = traced(case, [str(PROGRAM), case.name, str(folder / "lock")])
        case.application_us = statistics.median(times[-LAST:])
    except Exception as error:  # noqa: BLE001  a claim says so
        say(f"{case.name}: not traced: {type(error).__name__}: {error}")


def _unrestored(_: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """Without restoring: a kernel that uses its state up gets no time; another gets the same as with it."""
    timed = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        request = ReplayRequest(iterations=10, recopy=False)
        turns = {case.name: pool.submit(tried, f"{case.name} --no-recopy", case.path, request) for case in whole}
        for name, turn in turns.items():
            for result in turn.result():
                timed[name] = result.median_us
    stateful = [name for name in STATEFUL if name in timed]
    yield Claim("kernels that use up a counter get no time without restoring", f"none of {len(STATEFUL)}",
                f"{[name for name in stateful if timed[name] is not None]} of {stateful}",
                len(stateful) == len(STATEFUL) and all(timed[name] is None for name in stateful))


def _planted(folder: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """Replays that are not faithful: each must be told, and none may get a time."""
    def verdict(plant: Plant) -> str:
        try:
            result = replay(copied(folder, plant), plant.request, plant.code, limit_s=30.0)
            return result.fidelity.verdict + (" WITH A TIME" if result.times_us else f": {result.fidelity.reason}")
        except AacoError as error:
            return f"refused: {str(error).splitlines()[0][:90]}"

    planted = list(plants(folder, whole))
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(verdict, planted))
    for plant, said in zip(planted, verdicts, strict=True):
        say(f"planted {plant.case.name} {plant.what}: {said}")
    told = sum(said.split(":")[0] in ("differs", "unproved") for said in verdicts)
    yield Claim("planted unfaithfulness is told, and gets no time", "all, of 60 or more", f"{told} of {len(verdicts)}",
                told == len(verdicts) >= 60)


def _edited(folder: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """An edit of a kernel: compile it, run it in three fresh processes, and say whether it still does the same."""
    case = others["scaled"]
    if case.error:
        yield Claim("an edited kernel is judged", f"<= {EDIT_S:g} s", case.error, False)
        return
    say(f"before the edit: {[result.fidelity.verdict for result in tried('scaled', case.path, ReplayRequest())]}")
    with captures.open(case.path) as opened:
        arch = opened.document.captured_from.isa
    for what, text, said in EDITS:
        begin = time.monotonic()
        code = folder / "edited.cubin"
        code.write_bytes(compiled(SOURCE.read_text().replace("scale * memory[at];\n}", text + ";\n}"), arch))
        tolerance = NumberTolerance.parse("float32:1e-6") if said == "within tolerance" else None
        request = ReplayRequest(iterations=10, tolerance=tolerance)
        with ThreadPoolExecutor(3) as pool:
            turns = [pool.submit(tried, f"scaled, edited to {what}", case.path, request, True, code) for _ in range(3)]
            verdicts = [result.fidelity.verdict for turn in turns for result in turn.result()]
        took = time.monotonic() - begin
        yield Claim(f"an edit that leaves {what} is judged in 3 processes", f"{said}, <= {EDIT_S:g} s",
                    f"{verdicts}, {took:.2f} s", took <= EDIT_S and verdicts == [said] * 3)


def _hung(folder: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """A kernel that hangs with inverted memory: its process ends, and the next replay works."""
    case = others["waits"]
    result = () if case.error else tried("waits", case.path, ReplayRequest(iterations=4), limit_s=8.0)
    again = tried("the one after", whole[0].path, ReplayRequest(iterations=4)) if whole else ()
    yield Claim("a kernel that hangs ends with its process, and the next replay works", "exact",
                f"{[one.fidelity.verdict for one in (*result, *again)]} {case.error}",
                [one.fidelity.verdict for one in (*result, *again)] == ["exact"] * 2)


def _cost(folder: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """What launches and steps cost more while a launch of another kernel is waited for."""
    processes = [_calls(folder / f"cost-{number}") for number in range(COST_PROCESSES)]
    plain, launch = _more(processes, "launch")
    yield Claim("a launch costs more while no kernel matches", "<= 0.5 us",
                f"{launch.value:+.2f} us [{launch.low:+.2f}, {launch.high:+.2f}] of {plain:.2f}", launch.value <= 0.5)
    of_step, step = _more(processes, "step")
    pct = 100 * step.value / of_step
    yield Claim("a step that the device decides takes longer then", "<= 2 %", f"{pct:+.2f} % of {of_step:.1f} us",
                pct <= 2.0)
    yield Claim("a step of launches alone takes longer then", "printed", f"{100 * launch.value / plain:+.1f} %", None)


def _more(processes: list[dict[str, dict[str, list[float]]]], kind: str) -> tuple[float, Estimate]:
    """Return the median plain time, us, and by how much those are longer that were measured next to it."""
    plain = [time for process in processes for time in process[kind]["plain"]]
    capturing = [time for process in processes for time in process[kind]["capturing"]]
    differences = [after - before for before, after in zip(plain, capturing, strict=True)]
    say(f"{kind}, us: plain {[round(time, 2) for time in plain]}, capturing {[round(time, 2) for time in capturing]}")
    return statistics.median(plain), quantile(np.array(differences), 0.5)


def _calls(spools: Path) -> dict[str, dict[str, list[float]]]:
    """Return the host times of a program of launches in a process of its own: _launches.py."""
    spools.mkdir()
    done = subprocess.run([sys.executable, str(PROGRAM.with_name("_launches.py")), "calls", str(spools), "2"],
                          text=True, capture_output=True, timeout=60, check=False)
    if done.returncode:
        raise AacoError(f"{done.returncode} {done.stderr[-300:]} {[path.name for path in spools.iterdir()]}")
    times: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return times


def _small(folder: Path, whole: list[Case], others: Mapping[str, Case]) -> Iterator[Claim]:
    """Captures that are small enough for a repository, each one file. AACO_REPLAY_KEEP: the folder that gets them."""
    kept = os.environ.get("AACO_REPLAY_KEEP")
    sizes = {}
    for name in SMALL:
        case = others[name]
        if case.error:
            sizes[name] = 0
            continue
        verdicts = [result.fidelity.verdict for result in tried(name, case.path, ReplayRequest(iterations=4))]
        sizes[name] = case.path.stat().st_size if verdicts == ["exact"] else 0
        if kept and sizes[name]:
            shutil.copy(case.path, kept)
            say(f"kept {Path(kept) / case.path.name}, {sizes[name]:,} bytes")
    yield Claim("small captures, each one file, are replayed", f"exact, <= {MOST_SMALL:,} bytes", f"{sizes}",
                all(0 < size <= MOST_SMALL for size in sizes.values()))
    codes = []
    for verb in ("reserve-check", "full-vm"):
        done = subprocess.run([sys.executable, "-c", "from aaco.cli.rocm_perf import main; main()", "replay", verb,
                               "--capture-dir", others["small_counter"].path], text=True, capture_output=True,
                              timeout=60, check=False)
        say(f"rocm-perf replay {verb}: {done.returncode}: {' | '.join((done.stdout + done.stderr).splitlines())}")
        codes.append(done.returncode)
    yield Claim("rocm-perf replay reserve-check and full-vm of one of them", "exit 0", f"{codes}", codes == [0, 0])
