"""Kernel replay on a real GPU: twelve kernels captured and run again in fresh processes, and what must not pass.

Everything printed between the claims is for whoever reads a run that failed: one line for each capture and replay.
"""

from __future__ import annotations

import hashlib
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aaco.core.errors import AacoError
from aaco.profiler.formats.nvidia import cupti as cupti_format
from aaco.profiler.launchers import cupti
from aaco.replay import cache
from aaco.replay import capture as captures
from aaco.replay.blobs import DOCUMENT, ROLES
from aaco.replay.engine import CacheMode, ReplayRequest
from aaco.replay.record import record
from aaco.replay.run import ReplayResult, replay
from benchmarks.claims import Claim

PROGRAM = Path(__file__).with_name("_kernels.py")
# The kernels of the bar: what their names match, as POSIX extended regular expressions.
KERNELS = {"add": "CUDAFunctor_add", "softmax": "[sS]oft[mM]ax", "row_sum": "reduce_kernel", "gemm_f32": "gemm|cutlass",
           "nvjet": "nvjet", "nvjet_splitk": "nvjet", "gather": "indexSelect|gather|index_elementwise",
           "attention": "sdpa|flash|fmha", "convolution": "implicit|fprop|xmma|cutlass|gemm|conv2d",
           "triton": "^doubled$",
           "chase": "^chase$", "counter": "^counter$"}
LAUNCH, PROCESSES, ITERATIONS, WORKERS = 12, 10, 10, 8
TOLERATED_PCT, MEDIAN_PCT = 3.0, 2.0
STATEFUL = ("nvjet", "attention", "counter")  # use up a counter, which something before the launch resets
ONE_TILE_A_BLOCK = ("add", "softmax", "row_sum", "gemm_f32", "gather", "convolution",
                    "triton")  # the others' blocks take any
SWAPPABLE = ("add", "gather", "triton", "counter")  # with their pointers exchanged they stay within their memory
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
        for part in (_timed, _unrestored, _planted, _edited, _hung, _cost):
            begin = time.monotonic()
            try:
                yield from part(folder, whole)
            except Exception as error:  # noqa: BLE001  the other parts are worth having
                traceback.print_exc(file=sys.stdout)
                yield Claim(f"{part.__name__} runs to its end", "no error", f"{type(error).__name__}: {error}"[:200],
                            False)
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
            f"empty pair {result.empty_pair_us:.2f} us, addresses {result.exact_addresses}/{result.regions}, "
            f"uses {used}, {result.processes} processes, {result.seconds:.2f} s of the child's, "
            f"{time.monotonic() - begin:.2f} s in all")
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
    return Claim(f"{expected} fresh processes, {expected * ITERATIONS} restored replays: all exact, poisoned, "
                 "at their addresses",
                 "100 %", f"{exact} of {expected} processes, {good} of {checks} checks, {placed} of {regions} regions",
                 exact == expected and good == checks == expected * ITERATIONS and placed == regions)


def _timed(folder: Path, whole: list[Case]) -> Iterator[Claim]:
    """Restored replays against the same kernels in their programs, both by our tracer, and what explains the others."""
    with ThreadPoolExecutor(WORKERS) as pool:  # they use the device one after the other: _kernels.py's lock
        list(pool.map(lambda case: _time_application(folder, case), whole))
    differences, unexplained = {}, []
    for case in whole:
        try:
            times = {"as-left": _replay_us(case, "as-left")}
            if case.application_us is None or times["as-left"] is None:
                say(f"{case.name}: application {case.application_us} us, replay {times}")
                unexplained.append(case.name)
                continue
            differences[case.name] = 100 * (times["as-left"] / case.application_us - 1)
            if abs(differences[case.name]) > MEDIAN_PCT:
                times |= {mode: _replay_us(case, mode) for mode in ("warm", "cold")}
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
        times = _traced(case, [str(PROGRAM), case.name, str(folder / "lock")])
        case.application_us = statistics.median(times[-LAST:])
    except Exception as error:  # noqa: BLE001  a claim says so
        say(f"{case.name}: not traced: {type(error).__name__}: {error}")


def _replay_us(case: Case, mode: CacheMode) -> float:
    """Return the median time of a restored replay's launches, by our tracer, us."""
    with captures.open(case.path) as capture:
        known = [use.model_dump() for use in capture.roles.regions] if capture.roles else []
    request = {"capture": str(case.path), "code": None, "known": known,
               "how": {"iterations": ITERATIONS * 2, "warmup": 3, "cache": mode}}
    times = _traced(case, ["-m", "aaco.replay.child", json.dumps(request)])
    each = 2 if mode == "warm" else 1  # the launch that warms is not the one that is timed
    return statistics.median(times[::-each][:LAST])


