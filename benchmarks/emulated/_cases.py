"""Captures of six testbeds for AMD's targets, made without a device, and trials of them in the emulator.

The memory after a launch is what the emulator leaves; numpy says whether that is right. Trials are forks of this
process, which has the emulator's instructions compiled already: a process of its own for each would compile them again.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.calibration import device_compilers
from aaco.core import host
from aaco.core.errors import AacoError, Missing
from aaco.core.records import as_dict
from aaco.optimize.kernels import compiling, trial, widening
from aaco.optimize.kernels.compiling import Toolchain
from aaco.optimize.kernels.equivalence import EMULATED_LIMIT_S, Trials
from aaco.optimize.kernels.search import baseline_of
from aaco.optimize.kernels.trial import TrialRequest
from aaco.optimize.kernels.variants import Proposal, Variant
from aaco.replay import capture as captures
from aaco.replay.capture import CaptureWriter
from aaco.replay.code import read_code
from aaco.replay.cuda import CudaReplay
from aaco.replay.documents import CapturedFrom, KernelLaunch
from aaco.replay.engine import ReplayRequest
from aaco.replay.run import replay

ROOT = Path(__file__).parents[2]
NATIVE, HEADERS = ROOT / "native/testbeds", ROOT / "tests/fakes/amd"
BASE, APART = 0x6200_0000_0000, 64 << 20
THREADS = 128
Numbers = NDArray[np.float32]


class Shape(Struct, frozen=True):
    """A launch: its blocks, its arguments (memory as an array, numbers as bytes), and its dynamic local memory.

    out: which argument the kernel writes. size: of the parameter that the shape decides. expected: what it computes, in
    float64.
    """

    blocks: int
    arguments: tuple[NDArray[Any] | bytes, ...]
    parameters: tuple[str, ...]
    out: int
    size: int
    expected: Callable[..., NDArray[np.float64]]
    lds: int = 0


def numbers(*shape: int) -> Numbers:
    """Return floats from 0.25 to 1."""
    return np.random.default_rng(sum(shape)).uniform(0.25, 1.0, shape).astype(np.float32)


def _number(value: float) -> bytes:
    return struct.pack("<f" if isinstance(value, float) else "<i", value)


def _empty(*shape: int) -> Numbers:
    return np.full(shape, -7, np.float32)


def _softmax(rows: NDArray[Any]) -> NDArray[np.float64]:
    raised = np.exp(rows.astype(np.float64) - rows.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _attention(query: Any, key: Any, value: Any, *_: Any) -> NDArray[np.float64]:
    return np.asarray(_softmax(query.astype(np.float64) @ key.T * 0.25) @ value)


def shapes() -> dict[str, Shape]:
    """Return a small launch of each of the six: rows that are no multiple of the threads, and more than 32 results."""
    floats, ints = ("const float *", "float *"), ("int",)
    index = np.array([3, 0, 2], np.int64)
    return {
        "softmax": Shape(2, (numbers(2, 150), _empty(2, 150), _number(150)), (*floats, *ints), 1, 150,
                         lambda rows, *_: _softmax(rows)),
        "reduction": Shape(40, (numbers(40, 130), _empty(40), _number(130)), (*floats, *ints), 1, 130,
                           lambda rows, *_: rows.astype(np.float64).sum(axis=1)),
        "matmul": Shape(2, (numbers(11, 9), numbers(9, 20), _empty(11, 20), _number(11), _number(20), _number(9)),
                        ("const float *", *floats, *3 * ints), 2, 9, lambda a, b, *_: a.astype(np.float64) @ b),
        "gather": Shape(3, (numbers(4, 150), index, _empty(3, 150), _number(150)),
                        ("const float *", "const long long *", "float *", "int"), 2, 150,
                        lambda table, rows, *_: table[rows].astype(np.float64)),
        "attention": Shape(3, (numbers(3, 16), numbers(20, 16), numbers(20, 16) - 0.5, _empty(3, 16), _number(20),
                               _number(16), _number(0.25)),
                           (*3 * ("const float *",), "float *", "int", "int", "float"), 3, 16, _attention,
                           4 * (20 + THREADS)),
        "in_place": Shape(3, (numbers(300), numbers(301)[:300], _number(0.01), _number(300)),
                          ("float *", "const float *", "float", "int"), 0, 300,
                          lambda weights, gradient, *_: weights * (1 - 0.01) - 0.01 * gradient.astype(np.float64))}


def chain(arch: str) -> Toolchain:
    """Return clang for a target, with the little of HIP that the testbeds use. Raise Missing."""
    if not shutil.which("ld.lld"):
        raise Missing("ld.lld is not on PATH", "install LLVM's lld of the same version as clang++")
    program = device_compilers.find(device_compilers.CLANG)
    if not program:
        raise Missing("clang++ is not on PATH", "install clang of LLVM 19 or later")
    options = ("-O3", "-std=c++17", "-nogpuinc", f"-I{HEADERS}", f"-I{NATIVE}")
    return Toolchain("clang", program, arch, options, NATIVE)


def compiler_version() -> str:
    """Return the first line that clang prints of itself. Raise Missing."""
    return host.ask([chain("gfx90a").program, "--version"], 20.0).splitlines()[0]


class Case:
    """A testbed for a target: its capture, once it is made, and trials against its text."""

    def __init__(self, folder: Path, name: str, arch: str) -> None:
        self.name, self.arch, self.shape = name, arch, shapes()[name]
        self.path = folder / f"{name}-{arch}"
        self.text = (NATIVE / f"{name}.hip.cpp").read_text()
        self._chain, self.replayed = chain(arch), ""

    def build(self, proposal: Proposal) -> Variant:
        """Return the variant of a proposal. Raise Refused."""
        return compiling.compile_proposal(proposal, self._chain, self.name, f"{self.name}.hip.cpp")

    @cached_property
    def trials(self) -> Trials:
        """Trials against the untouched text, in forks of this process."""
        whole = widening.with_headers(self.text.encode(), {"testbed.h": (NATIVE / "testbed.h").read_bytes()}.get)
        wide = self.build(Proposal("double precision", "none", widening.double_text(whole)))
        return Trials(self.build(baseline_of(self.text.encode())), self.shape.parameters, run=forked, reference=wide,
                      limit_s=120.0, emulated=True)

    def capture(self) -> float:
        """Write the capture and replay it; return the largest error of its numbers against numpy, of the largest."""
        first = self._write(self.path.with_name(f"{self.path.name}-before"), None)
        after = _emulate(first)
        self._write(self.path, after)
        self.replayed = replay(self.path, ReplayRequest(iterations=2), limit_s=EMULATED_LIMIT_S).fidelity.verdict
        left = np.frombuffer(after[self.shape.out], np.float32).astype(np.float64)
        expected = self.shape.expected(*self.shape.arguments).ravel()
        return float(np.abs(left - expected).max() / np.abs(expected).max())

    def _write(self, path: Path, after: dict[int, bytes] | None) -> Path:
        code = self.build(baseline_of(self.text.encode())).code
        layout = read_code(path, "hsaco", code).arguments[self.name] or []
        memory = {number: argument.tobytes() for number, argument in enumerate(self.shape.arguments)
                  if not isinstance(argument, bytes)}
        values = [struct.pack("<Q", BASE + number * APART) if number in memory else argument
                  for number, argument in enumerate(self.shape.arguments)]
        content = bytearray(max(place.offset + place.size for place in layout))
        for place, value in zip(layout, values, strict=False):  # behind them lie the compiler's own
            content[place.offset:place.offset + place.size] = value  # type: ignore[assignment]
        with CaptureWriter(path, page_bytes=4096) as writer:
            for number, before in memory.items():
                writer.add_region(BASE + number * APART, len(before), "device", before)
                writer.set_after(BASE + number * APART, (after or memory)[number])
            writer.finish(
                launch=KernelLaunch(symbol=self.name, number=0, grid=(self.shape.blocks * THREADS, 1, 1),
                                    grid_unit="work-items", block=(THREADS, 1, 1), dynamic_lds_bytes=self.shape.lds,
                                    arguments=bytes(content).hex(), layout=layout, passed_as="buffer"),
                code=code, kind="hsaco", captured_from=CapturedFrom(
                    vendor="AMD", device=f"emulated {self.arch}", isa=self.arch, granule_bytes=4096))
        return path


def _emulate(path: Path) -> dict[int, bytes]:
    """Return what one launch leaves in each region, by its number among the arguments. Frees the addresses again."""
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    with captures.open(path) as capture:
        device = CudaReplay(capture)
        device.restore()
        device.launch()
        after = {(region.base - BASE) // APART: device.content(number)[:region.size]
                 for number, region in enumerate(device.regions)}
        for begin, end in device.plan.blocks:
            libc.munmap(begin, end - begin)
    return after


def forked(path: Path, request: TrialRequest, limit_s: float) -> Iterator[dict[str, Any]]:
    """Yield the lines of a trial in a fork of this process. Raise AacoError, Missing as calibration.child.run() does.
    """
    reading, writing = os.pipe()
    if not (process := os.fork()):
        os.close(reading)
        _answer(writing, request)
    os.close(writing)
    try:
        lines = list(_lines(reading, time.monotonic() + limit_s))
    finally:
        os.close(reading)
        os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    yield from (line for line in lines if "what" not in line)
    if lines and "what" in lines[-1]:
        raise AacoError(lines[-1]["what"])
    if not (lines and lines[-1].get("done")):
        raise Missing(f"the trial was killed by {signal.Signals(-status).name if status < 0 else status}")


def _answer(writing: int, request: TrialRequest) -> None:
    """Run the trial, and end this process."""
    def tell(**line: Any) -> None:
        os.write(writing, json.dumps(line).encode() + b"\n")

    try:
        trial.main(as_dict(request), tell)
    except AacoError as error:
        tell(what=error.what)
    except BaseException as error:  # noqa: BLE001  the parent says it
        tell(what=f"{type(error).__name__}: {error}")
    os.close(writing)
    signal.pause()  # the parent ends it: an exit would run what the emulator leaves for the end


def _lines(reading: int, deadline: float) -> Iterator[dict[str, Any]]:
    unfinished = b""
    while True:
        if not select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            yield {"what": "the trial gave no answer in time"}
            return
        block = os.read(reading, 1 << 16)
        *whole, unfinished = (unfinished + block).split(b"\n")
        yield from map(json.loads, whole)
        if not block:
            return
