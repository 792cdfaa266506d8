"""A program that works on the GPU, and says how long that took it: run by benchmarks.gpu.tracer, traced and untraced.

    python _launches.py launches FOLDER       for each line `ROUNDS CPU [MODE]` on stdin so many rounds of 1000 tiny
                                              kernels on that CPU, host ns each; with a mode traced into the folder
    python _launches.py calls FOLDER CPU      the driver's own launches on that CPU: host us of one, by turns plain and
                                              while a launch of another kernel is waited for, into the folder; and of a
                                              step of STEP_TURNS, whose round is waited for
    python _launches.py products [FILE]       for each number on stdin so many of each size of products of matrices, and
                                              the time from begin to end; FILE gets torch.profiler's trace of them
    python _launches.py spins                 kernels of some milliseconds, by the device's own events, us
    python _launches.py apart                 kernels that nothing else is near, and how many kinds of them there are

Those that read stdin say `ready` first, and answer each line with a line of JSON, until stdin ends. Launches are
PyTorch's where it is installed, else the driver's by ctypes; besides, it imports our tracer alone.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from aaco.profiler.cupti.inside import launch_capture, library, tracer

LAUNCHES = 1000
TURNS_OF_CALLS, ROUNDS, STEPS, STEP_TURNS = 20, 5, 20, 50_000
SPINS, TURNS = 40, 400_000
LONG = 10  # as long: what two events take beside a kernel, some 20 us, is little of it
EDGES = (3072, 4096, 6144)  # at least 80 us each on an H200
APART, APART_S, APART_EDGE = 12, 0.02, 8192
FRACTIONS = (4, 2, 1)  # of TURNS
# Fused multiply-adds, one after the other; for any device since Turing.
PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry spin(.param .u32 turns, .param .u64 sink)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    .reg .f32 %f<3>;
    ld.param.u32 %r1, [turns];
    ld.param.u64 %rd1, [sink];
    mov.u32 %r2, 0;
    mov.f32 %f1, 0f3F800000;
    mov.f32 %f2, 0f3F7FFFFF;
TURN:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    fma.rn.f32 %f1, %f1, %f2, %f2;
    add.u32 %r2, %r2, 1;
    bra TURN;
DONE:
    st.global.f32 [%rd1], %f1;
    ret;
}
\0"""


class Driver:
    """The first GPU by the driver's own functions, with one kernel."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._sink, self._kernel = ctypes.c_uint64(), ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        self.call("cuModuleGetFunction", ctypes.byref(self._kernel), module, ctypes.c_char_p(b"spin"))
        self.call("cuMemAlloc_v2", ctypes.byref(self._sink), ctypes.c_size_t(256))

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the driver. Exits where it returns an error."""
        code = getattr(self._cuda, name)(*arguments)
        if code:
            sys.exit(f"{name}: error {code}")

    def launcher(self, turns: int) -> Callable[[], object]:
        """What launches the kernel once."""
        count = ctypes.c_uint32(turns)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(count), ctypes.addressof(self._sink))
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        arguments = (self._kernel, one, one, one, one, one, one, ctypes.c_uint(0), none, values, none)
        function, kept = self._cuda.cuLaunchKernel, (count, values)

        def launch(kept: object = kept) -> object:
            return function(*arguments)

        return launch

    def synchronise(self) -> None:
        """Wait for the device."""
        self.call("cuCtxSynchronize")

    def event(self) -> ctypes.c_void_p:
        """A new event of the device."""
        made = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), ctypes.c_uint(0))
        return made


def launches(folder: Path) -> None:
    """Answer with the host time of a launch, ns, of each round; first of all who launches."""
    torch = _torch()
    if torch is None:
        driver = Driver()
        launch, synchronise, by = driver.launcher(0), driver.synchronise, "driver"
    else:
        x = torch.zeros(1024, device="cuda")
        launch, synchronise, by = lambda: x.add_(1.0), torch.cuda.synchronize, f"PyTorch {torch.__version__}"
    launch()  # CUDA is there, and so is the context that is traced

    def rounds(count: int) -> list[float]:
        took = []
        for _ in range(count):
            synchronise()
            begin = time.perf_counter_ns()
            for _ in range(LAUNCHES):
                launch()
            took.append((time.perf_counter_ns() - begin) / LAUNCHES)
        synchronise()
        return took

    def turn(line: str) -> list[float]:
        count, cpu, *mode = line.split()
        with _traced(folder, *mode) if mode else nullcontext(), _on(int(cpu)):
            return rounds(1 + int(count))[1:]

    gc.disable()
    _serve(turn, by)


@contextmanager
def _traced(folder: Path, mode: str) -> Iterator[None]:
    """Under our tracer, into a capture of its own; afterwards CUPTI is detached."""
    path = folder / f"{os.getpid()}-{time.monotonic_ns()}.cupti"
    running = tracer.begin(library.load(os.environ, sys.path), str(path), mode)
    try:
        yield
    finally:
        running.stop("exit")
        running.spool.close()