def _traced(case: Case, arguments: list[str]) -> list[float]:
    """Return the times of the kernel's launches, us, in Python with these arguments under our tracer."""
    with captures.open(case.path) as capture:
        names = {capture.launch.symbol, capture.launch.demangled}
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


def _unrestored(_: Path, whole: list[Case]) -> Iterator[Claim]:
    """Without restoring: a kernel that uses its state up gets no time; another gets the same as with it."""
    timed = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        request = ReplayRequest(iterations=10, recopy=False)
        turns = {case.name: pool.submit(_tried, f"{case.name} --no-recopy", case.path, request) for case in whole}
        for name, turn in turns.items():
            for result in turn.result():
                timed[name] = result.median_us
    stateful = [name for name in STATEFUL if name in timed]
    yield Claim("kernels that use up a counter get no time without restoring", f"none of {len(STATEFUL)}",
                f"{[name for name in stateful if timed[name] is not None]} of {stateful}",
                len(stateful) == len(STATEFUL) and all(timed[name] is None for name in stateful))


TWICE = ReplayRequest(iterations=2)


@dataclass(frozen=True)
class Plant:
    """A replay that is not faithful, because of one thing. change: edits capture.json."""

    case: Case
    what: str
    change: Callable[[dict[str, Any]], object] = lambda document: None
    request: ReplayRequest = TWICE
    code: Path | None = None


def _copied(folder: Path, plant: Plant) -> Path:
    """Return a copy of a capture, whose blobs are links, with the change, and with the measured roles kept."""
    target = folder / f"planted-{plant.case.name}-{plant.what}"
    shutil.copytree(plant.case.path, target, copy_function=os.link)
    document, roles = (json.loads((target / name).read_text()) for name in (DOCUMENT, ROLES))
    plant.change(document)
    raw = json.dumps(document).encode()
    roles["capture_sha256"] = hashlib.sha256(raw).hexdigest()
    for name, content in ((DOCUMENT, raw), (ROLES, json.dumps(roles).encode())):
        (target / name).unlink()
        (target / name).write_bytes(content)
    return target


def _answer_before(document: dict[str, Any]) -> None:
    """Take the snapshot before the operator: what the launch uses up is as the launch before it left it."""
    for region in document["regions"]:
        region["before"] = region["after"]


def _used_up(document: dict[str, Any]) -> None:
    """Make one page that the launch changes what it was after it: a counter that was not restored."""
    places = [[(region, page) for page, states in enumerate(zip(region["before"], region["after"], strict=True))
               if len(set(states)) > 1] for region in document["regions"]]
    region, page = min(filter(None, places), key=len)[0]  # a counter has one page, an output many
    region["before"][page] = region["after"][page]


