"""The fake libcupti, built; and a program that works on its device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aaco
from aaco.profiler.cupti import records
from aaco.profiler.cupti.inside import spool
from aaco.profiler.cupti.inside.tracer import COPY, KERNEL, RUNTIME

SOURCE = Path(__file__).with_name("cupti.c")
STARTUP = Path(aaco.__file__).parent / "profiler/cupti/startup"
WORK = "import ctypes, os, signal, sys, time; work = ctypes.CDLL(os.environ['AACO_CUPTI']).fake_work; "


def build(folder: Path) -> Path:
    """The library. Skips where there is no C compiler."""
    compiler = shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = folder / "libcupti.so.13"
    subprocess.run([compiler, "-std=gnu11", "-shared", "-fPIC", "-O1", "-o", str(path), str(SOURCE)], check=True)
    return path


def environment(library: Path, folder: Path, mode: str = "all", **more: str) -> dict[str, str]:
    """What traces a Python program into the folder."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AACO_CUPTI", "FAKE_CUPTI"))}
    return plain | {"PYTHONPATH": str(STARTUP), "AACO_CUPTI": str(library), "AACO_CUPTI_TRACE": str(folder),
                    "AACO_CUPTI_MODE": mode} | more


def run(library: Path, folder: Path, program: str, mode: str = "all", code: int = 0, **more: str) -> list[Path]:
    """The captures that a traced program leaves; it must end with the code."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", WORK + program], env=environment(library, folder, mode, **more),
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return sorted(folder.glob("*.cupti"))


def record(kind: int, size: int, **fields: int) -> bytes:
    """One record as CUPTI lays it out."""
    row = np.zeros(1, records.TYPES[kind])
    row["kind"] = kind
    for name, value in fields.items():
        row[name] = value
    return row.tobytes().ljust(size, b"\0")


def example(path: Path, buffers: int = 2) -> Path:
    """A capture with two kernels, their launches and a copy in each buffer, its end said."""
    made = spool.Spool(str(path))
    made.say(spool.HEAD, {"cupti": 130001, "pid": 42, "without": [], "unfiltered": [],
                          "clock": {"cupti_ns": 1_000, "realtime_ns": 1_700_000_000_000_001_000, "within_ns": 90}})
    made.say(spool.SIZE, {KERNEL: 216, RUNTIME: 40, COPY: 96})
    made.say(spool.NAME, {4096: "gemm<float>", 8192: "relu"})
    made.say(spool.CALL, {RUNTIME: {211: "cudaLaunchKernel_v7000", 41: "cudaMemcpyAsync_ptsz_v7000"}})
    for each in range(buffers):
        at = 10_000 * (each + 1)
        made.add(spool.DATA, b"".join((
            record(RUNTIME, 40, cbid=211, start=at, end=at + 9, processId=42, threadId=43, correlationId=3 * each + 1),
            record(KERNEL, 216, start=at + 10, end=at + 110, name=4096, correlationId=3 * each + 1, gridX=2, gridY=1,
                   gridZ=1, blockX=64, blockY=1, blockZ=1, streamId=7, graphNodeId=5, graphId=6),
            record(RUNTIME, 40, cbid=211, start=at + 20, end=at + 29, processId=42, threadId=43,
                   correlationId=3 * each + 2),
            record(KERNEL, 216, start=at + 120, end=at + 150, name=8192, correlationId=3 * each + 2, gridX=1, gridY=1,
                   gridZ=1, blockX=32, blockY=1, blockZ=1, streamId=7),
            record(COPY, 96, copyKind=2, srcKind=3, dstKind=1, bytes=512, start=at + 160, end=at + 170,
                   correlationId=3 * each + 3, streamId=7))))
    made.state["ended"] = "exit"
    made.tell()
    made.close()
    return path
