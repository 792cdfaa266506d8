"""Kernel replay on a real GPU: twelve kernels captured and run again in fresh processes, and what must not pass.

Everything printed between the claims is for whoever reads a run that failed: one line for each capture and replay.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aaco.core.errors import AacoError
from aaco.profiler.formats.nvidia import cupti as cupti_format
from aaco.profiler.launchers import cupti
from aaco.replay import capture as captures
from aaco.replay.engine import ReplayRequest
from aaco.replay.record import record
from aaco.replay.run import ReplayResult, replay
from benchmarks.claims import Claim

PROGRAM = Path(__file__).with_name("_kernels.py")
# The kernels of the bar: what their names match, as POSIX extended regular expressions.
KERNELS = {"add": "CUDAFunctor_add", "softmax": "softmax", "row_sum": "reduce_kernel", "gemm_f32": "gemm|cutlass",
           "nvjet": "nvjet", "nvjet_splitk": "nvjet", "gather": "indexSelect|gather|index_elementwise",
           "attention": "sdpa|flash|fmha", "convolution": "implicit|fprop|xmma|cutlass|gemm|conv2d", "triton": "^doubled$",
           "chase": "^chase$", "counter": "^counter$"}
LAUNCH, PROCESSES, ITERATIONS, WORKERS = 12, 10, 10, 8
TOLERATED_PCT, MEDIAN_PCT = 3.0, 2.0
EDIT_S = 3.0
LAST = 18  # launches of a program, or of a replay, that are timed
QUICK = {"PROCESSES": 2, "KERNELS": dict(list(KERNELS.items())[:2])}


@dataclass
class Case:
    """A kernel: its capture, or what prevented it, and what was measured of it."""

    name: str
    path: Path
    error: str = ""
    application_us: float | None = None
    results: tuple[ReplayResult, ...] = ()


def say(*words: object) -> None:
    """Print one line for the reader of a run, and keep it where $OUT says."""
    print("   ", *words, flush=True)


def claims(_: Path) -> Iterator[Claim]:
    """Every claim about replays."""
    with tempfile.TemporaryDirectory(prefix="aaco-replay-", dir=os.environ.get("AACO_REPLAY_FOLDER")) as made:
        folder = Path(made)
        begin = time.monotonic()
        cases = _capture_all(folder)
        say(f"captures took {time.monotonic() - begin:.1f} s")
        begin = time.monotonic()
        _replay_all(cases)
        say(f"replays took {time.monotonic() - begin:.1f} s")
        whole = [case for case in cases if case.results]
        yield _faithful(cases, whole)
        yield from _timed(whole)
        for part in (_unrestored, _planted, _edited, _hung, _cost):
            begin = time.monotonic()
            try:
                yield from part(folder, whole)
            except Exception as error:  # noqa: BLE001  the other parts are worth having
                traceback.print_exc(file=sys.stdout)
                yield Claim(f"{part.__name__} runs to its end", "no error", f"{type(error).__name__}: {error}"[:200], False)
            say(f"{part.__name__} took {time.monotonic() - begin:.1f} s")


def _capture_all(folder: Path) -> list[Case]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(lambda name: _capture(folder, name, KERNELS[name]), KERNELS))


def _capture(folder: Path, name: str, pattern: str) -> Case:
    case, begin = Case(name, folder / name), time.monotonic()
    try:
        record(case.path, [sys.executable, str(PROGRAM), name, str(folder / "lock")], pattern, LAUNCH)
        with captures.open(case.path) as capture:
            size = sum(region.size for region in capture.regions)
            changed = sum(len(capture.changed_pages(region)) for region in capture.regions)
            launch = capture.launch
            say(f"captured {name}: {launch.symbol[:70]} grid {launch.grid} block {launch.block} shared "
                f"{launch.dynamic_lds_bytes} {launch.passed_as} {len(launch.arguments) // 2} B, attributes "
                f"{[attribute.id for attribute in launch.attributes]}, {len(capture.regions)} regions "
                f"{size / 2**20:.0f} MiB, {changed} pages changed, {time.monotonic() - begin:.1f} s; "
                f"not captured: {[absent.what for absent in capture.document.not_captured][:3]}")
    except Exception as error:  # noqa: BLE001  the others go on
        case.error = f"{type(error).__name__}: {error}"
        say(f"NOT captured {name}: {case.error}")
        if not isinstance(error, AacoError):
            traceback.print_exc(file=sys.stdout)
    return case


def _replay_all(cases: list[Case]) -> None:
    """First one replay of each alone, whose times count; then the other processes at once."""
    request = ReplayRequest(iterations=ITERATIONS, check_all=True)
    for case in cases:
        if not case.error:
            case.results += _tried(case.name, case.path, request)
    captured = [case for case in cases if case.results]
    with ThreadPoolExecutor(WORKERS) as pool:
        turns = [(case, pool.submit(_tried, case.name, case.path, request, False))
                 for _ in range(PROCESSES - 1) for case in captured]
        for case, result in turns:
            case.results += result.result()


def _tried(name: str, path: Path, request: ReplayRequest, loud: bool = True, code: Path | None = None,
           limit_s: float = 60.0) -> tuple[ReplayResult, ...]:
    begin = time.monotonic()
    try:
        result = replay(path, request, code, limit_s)
    except Exception as error:  # noqa: BLE001  a claim says how many failed
        say(f"replay of {name} failed after {time.monotonic() - begin:.1f} s: {type(error).__name__}: {error}")
        if not isinstance(error, AacoError):
            traceback.print_exc(file=sys.stdout)
        return ()
    if loud or result.fidelity.verdict != "exact":
        used = {use.written + ("+read" if use.read else "") + ("" if use.survives else "!"): 0 for use in result.uses}
        for use in result.uses:
            used[use.written + ("+read" if use.read else "") + ("" if use.survives else "!")] += 1
        say(f"replay of {name}: {result.fidelity.verdict} ({result.fidelity.reason}); median {result.median_us} us, "
            f"empty pair {result.empty_pair_us:.2f} us, addresses {result.exact_addresses}/{result.regions}, uses {used}, "
            f"{result.processes} processes, {result.seconds:.2f} s of the child's, {time.monotonic() - begin:.2f} s in all")
    return (result,)


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
    return Claim(f"{expected} fresh processes, {expected * ITERATIONS} restored replays: all exact, poisoned, at their addresses",
                 "100 %", f"{exact} of {expected} processes, {good} of {checks} checks, {placed} of {regions} regions",
                 exact == expected and good == checks == expected * ITERATIONS)


def _timed(whole: list[Case]) -> Iterator[Claim]:
    """Restored replays against the same kernels in their program, both by our tracer; the events' own beside it."""
    differences = {}
    for case in whole:
        try:
            with captures.open(case.path) as capture:
                names = {capture.launch.symbol, capture.launch.demangled}
            application = _traced_us(names, lambda env, case=case: _run_program(case.name, env))
            result = replay(case.path, ReplayRequest(iterations=20))
            replayed = result.median_us
            traced = _traced_us(names, lambda env, case=case: _run_replay(case.path, env))
            if application is None or replayed is None:
                say(f"{case.name}: application {application} us, replay {replayed} us ({result.fidelity.reason})")
                continue
            by_tracer = f"{traced:.2f} us, {100 * (traced / application - 1):+.2f} %" if traced else "nothing"
            modes = {mode: replay(case.path, ReplayRequest(iterations=20, cache=mode)).median_us for mode in ("cold", "warm")}
            differences[case.name] = 100 * (replayed / application - 1)
            say(f"{case.name}: application {application:.2f} us, replay by events {replayed:.2f} us "
                f"({differences[case.name]:+.2f} %), by our tracer {by_tracer}; other cache modes {modes}")
        except Exception as error:  # noqa: BLE001  the others go on
            say(f"{case.name}: no comparison: {type(error).__name__}: {error}")
            traceback.print_exc(file=sys.stdout)
    if differences:
        median = statistics.median(map(abs, differences.values()))
        worst = max(differences, key=lambda name: abs(differences[name]))
        yield Claim("a restored replay takes as long as in the application: median of kernels", f"<= {MEDIAN_PCT:g} %",
                    f"{median:.2f} % of {len(differences)} kernels", median <= MEDIAN_PCT)
        yield Claim("each of them", f"<= {TOLERATED_PCT:g} %", f"{worst} {differences[worst]:+.2f} %",
                    abs(differences[worst]) <= TOLERATED_PCT)


