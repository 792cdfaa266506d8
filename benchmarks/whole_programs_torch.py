"""Record whole PyTorch programs on a GPU, from their first allocation on, and programs that share their device.

`python -m benchmarks.whole_programs_torch OUT` writes NAME.trace.json.gz per program and manifest.json: what was
planted, the time of a step without the profiler, and by the host's clock how long the start-up took. The profiler is on
from the start: weights are made on the host and moved, kernels are loaded, a graph is captured, and then the steps
come, without marks. Needs PyTorch and a GPU alone; about a minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.planted_torch import BF16, Step, graphed
from benchmarks.scenarios_torch import machine

STEPS = 10
TIMED = 40
Program = Callable[[], Step]


def products() -> Step:
    """Make weights on the host and move them; a step is a few large products."""
    net = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8))).to("cuda", BF16)
    x = torch.randn(8192, 4096, device="cuda", dtype=BF16)
    return lambda: net(x)


def passes() -> Step:
    """A step passes over memory."""
    x = torch.randn(1 << 28, device="cuda", dtype=BF16)
    return lambda: [x.mul_(1.0001) for _ in range(6)]


def small_kernels() -> Step:
    """A step launches many short kernels."""
    x = torch.randn(4096, device="cuda")
    return lambda: [x.mul_(1.0001) for _ in range(150)]


def reads() -> Step:
    """A step reads a value after each product."""
    x, weight = (torch.randn(2048, 2048, device="cuda", dtype=BF16) for _ in range(2))
    return lambda: [(x @ weight).amax().item() for _ in range(40)]


def replays() -> Step:
    """A step replays a graph of many short kernels over weights that no cache holds."""
    weights = [torch.randn(8192, 8192, device="cuda", dtype=BF16) for _ in range(12)]
    x = torch.randn(1, 8192, device="cuda", dtype=BF16)

    def step() -> torch.Tensor:
        y = x
        for weight in weights:
            y = torch.tanh(y @ weight)
        return y
    return graphed(step)


# Name, program, what limits its steps, and whether another process works on the device meanwhile.
PROGRAMS: tuple[tuple[str, Program, str, bool], ...] = (
    ("start_up_products", products, "compute_bound", False),
    ("start_up_passes", passes, "memory_bound", False),
    ("start_up_small_kernels", small_kernels, "launch_bound", False),
    ("start_up_reads", reads, "sync_bound", False),
    ("start_up_replays", replays, "memory_bound", False),
    ("shared_products", products, "compute_bound", True),
    ("shared_passes", passes, "memory_bound", True),
    ("shared_small_kernels", small_kernels, "launch_bound", True),
)


def main() -> int:
    """Record every program, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_programs_torch", description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    spawn, rows = multiprocessing.get_context("spawn"), []
    for number, (name, _, label, shared) in enumerate(PROGRAMS):
        with _other_process() if shared else nullcontext():
            for work in (_record, _time):
                process = spawn.Process(target=work, args=(number, out))
                process.start()
                process.join()
        facts = [json.loads(path.read_text()) for path in sorted(out.glob(f"{name}.*.facts"))]
        rows.append({"name": name, "label": label, "shared": shared, **{key: value for one in facts for key, value
                                                                      in one.items()}})
        print(json.dumps(rows[-1]), flush=True)
    for path in out.glob("*.facts"):
        path.unlink()
    (out / "manifest.json").write_text(json.dumps({"machine": machine(), "programs": rows}, indent=1) + "\n")
    return 0


def _record(number: int, out: Path) -> None:
    """The whole program under the profiler."""
    name, program, _, _ = PROGRAMS[number]
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    raw = out / f"{name}.trace.json"
    with torch.no_grad(), torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        began = time.perf_counter()
        step = program()
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        ended = time.perf_counter()
    profiler.export_chrome_trace(str(raw))
    raw.with_suffix(".json.gz").write_bytes(gzip.compress(raw.read_bytes(), 9, mtime=0))
    raw.unlink()
    facts = {"steps": STEPS, "start_up_ms": 1e3 * (started - began), "profiled_ms": 1e3 * (ended - started) / STEPS}
    (out / f"{name}.1.facts").write_text(json.dumps(facts))


def _time(number: int, out: Path) -> None:
    """The same without a profiler: a block of steps, and each alone."""
    name, program, _, _ = PROGRAMS[number]
    with torch.no_grad():
        step = program()
        for _ in range(10):
            step()
        blocks = []
        for _ in range(5):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(TIMED):
                step()
            torch.cuda.synchronize()
            blocks.append(1e3 * (time.perf_counter() - began) / TIMED)
    (out / f"{name}.2.facts").write_text(json.dumps({"step_ms": statistics.median(blocks), "step_ms_blocks": blocks}))


@contextmanager
def _other_process() -> Iterator[None]:
    """Another process whose kernels fill the device."""
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=_multiply, args=(ready,), daemon=True)
    process.start()
    try:
        ready.wait(60)
        yield
    finally:
        process.terminate()
        process.join()


def _multiply(ready: Any) -> None:
    x = torch.randn(4096, 4096, device="cuda", dtype=BF16)
    while True:
        for _ in range(20):
            x @ x
        torch.cuda.synchronize()
        ready.set()


if __name__ == "__main__":
    sys.exit(main())