def _pages(case: Case) -> Iterator[Plant]:
    """Two pages exchanged in memory that the kernel was measured to read, from where one of its pointers shows."""
    with captures.open(case.path) as capture:
        regions, raw, page = list(capture.regions), bytes.fromhex(capture.launch.arguments), capture.document.page_bytes
    words = [int.from_bytes(raw[at:at + 8], "little") for at in range(0, len(raw) - 7, 8)]
    uses = {use.base: use for use in case.results[0].uses}
    read = [number for number, region in enumerate(regions) if uses[region.base].read and region.role != "global"]
    unwritten = [number for number in read if uses[regions[number].base].written == "none"]
    for number in unwritten or read:
        region = regions[number]
        for first in sorted({(word - region.base) // page for word in words if region.base <= word < region.end}):
            for at in (first, first + 2):
                digests = region.before or []
                if at + 1 < len(digests) - (first > 0) and digests[at] != digests[at + 1]:
                    yield Plant(case, f"pages_{number}_{at}", partial(_swap, number, at))


def _swap(number: int, page: int, document: dict[str, Any]) -> None:
    before = document["regions"][number]["before"]
    before[page], before[page + 1] = before[page + 1], before[page]


def _grid(blocks: Callable[[int], int], document: dict[str, Any]) -> None:
    """Another launch of the same kernel, with fewer blocks."""
    grid = document["launch"]["grid"]
    place = max(range(3), key=grid.__getitem__)
    grid[place] = blocks(grid[place])


def _other_arguments(document: dict[str, Any]) -> None:
    """Another launch of the same kernel: the first two of its pointers exchanged."""
    raw = document["launch"]["arguments"]
    spans = [(region["base"], region["base"] + region["size"]) for region in document["regions"]]
    words = [at for at in range(0, len(raw) - 15, 16) if any(
        begin <= int.from_bytes(bytes.fromhex(raw[at:at + 16]), "little") < end for begin, end in spans)]
    left, right = words[:2]
    document["launch"]["arguments"] = (raw[:left] + raw[right:right + 16] + raw[left + 16:right] + raw[left:left + 16]
                                       + raw[right + 16:])


def _no_globals(document: dict[str, Any]) -> None:
    document["regions"] = [region for region in document["regions"] if region["role"] != "global"]


# Edits that leave out work, whose result lies there from the launch before.
IDLE = {"chase": ("out[threadIdx.x] = sum;", "if (!length) out[threadIdx.x] = sum;"),
        "counter": ("at < n; at += blockDim.x)\n\t\tout",
        "at < n / 2; at += blockDim.x)\n\t\tout")}


def _plants(folder: Path, whole: list[Case]) -> Iterator[Plant]:
    """Yield what changes the kernel's work: pages that it reads, blocks that nothing makes up for, state it uses up."""
    from benchmarks.gpu._kernels import SOURCE, compiled
    for case in whole:
        yield from list(_pages(case))[:4]
        if case.name in STATEFUL:
            yield Plant(case, "snapshot_before_operator", _answer_before)
            yield Plant(case, "counter_used_up", _used_up)
            yield Plant(case, "not_restored", request=ReplayRequest(iterations=4, recopy=False))
        if case.name in ONE_TILE_A_BLOCK:
            for what, blocks in (("half", lambda n: n // 2), ("one_less", lambda n: n - 1), ("one", lambda n: 1)):
                yield Plant(case, f"blocks_{what}", partial(_grid, blocks))
        if case.name in SWAPPABLE:
            yield Plant(case, "other_arguments", _other_arguments)
        if case.name == "counter":
            yield Plant(case, "no_globals", _no_globals)
        if case.name in IDLE:
            source, (old, new) = SOURCE.read_text(), IDLE[case.name]
            if old not in source:
                raise ValueError(f"{old!r} is not in {SOURCE}")
            code = folder / f"idle-{case.name}.cubin"
            with captures.open(case.path) as capture:
                code.write_bytes(compiled(source.replace(old, new), capture.document.captured_from.isa))
            yield Plant(case, "work_left_out", code=code)


def _planted(folder: Path, whole: list[Case]) -> Iterator[Claim]:
    """Replays that are not faithful: each must be told, and none may get a time."""
    def verdict(plant: Plant) -> str:
        try:
            result = replay(_copied(folder, plant), plant.request, plant.code, limit_s=30.0)
            return result.fidelity.verdict + (" WITH A TIME" if result.times_us else f": {result.fidelity.reason}")
        except AacoError as error:
            return f"refused: {str(error).splitlines()[0][:90]}"

    plants = list(_plants(folder, whole))
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(verdict, plants))
    for plant, said in zip(plants, verdicts, strict=True):
        say(f"planted {plant.case.name} {plant.what}: {said}")
    told = sum(said.split(":")[0] in ("differs", "unproved") for said in verdicts)
    yield Claim("planted unfaithfulness is told, and gets no time", "all, of 60 or more", f"{told} of {len(verdicts)}",
                told == len(verdicts) >= 60)


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
            turns = [pool.submit(_tried, f"scaled, edited to {what}", case.path, ReplayRequest(iterations=10), True,
                                 code)
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
    launches = Path(__file__).with_name("_launches.py")
    times: dict[str, list[float]] = {"plain": [], "capturing": []}
    for turn in range(2):
        for what in times:
            spools = folder / f"cost-{what}-{turn}"
            spools.mkdir()
            environment = dict(os.environ)
            if what == "capturing":
                environment |= cupti.launch_environment(spools, "^no such kernel$", 0, 1 << 30)
            done = subprocess.run([sys.executable, str(launches), "launches", str(spools)], input="20 2\n20 3\n",
                                  text=True,
                                  env=environment, capture_output=True, timeout=120, check=False)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            if not lines:
                raise AacoError(f"{done.returncode} {done.stderr[-300:]}")
            times[what].append(min(statistics.median(line) for line in lines))
    plain, capturing = (min(times[what]) for what in ("plain", "capturing"))
    say(f"launches, ns: {times}")
    yield Claim("a launch costs more while no kernel matches", "<= 0.5 us",
                f"{(capturing - plain) / 1e3:.3f} us of {plain / 1e3:.2f}",
                capturing - plain <= 500)
