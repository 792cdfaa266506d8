"""Trials of edited kernels on tests/fakes/compiled_gpu.py: a capture of a small kernel, and what becomes of an edit."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import struct
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from aaco.optimize.kernels import trial
from aaco.replay import cuda
from aaco.replay.capture import CaptureWriter
from aaco.replay.documents import ArgumentPlace
from tests.fakes import compiled_gpu, kernel_captures

BASE = 0x6200_0000_1000
MIB = 1 << 20
COUNT, THREADS = 300, 64
PARAMETERS = ("const float *", "float *", "int")
SCALE = """
extern "C" __global__ void scale(const float *a, float *out, int n)
{
	int t = blockIdx.x * blockDim.x + threadIdx.x;
	if (t < n)
		out[t] = a[t] * 1.5f + 0.25f;
}
"""


@cache
def code(source: str, name: str = "scale") -> bytes:
    """The code of a source, made once."""
    return compiled_gpu.compiled(source, name)


def numbers(count: int, seed: int = 1) -> bytes:
    """Floats from -1 to 2."""
    draw = random.Random(seed)
    return struct.pack(f"<{count}f", *[draw.uniform(-1, 2) for _ in range(count)])


def capture(path: Path, gpu: compiled_gpu.CompiledGpu, source: str = SCALE, count: int = COUNT, base: int = BASE,
            content: bytes | None = None) -> Path:
    """The capture of a launch of `scale`, whose output held the answer before."""
    out = base + 64 * MIB
    before = content or numbers(count, count)
    blocks = -(-count // THREADS)
    arguments = struct.pack("<2Qi", base, out, count)
    values = [ctypes.create_string_buffer(before, len(before)), ctypes.create_string_buffer(4 * count)]
    library = gpu._libraries[gpu.load(code(source)).value - 2]  # type: ignore[operator]
    places = [ctypes.c_uint64(ctypes.addressof(value)) for value in values]
    number = ctypes.c_int(count)
    pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in (*places, number)])
    library.run_scale(pointers, (ctypes.c_uint * 3)(blocks, 1, 1), (ctypes.c_uint * 3)(THREADS, 1, 1))
    layout = [ArgumentPlace(offset=at, size=size) for at, size in ((0, 8), (8, 8), (16, 4))]
    with CaptureWriter(path, page_bytes=4096) as writer:
        for at, was, after in ((base, before, before), (out, values[1].raw, values[1].raw)):
            writer.add_region(at, len(was), "device", was)
            writer.set_after(at, after)
        writer.finish(launch=kernel_captures.launch(symbol="scale", arguments=arguments.hex(), layout=layout,
                                                    grid=(blocks, 1, 1), block=(THREADS, 1, 1)),
                      code=code(source), kind="cubin", captured_from=kernel_captures.origin(isa="sm_90"))
    return path


class Trials:
    """Trials in this process, or in one of its own where a candidate may fault."""

    def __init__(self, folder: Path, tools: ctypes.CDLL, monkeypatch: Any) -> None:
        self.folder, self.tools = folder, tools
        self.gpu = compiled_gpu.CompiledGpu(tools)
        monkeypatch.setattr(cuda, "DriverGpu", lambda vendor, number: self.gpu)
        monkeypatch.setattr(cuda, "EMPTY_PAIRS", 1)  # its clock does not tick by itself

    def program(self, source: str, name: str, **launch: Any) -> dict[str, Any]:
        path = self.folder / name
        path.write_bytes(code(source))
        return {"code": str(path), "entry": "scale", **launch}

    def lines(self, path: Path, candidate: str, baseline: str = SCALE, launch: dict[str, Any] | None = None,
              reference: str | None = None, **request: Any) -> list[dict[str, Any]]:
        """The answers of a trial."""
        lines: list[dict[str, Any]] = []
        self.gpu = compiled_gpu.CompiledGpu(self.tools)
        programs = {"baseline": self.program(baseline, "baseline"),
                    "candidate": self.program(candidate, "candidate", **(launch or {}))}
        if reference:
            programs["reference"] = self.program(reference, "reference")
        try:
            trial.main({"capture": str(path), "programs": programs, "parameters": PARAMETERS, "pairs": 4, "seed": 3}
                       | request, lambda **line: lines.append(line))
        finally:
            self.gpu.close()
        return lines

    def refusal(self, path: Path, candidate: str, **request: Any) -> tuple[str, str]:
        """The reason and its detail; nothing of a candidate that passes. The process may die: "died" and the stage."""
        return forked(lambda: self.lines(path, candidate, **request))


def forked(run: Callable[[], list[dict[str, Any]]]) -> tuple[str, str]:
    """What refuses a trial that runs in a child of this process."""
    reading, writing = os.pipe()
    if not (process := os.fork()):
        faulthandler.disable()  # some are meant to die
        try:
            lines = run()
            os.write(writing, json.dumps(next((line for line in lines if "refused" in line), {})).encode())
        except BaseException:  # noqa: BLE001  what the parent shows
            os.write(writing, json.dumps({"refused": "raised", "detail": traceback.format_exc()}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status < 0 or not text:
        return "died", str(status)
    line = json.loads(text)
    return line.get("refused", ""), line.get("detail", "")