def _traced_us(names: set[str | None], run: Callable[[dict[str, str]], None]) -> float | None:
    """Return the median time of the kernel's last launches in what runs under our tracer, us."""
    with tempfile.TemporaryDirectory() as made:
        run(cupti.environment(Path(made), "kernels"))
        times: list[int] = []
        for path in sorted(Path(made).glob("*.cupti")):
            for table in cupti_format.read(path)[0].get("kernels", ()):
                times += [row["dur_ns"] for row in table.select(["kernel_name", "dur_ns"]).to_pylist()
                          if row["kernel_name"] in names]
        return statistics.median(times[-LAST:]) / 1e3 if len(times) >= LAST else None


def _run_program(name: str, environment: dict[str, str]) -> None:
    import subprocess
    subprocess.run([sys.executable, str(PROGRAM), name], env=os.environ | environment, check=True, timeout=120)


def _run_replay(path: Path, environment: dict[str, str]) -> None:
    import subprocess
    request = {"capture": str(path), "code": None, "known": [], "how": {"iterations": 20, "warmup": 3}}
    with captures.open(path) as capture:
        request["known"] = [use.model_dump() for use in capture.roles.regions] if capture.roles else []
    subprocess.run([sys.executable, "-m", "aaco.replay.child", json.dumps(request)], env=os.environ | environment,
                   check=True, timeout=120, stdout=subprocess.DEVNULL)


