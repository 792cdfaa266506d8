"""The fake libcupti, built; and a program that works on its device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aaco
from aaco.profiler.cupti.inside import spool
from aaco.profiler.cupti.inside.tracer import COPY, KERNEL, RUNTIME
from aaco.profiler.formats.nvidia import cupti_records as records

SOURCE = Path(__file__).with_name("cupti.c")
GRAPH = 311  # cudaGraphLaunch
STARTUP = Path(aaco.__file__).parent / "profiler/cupti/startup"
WORK = "import ctypes, os, signal, sys, time; work = ctypes.CDLL(os.environ['AACO_CUPTI']).fake_work; "


def build(folder: Path) -> Path:
    """The library. Skips where there is no C compiler."""
    compiler = shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = folder / "libcupti.so.13"
    subprocess.run([compiler, "-std=gnu11", "-pthread", "-shared", "-fPIC", "-O0", "-o", str(path), str(SOURCE)],
                   check=True)
    return path


def environment(library: Path, folder: Path, mode: str = "all", **more: str) -> dict[str, str]:
    """What traces a Python program into the folder."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AACO_CUPTI", "FAKE_CUPTI"))}
    return plain | {"PYTHONPATH": str(STARTUP), "AACO_CUPTI": str(library), "AACO_CUPTI_TRACE": str(folder),
                    "AACO_CUPTI_MODE": mode} | more


def run(library: Path, folder: Path, program: str, mode: str = "all", code: int = 0, timeout_s: float = 60,
        **more: str) -> list[Path]:
    """The captures that a traced program leaves; it must end with the code."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", WORK + program], env=environment(library, folder, mode, **more),
                          capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return sorted(folder.glob("*.cupti"))


def record(kind: int, size: int, **fields: int) -> bytes:
    """One record as CUPTI lays it out."""
    row = np.zeros(1, records.TYPES[kind])
    row["kind"] = kind
    for name, value in fields.items():
        row[name] = value
    return row.tobytes().ljust(size, b"\0")


def write(path: Path, names: Sequence[str], buffers: Sequence[Sequence[bytes]], offset_ns: int = 0) -> Path:
    """A capture of process 42. A kernel's name is its place in `names` x 4096, from 1 on; times are on a clock that
    offset_ns brings to the real-time one.
    """
    made = spool.CuptiSpool(str(path))
    made.add_json(spool.HEAD, {"cupti": 130001, "pid": 42, "without": [], "unfiltered": [],
                          "clock": {"cupti_ns": 1_000, "realtime_ns": 1_000 + offset_ns, "within_ns": 90}})
    made.add_json(spool.SIZE, {KERNEL: 216, RUNTIME: 40, COPY: 96})
    made.add_json(spool.NAME, {4096 * place: name for place, name in enumerate(names, 1)})
    made.add_json(spool.CALL, {RUNTIME: {211: "cudaLaunchKernel_v7000", 41: "cudaMemcpyAsync_ptsz_v7000",
                                    GRAPH: "cudaGraphLaunch_v10000"}})
    for some in buffers:
        made.add(spool.DATA, b"".join(some))
    made.state["ended"] = "exit"
    made.write_state()
    made.close()
    return path


def kernel(start: int, lasted: int, name: int, correlation: int, **more: int) -> bytes:
    """A kernel of 1 x 32 threads in stream 7; name: its place in the capture's names, from 1 on."""
    shape = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"} | {"blockX": 32, "streamId": 7}
    return record(KERNEL, 216, start=start, end=start + lasted, name=4096 * name, correlationId=correlation,
                  **shape | more)


def launch(start: int, correlation: int, lasted: int = 9, call: int = 211) -> bytes:
    """A call of cudaLaunchKernel, or of another."""
    return record(RUNTIME, 40, cbid=call, start=start, end=start + lasted, processId=42, threadId=43,
                  correlationId=correlation)


def example(path: Path, buffers: int = 2) -> Path:
    """A capture with two kernels, their launches and a copy in each buffer, its end said."""
    graph = {"gridX": 2, "blockX": 64, "graphNodeId": 5, "graphId": 6}
    return write(path, ["gemm<float>", "relu"], [
        [launch(at, one), kernel(at + 10, 100, 1, one, **graph), launch(at + 20, one + 1),
         kernel(at + 120, 30, 2, one + 1),
         record(COPY, 96, copyKind=2, srcKind=3, dstKind=1, bytes=512, start=at + 160, end=at + 170,
                correlationId=one + 2, streamId=7)]
        for at, one in ((10_000 * (each + 1), 3 * each + 1) for each in range(buffers))], 1_700_000_000_000_000_000)
