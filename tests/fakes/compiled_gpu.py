"""A GPU whose code objects are shared libraries of this processor: a kernel's source is compiled by clang++ and run.

The source is CUDA's, without shared memory. What a kernel takes is what its global `spent_us` says; what it hands to
`later` runs when the whole device is waited for, as work on another stream does.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from aaco.core.errors import AacoError
from aaco.replay import launch
from tests.fakes.cuda_gpu import FakeGpu

SHIM = """
#include <stddef.h>
#define NAN __builtin_nanf("")
extern "C" { float nextafterf(float, float); float fmaf(float, float, float); }
#define __global__
#define __device__
#define __restrict__
#define __launch_bounds__(...)
struct dim3 { unsigned x, y, z; };
static dim3 blockIdx, blockDim, threadIdx, gridDim;
extern "C" { double spent_us = 10; void (*later)() = 0; }
"""
RUN = """
template <class T, T... I> struct places { };
template <class... A, size_t... I> static void call(void (*kernel)(A...), void **with, places<size_t, I...>)
{ kernel(*(A *)with[I]...); }
template <class... A> static void call(void (*kernel)(A...), void **with)
{ call(kernel, with, __make_integer_seq<places, size_t, sizeof...(A)>()); }
extern "C" void run_%(name)s(void **with, const unsigned *grid, const unsigned *block)
{
	gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};
	for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++)
			call(%(name)s, with);
}
"""


def compiled(source: str, name: str) -> bytes:
    """Return the code of a kernel, which includes nothing: headers and libraries are most of the time.

    Raise CalledProcessError with what the compiler says.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cpp"
        path.write_text(SHIM + source + RUN % {"name": name})
        subprocess.run(["clang++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", "-nostdlib", "-ffp-contract=off",
                        "-o", path.with_suffix(".so"), path, "-lm"], check=True, capture_output=True, text=True)
        return path.with_suffix(".so").read_bytes()


class CompiledGpu(FakeGpu):
    """It loads what compiled() made. Close it: its reservations are this process's memory."""

    def __init__(self, tools: ctypes.CDLL) -> None:
        super().__init__(tools, {}, 1 << 30)
        self._names += ["scramble", "unwritten", "vary"]
        self._libraries: list[Any] = []
        self._functions: list[tuple[Any, str]] = []
        self._reserved: list[tuple[int, int]] = []
        self._folder = tempfile.TemporaryDirectory()
        self._pending: list[Any] = []
        self._clock = 0.0
        self._at: dict[int, float] = {}

    def attribute(self, name: str) -> int:
        return {"major": 9, "minor": 0, "l2": 1 << 16, "memory_khz": 2_619_000, "bus_bits": 5120}[name]

    def load(self, code: bytes) -> ctypes.c_void_p:
        if not code.startswith(b"\x7fELF"):
            return ctypes.c_void_p(1)
        path = Path(self._folder.name) / f"{len(self._libraries)}.so"
        path.write_bytes(code)
        self._libraries.append(ctypes.CDLL(str(path)))
        return ctypes.c_void_p(1 + len(self._libraries))

    def _function(self, to: Any, module: Any, symbol: bytes) -> None:
        if module.value < 2 or not hasattr(self._libraries[module.value - 2], f"run_{symbol.decode()}"):
            raise AacoError("cuModuleGetFunction: named symbol not found (500)")
        self._functions.append((self._libraries[module.value - 2], symbol.decode()))
        to._obj.value = 1000 + len(self._functions) - 1

    def _launch_extended(self, config: Any, function: Any, pointers: Any, extra: Any) -> None:
        library, name = self._functions[function.value - 1000]
        grid_and_block = launch.CONFIG.unpack(config.raw)[:6]
        numbers = (ctypes.c_uint * 6)(*grid_and_block)
        getattr(library, f"run_{name}")(pointers, numbers, ctypes.byref(numbers, 12))
        self._clock += ctypes.c_double.in_dll(library, "spent_us").value
        work = ctypes.c_void_p.in_dll(library, "later")
        if work.value:
            self._pending.append(ctypes.CFUNCTYPE(None)(work.value))
            work.value = None

    def _synchronize(self) -> None:
        for work in self._pending:
            work()
        self._pending.clear()

    def _record(self, event: Any, _: Any) -> None:
        self._clock += 0.5
        self._at[event.value] = self._clock

    def _elapsed(self, to: Any, begin: Any, end: Any) -> None:
        to._obj.value = (self._at[end.value] - self._at[begin.value]) / 1e3

    def _reserve(self, to: Any, size: int, _: int, begin: int, __: int) -> None:
        libc = _libc()
        fixed = 0x100000 if begin else 0
        at = libc.mmap(begin, size, 0 if not begin else mmap.PROT_READ | mmap.PROT_WRITE,
                       mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed, -1, 0)
        to._obj.value = at
        self._reserved.append((at, size))

    def _map(self, begin: int, size: int, *_: Any) -> None:
        _libc().mprotect(begin, size, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self) -> None:
        """Give back what was reserved."""
        for begin, size in self._reserved:
            _libc().munmap(begin, size)
        self._reserved.clear()
        self._folder.cleanup()


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_uint64
    libc.mmap.argtypes = [ctypes.c_uint64, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
    return libc