def _unrestored(_: Path, whole: list[Case]) -> Iterator[Claim]:
    """Without restoring: a kernel that uses its state up gets no time; another gets the same as with it."""
    timed = {}
    for case in whole:
        result = _tried(f"{case.name} --no-recopy", case.path, ReplayRequest(iterations=10, recopy=False))
        if result:
            timed[case.name] = result[0].median_us
    stateful = [name for name in ("nvjet", "counter") if name in timed]
    yield Claim("kernels that use up a counter get no time without restoring", "none",
                f"{[name for name in stateful if timed[name] is not None]} of {stateful}",
                all(timed[name] is None for name in stateful))


def _copied(folder: Path, case: Case, what: str) -> Path:
    """Return a copy of a capture in a folder, whose blobs are links."""
    target = folder / f"planted-{case.name}-{what}"
    shutil.copytree(case.path, target, copy_function=os.link)
    document = (target / "capture.json").read_text()
    for name in ("capture.json", "roles.json"):
        (target / name).unlink(missing_ok=True)
    (target / "capture.json").write_text(document)
    return target


def _edit(path: Path, change: Callable[[dict[str, Any]], bool]) -> bool:
    document = json.loads((path / "capture.json").read_text())
    made = change(document)
    (path / "capture.json").write_text(json.dumps(document))
    return made


def _answer_before(document: dict[str, Any]) -> bool:
    """The snapshot holds what the launch made: taken after it, or its counters used up by the one before."""
    changed = [region for region in document["regions"] if region["before"] != region["after"]]
    for region in changed:
        region["before"] = region["after"]
    return bool(changed)


def _used_up(document: dict[str, Any]) -> bool:
    """One page of those that the launch changes is as it was after it: a counter that was not restored."""
    for region in document["regions"]:
        for page, (before, after) in enumerate(zip(region["before"], region["after"], strict=True)):
            if before != after:
                region["before"][page] = after
                return True
    return False


def _pages_swapped(document: dict[str, Any]) -> bool:
    """Two pages of the memory before the launch are exchanged."""
    for region in document["regions"]:
        pages = region["before"]
        for page in range(len(pages) - 2):
            if pages[page] != pages[page + 1]:
                pages[page], pages[page + 1] = pages[page + 1], pages[page]
                return True
    return False


def _fewer_blocks(document: dict[str, Any]) -> bool:
    """Another launch of the same kernel: half of its blocks."""
    grid = document["launch"]["grid"]
    place = next((place for place, count in enumerate(grid) if count > 1), None)
    if place is not None:
        grid[place] //= 2
    return place is not None


def _other_arguments(document: dict[str, Any]) -> bool:
    """Another launch of the same kernel: its first and its second pointer exchanged."""
    raw, layout = document["launch"]["arguments"], document["launch"]["layout"] or []
    words = [place["offset"] * 2 for place in layout if place["size"] == 8][:2]
    if len(words) < 2:
        return False
    first, second = (raw[at:at + 16] for at in words)
    if first == second:
        return False
    raw = raw[:words[0]] + second + raw[words[0] + 16:]
    document["launch"]["arguments"] = raw[:words[1]] + first + raw[words[1] + 16:]
    return True


def _no_globals(document: dict[str, Any]) -> bool:
    """The module's variables are missing."""
    kept = [region for region in document["regions"] if region["role"] != "global"]
    made = len(kept) < len(document["regions"])
    document["regions"] = kept
    return made


PLANTS = (_answer_before, _used_up, _pages_swapped, _fewer_blocks, _other_arguments, _no_globals)


