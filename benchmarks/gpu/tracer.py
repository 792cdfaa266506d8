"""Our CUPTI tracer on a real GPU: what a launch costs under it, whether it has all of them, and whether its times hold.

What is compared works in turns, a few milliseconds each, so that a clock that drifts is no matter: launches in one
process that is traced now and then, products in two processes. Kernel times are held against the device's own events,
against torch.profiler and against ncu. Needs nothing but the driver and CUPTI; what PyTorch and ncu would show is left
open where they are not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core import statistics
from aaco.core.errors import AacoError, BadCapture, Missing
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.nvidia import cupti, ncu
from aaco.profiler.formats.pytorch import kineto
from aaco.profiler.launchers import Wanted
from aaco.profiler.launchers import ncu as ncu_launcher
from aaco.profiler.launchers.cupti import environment
from aaco.steps.device import choose_profiler
from benchmarks.claims import Claim, failed
from benchmarks.gpu._launches import APART, EDGES, LAUNCHES
from benchmarks.gpu._served import running

PROGRAM = Path(__file__).with_name("_launches.py")
MODES = ("", "kernels", "all")  # empty: not traced
BARS = {"kernels": 15, "all": 45}  # % of an untraced launch of PyTorch's
# Two processes of one mode differ by more than the tracer costs, so each is compared with itself, and there are some.
PROCESSES, TURNS, ROUNDS = 8, 10, 5  # rounds of launches in each mode of a turn, after a first that does not count
PRODUCT_TURNS, PRODUCTS, SKIPPED, PAUSE_S = 20, 9, 3, 0.03
BAR_PCT = 1.0  # how far apart medians of kernel times may be
SHORTEST_US = 100  # of shorter ones an event's own time is no small part
TIMEOUT_S = 120
COUNTED = "spin|gemm|nvjet"
Tables = dict[str, list[pa.Table]]


def claims(captures: Path) -> Iterator[Claim]:
    """Every claim about the tracer."""
    for tool, measure in (("the device's own events", _against_events), ("torch.profiler", _against_torch),
                          ("ncu", _against_ncu)):
        yield _tried(tool, measure)
    yield from _cost()


def _cost() -> Iterator[Claim]:
    """Launches of some processes, which take turns; each traces itself now and then, but for the last."""
    cpus = sorted(os.sched_getaffinity(0))
    spent = np.zeros((PROCESSES + 1, TURNS, len(MODES), ROUNDS))
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, str(PROGRAM), "launches", folder]
        with running(argv, *[_traced(Path(folder), "")] * len(spent)) as programs:
            by, *_ = [json.loads(program.line()) for program in programs]
            for turn in range(TURNS):
                for number, program in enumerate(programs):
                    for mode in np.roll(range(len(MODES)), turn).tolist():
                        traced = MODES[mode] if number < PROCESSES else ""
                        spent[number, turn, mode] = json.loads(
                            program.ask(f"{ROUNDS} {cpus[turn % len(cpus)]} {traced}"))
        captures = [cupti.read(path) for path in sorted(Path(folder).glob("*.cupti"))]
    yield from slower(spent[:-1], spent[-1], by)
    launched = PROCESSES * TURNS * len(BARS) * (1 + ROUNDS) * LAUNCHES
    recorded = sum(_most(tables.get("kernels", [])) for tables, _ in captures)
    problems = sorted({problem for _, lost in captures for problem in lost})
    yield Claim("launches that the tracer has a kernel of", "all, nothing lost",
                f"{recorded:,} of {launched:,}; {'; '.join(problems) or 'nothing lost'}",
                recorded == launched and not problems)


def slower(spent: np.ndarray, never: np.ndarray, by: str) -> Iterator[Claim]:
    """What a launch costs under the tracer: of each process the least disturbed turns against each other.

    Other work on a host slows a core by a third, now one and then another, and slows the launches that are traced by
    more. spent: host time of a launch, ns, [process, turn, mode, round]; never: [turn, any, round] of a process that
    was never traced; by: whose launches.
    """
    turns = np.median(spent, axis=-1)
    best = turns.min(axis=1)
    yield Claim("an untraced launch, host time", "", f"{np.median(best[:, 0]) / 1000:.2f} us at best, "
                f"{np.median(turns[..., 0]) / 1000:.2f} in the median turn, by {by}; of a process that never was "
                f"traced {np.median(never, axis=-1).min() / 1000:.2f} at best", None)
    for place, (mode, bar) in enumerate(BARS.items(), 1):
        more = statistics.quantile(100 * (best[:, place] / best[:, 0] - 1), 0.5)
        any_turn = np.median(100 * (turns[..., place] / turns[..., 0] - 1))
        judged = by != "driver"  # the driver's own launch is a third of PyTorch's: a share of it is another figure
        yield Claim(f"a launch under the tracer, {'kernels only' if mode == 'kernels' else 'with the calls'}",
                    f"<= +{bar} % of one of PyTorch's",
                    f"{more.value:+.1f} % ({_low_high(more)}), {np.median(best[:, place] - best[:, 0]):+.0f} ns, at "
                    f"best of {len(best)} processes; {any_turn:+.1f} % in the median turn",
                    more.value <= bar if judged else None)


def _against_events() -> Claim:
    said, tables, _ = _run("kernels", "spins")
    return by_events(np.concatenate([table["dur_ns"].to_numpy() for table in tables["kernels"]]) / 1000,
                     np.array(said["us"]))


def by_events(ours: np.ndarray, theirs: np.ndarray) -> Claim:
    """Kernel times against the events around them, us, each in order."""
    what, bar = "kernel times against the device's own events", f"median <= {BAR_PCT:g} %"
    if len(ours) != len(theirs) or np.median(ours) < SHORTEST_US:
        return Claim(what, bar, f"{len(ours)} kernels of {len(theirs)}, of {np.median(ours):.0f} us", False)
    off = 100 * np.abs(ours / theirs - 1)
    return Claim(what, bar, f"{np.median(off):.3f} %, at most {off.max():.2f} %, of {np.median(ours):.0f} us",
                 bool(np.median(off) <= BAR_PCT))


def _tried(tool: str, measure: Callable[[], Claim]) -> Claim:
    """The claim; not judged where the tool, or PyTorch for it, is not here; missed where it cannot be had."""
    what = f"kernel times against {tool}"
    try:
        return measure()
    except Missing as reason:
        return Claim(what, f"median difference <= {BAR_PCT:g} %", reason.what, None)
    except (AacoError, subprocess.SubprocessError, LookupError, ValueError) as error:
        return failed(what, error)


def _against_torch() -> Claim:
    """The same products in two processes, one under either, in turns: no two users of CUPTI can watch one."""
    with tempfile.TemporaryDirectory() as name:
        folder, trace = Path(name), Path(name) / "trace.json"
        with running([sys.executable, str(PROGRAM), "products"], _traced(folder, "kernels")) as (ours,), \
                running([sys.executable, str(PROGRAM), "products", str(trace)], _traced(folder, "")) as (theirs,):
            for one in (ours, theirs):
                one.line()  # by whom
            for turn in range(PRODUCT_TURNS):
                for one in (ours, theirs) if turn % 4 in (0, 3) else (theirs, ours):
                    one.ask(str(PRODUCTS))
                    time.sleep(PAUSE_S)  # so short a work, so seldom, is far below the power cap
        tables, _ = _read(folder)
        parsed = [item for item in kineto.parse(trace) if not isinstance(item, CaptureFacts)]
    shape = (PRODUCT_TURNS, len(EDGES), PRODUCTS)
    pair = [products(some, shape)[:, :, SKIPPED:].transpose(1, 0, 2) for some in
            (tables["kernels"], [one for one in parsed if _is(one, "kernels")])]
    return alike("torch.profiler", [f"product {edge}" for edge in EDGES], *pair)


def _against_ncu() -> Claim:
    """One program under our tracer, under ncu, and under our tracer again."""
    argv = [sys.executable, str(PROGRAM), "apart"]
    wanted = Wanted(kernels=COUNTED)
    tool = choose_profiler.find(ncu_launcher, wanted)
    with tempfile.TemporaryDirectory() as folder:
        made, = ncu_launcher.passes(tool, wanted, argv, Path(folder))
        (Path(folder) / made.folder).mkdir()
        said, before, _ = _run("kernels", "apart")
        _ask(made.argv, _traced(Path(folder), "") | dict(made.environment))
        _, after, _ = _run("kernels", "apart")
        counted = [item for item in ncu.parse(Path(folder) / made.folder / ncu_launcher.TABLE)
                   if not isinstance(item, CaptureFacts) and _is(item, "kernels")]
    kinds = said["kinds"]
    shape = (APART, len(kinds))
    ours = [products(some["kernels"], shape).T for some in (before, after)]
    return alike("ncu", kinds, np.concatenate(ours, axis=1)[:, None, :], products(counted, shape).T[:, None, :])


def alike(tool: str, kinds: Sequence[str], ours: np.ndarray, theirs: np.ndarray) -> Claim:
    """Kernel times of ours against theirs, us, [kind, turn, kernel]: the median difference of the turns, by kind."""
    what, bar = f"kernel times against {tool}", f"median difference <= {BAR_PCT:g} %"
    mine, other = (np.median(one, axis=2) for one in (ours, theirs))
    off = 100 * np.median(mine / other - 1, axis=1)
    told = ", ".join(f"{kind} ({each:.0f} us) {value:+.2f} %" for kind, each, value in
                     zip(kinds, np.median(mine, axis=1).tolist(), off.tolist(), strict=True))
    return Claim(what, bar, f"{np.median(np.abs(off)):.2f} %: {told}", bool(np.median(np.abs(off)) <= BAR_PCT))


def products(tables: Sequence[pa.Table], shape: tuple[int, ...]) -> np.ndarray:
    """Times, us, of the last kernels that are the programs' work, in their order. Raises BadCapture where they are
    fewer.
    """
    rows = [row for table in tables for row in zip(
        table["t_start_ns"].to_pylist(), table["kernel_id"].to_pylist(), table["dur_ns"].to_pylist(),
        table["kernel_name"].to_pylist(), strict=True)]
    rows.sort(key=lambda row: (row[0] or 0, row[1]))  # ncu knows no time, but numbers them as they were launched
    times = np.array([row[2] for row in rows if any(word in row[3].lower() for word in COUNTED.split("|"))], float)
    wanted = int(np.prod(shape))
    if len(times) < wanted:
        raise BadCapture(f"{len(times)} kernels of the program's work where {wanted} were asked for")
    return times[-wanted:].reshape(shape) / 1000


def _run(mode: str, *words: str) -> tuple[dict[str, Any], Tables, list[str]]:
    """What the program says, its tables by name, and what was lost of them. Raises Missing."""
    with tempfile.TemporaryDirectory() as folder:
        said = _ask([sys.executable, str(PROGRAM), *words], _traced(Path(folder), mode))
        return json.loads(said.splitlines()[-1]), *_read(Path(folder))


def _ask(argv: Sequence[str], around: Mapping[str, str]) -> str:
    done = subprocess.run(argv, env=around, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        last = ((done.stderr.strip() or done.stdout.strip()) or "it said nothing").splitlines()[-1]
        raise Missing(f"{Path(argv[0]).name} ended with {done.returncode}: {last}", "nvidia-smi; aaco doctor")
    return done.stdout


def _traced(folder: Path, mode: str) -> dict[str, str]:
    """The environment of a program that is traced into the folder; mode: empty, it is not."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AACO_CUPTI_")}
    if mode:
        folder.mkdir(exist_ok=True)
    return plain | (environment(folder, mode) if mode else {})


def _read(folder: Path) -> tuple[Tables, list[str]]:
    """The tables of the captures by name, and what was lost of them."""
    return cupti.read(*sorted(folder.glob("*.cupti")))


def _most(tables: list[pa.Table]) -> int:
    """Executions of the kernel that ran most often: the one that was launched in the rounds."""
    return max(Counter(name for table in tables for name in table["kernel_name"].to_pylist()).values(), default=0)


def _is(table: pa.Table, name: str) -> bool:
    return table.schema.metadata[b"aaco.table"] == name.encode()


def _low_high(found: statistics.Estimate) -> str:
    return f"95 %: {found.low:+.1f} to {found.high:+.1f}" if found.low is not None else "no interval"