@contextmanager
def _on(cpu: int) -> Iterator[None]:
    """This thread on one CPU, where that is allowed; CUPTI's own threads are free."""
    allowed = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)


def _serve(work: Callable[[str], object], by: str) -> None:
    """Do the work for each line of stdin, and answer it with what that returns; first of all by whom."""
    print("ready", json.dumps(by), sep="\n", flush=True)
    for line in sys.stdin:
        print(json.dumps(work(line)), flush=True)


def calls(folder: Path, cpu: int) -> dict[str, dict[str, list[float]]]:
    """Host times, us, of launches by the driver alone, which are quick to begin with, and of steps of 0.2 ms.

    By kind and by whether a launch is waited for: for each turn the median of its rounds. In one process, because
    launches of two processes of one kind differ by 2 us (H100).
    """
    driver, cupti = Driver(), library.load(os.environ, sys.path)
    kinds = (("launch", 0, LAUNCHES, False), ("step", STEP_TURNS, STEPS, True))
    took: dict[str, dict[str, list[float]]] = {kind: {"plain": [], "capturing": []} for kind, *_ in kinds}

    def timed(launch: Callable[[], object], count: int, is_waited: bool) -> float:
        driver.synchronise()
        begin = time.perf_counter_ns()
        for _ in range(count):
            launch()
        if is_waited:
            driver.synchronise()
        return (time.perf_counter_ns() - begin) / count / 1e3

    gc.disable()
    with _on(cpu):
        for turn in range(2 * TURNS_OF_CALLS):
            how = "capturing" if turn % 4 in (1, 2) else "plain"
            with _captured(cupti, folder / str(turn)) if how == "capturing" else nullcontext():
                for kind, turns, count, is_waited in kinds:
                    rounds = [timed(driver.launcher(turns), count, is_waited) for _ in range(ROUNDS + 1)]
                    took[kind][how].append(statistics.median(rounds[1:]))
    return took


@contextmanager
def _captured(cupti: library.CuptiLibrary, path: Path) -> Iterator[None]:
    """While a launch of a kernel that the program does not have is waited for."""
    running = launch_capture.LaunchCapture(cupti, str(path), "^no such kernel$", 0, 1 << 30)
    try:
        yield
    finally:
        cupti.call("cuptiUnsubscribe", running.subscriber)
    if not running.counts()["launches"]:
        sys.exit("no launch passed through the capture")


def spins() -> dict[str, Any]:
    """Time between two events around a kernel, us, one kernel after the other."""
    driver, took = Driver(), []
    launch = driver.launcher(LONG * TURNS)
    begin, end, apart = driver.event(), driver.event(), ctypes.c_float()
    for _ in range(SPINS):
        driver.call("cuEventRecord", begin, ctypes.c_void_p())
        launch()
        driver.call("cuEventRecord", end, ctypes.c_void_p())
        driver.synchronise()
        driver.call("cuEventElapsedTime", ctypes.byref(apart), begin, end)
        took.append(1000 * apart.value)
    return {"us": took}


def products(trace: str | None) -> None:
    """Products of random matrices of several sizes, each often, in one order; watched by torch.profiler into a file."""
    torch = _torch()
    if torch is None:
        sys.exit("PyTorch with CUDA is not installed")
    pairs = [[torch.randn(edge, edge, device="cuda", dtype=torch.bfloat16) for _ in range(2)] for edge in EDGES]

    def work(count: str) -> int:
        begin = time.perf_counter_ns()
        for left, right in pairs:
            for _ in range(int(count)):
                left @ right
            torch.cuda.synchronize()
        return time.perf_counter_ns() - begin

    work("2")
    if trace is None:
        _serve(work, f"PyTorch {torch.__version__}")
    else:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
            _serve(work, f"PyTorch {torch.__version__}")
        profiled.export_chrome_trace(trace)


def apart() -> dict[str, Any]:
    """Kernels of some kinds in turns, with pauses: the clock is what it is with a device that is hardly used."""
    torch = _torch()
    if torch:
        left, right = (torch.randn(APART_EDGE, APART_EDGE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    driver = Driver()
    spins = [driver.launcher(TURNS // fraction) for fraction in FRACTIONS]
    for _ in range(APART):
        for spin in spins:
            spin()
        if torch:
            left @ right
        driver.synchronise()
        time.sleep(APART_S)
    return {"kinds": [f"spin/{fraction}" for fraction in FRACTIONS] + [f"product {APART_EDGE}"] * bool(torch)}


def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "products":
        products(sys.argv[2] if len(sys.argv) > 2 else None)
    elif what == "launches":
        launches(Path(sys.argv[2]))
    else:
        print(json.dumps(calls(Path(sys.argv[2]), int(sys.argv[3])) if what == "calls" else
                         {"spins": spins, "apart": apart}[what]()))