def _planted(folder: Path, whole: list[Case]) -> Iterator[Claim]:
    """Captures that are not faithful: each must be told, and none may get a time."""
    cases = []
    for case in whole:
        for plant in PLANTS:
            path = _copied(folder, case, plant.__name__)
            if _edit(path, plant):
                cases.append((f"{case.name}{plant.__name__}", path))
    request = ReplayRequest(iterations=2)

    def verdict(planted: tuple[str, Path]) -> tuple[str, str]:
        try:
            result = replay(planted[1], request, limit_s=30.0)
            return planted[0], result.fidelity.verdict + (" WITH A TIME" if result.times_us else "")
        except AacoError as error:
            return planted[0], f"refused: {str(error).splitlines()[0][:90]}"

    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = dict(pool.map(verdict, cases))
    told = {name: said for name, said in verdicts.items() if said in ("differs", "unproved")}
    for name, said in verdicts.items():
        say(f"planted {name}: {said}")
    yield Claim("planted unfaithfulness is told, and gets no time", "all, 60", f"{len(told)} of {len(verdicts)}",
                len(told) == len(verdicts) >= 60)


def _edited(folder: Path, whole: list[Case]) -> Iterator[Claim]:
    """An edit of a kernel: compile it, run it in three fresh processes, and say whether it still does the same."""
    from benchmarks.gpu._kernels import SOURCE, compiled
    case = _capture(folder, "scaled", "^scaled$")
    if case.error:
        yield Claim("an edited kernel is judged", f"<= {EDIT_S:g} s", case.error, False)
        return
    first = _tried("scaled", case.path, ReplayRequest())
    with captures.open(case.path) as capture:
        arch = capture.document.captured_from.isa
    for what, text in (("the same work", "1.0f * scale * memory[at]"), ("other work", "memory[at]")):
        begin = time.monotonic()
        code = folder / "edited.cubin"
        code.write_bytes(compiled(SOURCE.read_text().replace("scale * memory[at];\n}", text + ";\n}"), arch))
        with ThreadPoolExecutor(3) as pool:
            turns = [pool.submit(_tried, f"scaled, edited to {what}", case.path, ReplayRequest(iterations=10), True, code)
                     for _ in range(3)]
            results = [result for turn in turns for result in turn.result()]
        took = time.monotonic() - begin
        verdicts = [result.fidelity.verdict for result in results]
        wanted = "exact" if what == "the same work" else "differs"
        yield Claim(f"an edit that leaves {what} is judged in 3 processes", f"{wanted}, <= {EDIT_S:g} s",
                    f"{verdicts}, {took:.2f} s", took <= EDIT_S and verdicts == [wanted] * 3)
    say(f"before the edit: {first[0].fidelity.verdict if first else 'nothing'}")


def _hung(folder: Path, whole: list[Case]) -> Iterator[Claim]:
    """A kernel that hangs with inverted memory: its process ends, and the next replay works."""
    case = _capture(folder, "waits", "^waits$")
    result = () if case.error else _tried("waits", case.path, ReplayRequest(iterations=4), limit_s=8.0)
    again = _tried("the one after", whole[0].path, ReplayRequest(iterations=4)) if whole else ()
    yield Claim("a kernel that hangs ends with its process, and the next replay works", "exact",
                f"{[one.fidelity.verdict for one in (*result, *again)]} {case.error}",
                [one.fidelity.verdict for one in (*result, *again)] == ["exact"] * 2)


def _cost(folder: Path, whole: list[Case]) -> Iterator[Claim]:
    """What a launch costs more while no kernel matches."""
    import subprocess
    launches = Path(__file__).with_name("_launches.py")
    times: dict[str, list[float]] = {"plain": [], "capturing": []}
    for turn in range(3):
        for what in times:
            spools = folder / f"cost-{what}-{turn}"
            spools.mkdir()
            environment = dict(os.environ)
            if what == "capturing":
                environment |= cupti.launch_environment(spools, "^no such kernel$", 0, 1 << 30)
            done = subprocess.run([sys.executable, str(launches), "launches", str(spools)], input="20 2\n20 3\n", text=True,
                                  env=environment, capture_output=True, timeout=120, check=False)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            if not lines:
                raise AacoError(f"{done.returncode} {done.stderr[-300:]}")
            times[what].append(min(statistics.median(line) for line in lines))
    plain, capturing = (statistics.median(times[what]) for what in ("plain", "capturing"))
    say(f"launches, ns: {times}")
    yield Claim("a launch costs more while no kernel matches", "<= 0.5 us", f"{(capturing - plain) / 1e3:.3f} us of {plain / 1e3:.2f}",
                capturing - plain <= 500)
