"""What recording a device costs the program on it, what the recording is worth, and whether it sees a power cap.

A program in another process multiplies matrices, or launches many tiny kernels, and tells when each step began and
ended. Short blocks of steps with the recorder and while it stands still take turns (on, off, off, on); the cost is
the median of their ratios, with its 95 % interval.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco.analytics.diagnosis import diagnose
from aaco.analytics.measure import measure
from aaco.collectors.gpu import device_accounts, device_watch
from aaco.core.config import Analysis
from aaco.core.readings import Absent, Estimate, Reading
from aaco.core.statistics import quantile
from aaco.core.tables import INFERENCE_ITERS
from aaco.profiler.formats.system import smi
from benchmarks.claims import Claim
from benchmarks.gpu._served import Program, running

# Answers a line "KIND SECONDS" with the begin and end of each step, CLOCK_MONOTONIC ns, and an empty line.
PROGRAM = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
small = torch.zeros(1, device="cuda")
def gemm(): a @ a; a @ a
def launch():
    for _ in range(300): small.add_(1)
for _ in range(20): gemm(); launch()
torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    kind, seconds = line.split()
    step, until, rows = {"gemm": gemm, "launch": launch}[kind], time.monotonic() + float(seconds), []
    while time.monotonic() < until:
        begin = time.monotonic_ns(); step(); torch.cuda.synchronize(); rows.append((begin, time.monotonic_ns()))
    print(*(f"{begin},{end}" for begin, end in rows), flush=True)
"""
PAIRS, BLOCK_S, LONG_S, REST_S = 48, 0.2, 6.0, 3.0
FREE_PCT = 1.0


def steps(program: Program, kind: str, seconds: float) -> np.ndarray:
    """Steps of a kind for so long: begin and end of each, ns, [steps, 2]."""
    answer = program.ask(f"{kind} {seconds}")
    return np.array([[int(each) for each in pair.split(",")] for pair in answer.split()])


def cost(program: Program, kind: str, recorder: int, pairs: int = PAIRS, block_s: float = BLOCK_S) -> Estimate:
    """By how many percent the median step is slower while the devices are recorded ten times a second.

    recorder: the process that records, which stands still in every other block: beginning it anew would take longer
    than a block, in which the machine drifts. The median of the pairs, with its order-statistic interval.
    """
    ratios = []
    for pair in range(pairs):
        found = {}
        for on in (True, False) if pair % 2 else (False, True):
            with nullcontext() if on else paused(recorder):
                found[on] = _block(program, kind, block_s)
        ratios.append(100 * (found[True] / found[False] - 1))
    return quantile(np.array(ratios), 0.5)


@contextmanager
def paused(process: int) -> Iterator[None]:
    """The process stands still until the end of the block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def _block(program: Program, kind: str, seconds: float) -> float:
    found = steps(program, kind, seconds)
    return float(np.median(found[:, 1] - found[:, 0]))


def watched(program: Program, kind: str, folder: Path, seconds: float = LONG_S) -> tuple[dict[str, Reading], list[str]]:
    """The readings of a long block whose devices were recorded, and what the recorder says of itself."""
    with device_watch.recorded(folder):
        found = steps(program, kind, seconds)
    events = device_watch.events(folder, smi.gpu_events)
    tables = {"gpu_events": events, "inference_iters": iterations(found)}
    with suppress(Absent):
        tables["samples"] = device_watch.samples(folder)
    return measure(tables, None, Analysis()), list(device_accounts.account_notes(folder, events))


def iterations(found: np.ndarray) -> pa.Table:
    """The steps as measured inferences of one process."""
    count = len(found)
    return INFERENCE_ITERS.build(iteration=np.arange(count), phase=["measurement"] * count, process=[0] * count,
                                 batch=[1] * count, t_start_ns=found[:, 0], t_end_ns=found[:, 1],
                                 latency_ms=(found[:, 1] - found[:, 0]) / 1e6)


def claims(_: Path, argv: Sequence[str] = (sys.executable, "-c", PROGRAM)) -> list[Claim]:
    """Cost, throttling seen and not seen, energy against the counter, rate."""
    with tempfile.TemporaryDirectory() as scratch, running(argv) as (program,):
        folder = Path(scratch)
        recorder = device_watch.Recorder("nvidia", folder / "cost", device_watch.PERIOD_S)
        try:
            recorder.wait()
            costs = {kind: cost(program, kind, recorder.pid) for kind in ("launch", "gemm")}
        finally:
            recorder.stop()
        held, told = watched(program, "gemm", folder / "held")
        steps(program, "launch", REST_S)
        free, _ = watched(program, "launch", folder / "free")
    return [*(_cost_claim(kind, found) for kind, found in costs.items()),
            _throttled("matrix products flat out: throttled for power", held, True),
            _throttled("tiny kernels: not throttled", free, False), _energy(held),
            Claim("energy of a step, matrix products", "-", _told(held["energy_per_inference_j"]), None),
            Claim("the recorder of itself", "-", "; ".join(told), None)]


def _cost_claim(kind: str, found: Estimate) -> Claim:
    """No slow-down can be told where the interval holds none, and it is too narrow to hide one that matters."""
    assert found.low is not None and found.high is not None
    free = found.low <= 0 and found.value < FREE_PCT
    return Claim(f"recorder at 10 Hz, median step, {kind}", f"interval holds 0, below {FREE_PCT:g} %",
                 f"{found.value:+.2f} % [{found.low:+.2f}, {found.high:+.2f}]", free)


def _throttled(claim: str, readings: dict[str, Reading], expected: bool) -> Claim:
    stands = any(one.label == "throttled_clock" for one in diagnose(readings).conditions)
    share = readings["device_throttled_pct"]
    return Claim(claim, "throttled_clock " + ("stands" if expected else "does not"),
                 f"{_told(share)} of samples, {_told(readings['device_clock_below_max_pct'])} below the highest clock",
                 None if share.value is None else stands == expected)


def _energy(readings: dict[str, Reading]) -> Claim:
    found = readings["energy_of_counter_pct"]
    return Claim("energy by samples of power, of the device's counter", "95 to 105 %", _told(found),
                 None if found.value is None else 95 <= found.value <= 105)


def _told(one: Reading) -> str:
    if one.value is None:
        return f"absent: {one.why_absent}"
    ends = f" [{one.low:.4g}, {one.high:.4g}]" if one.low is not None and one.high is not None else ""
    return f"{one.value:.4g} {one.unit}{ends}"
