"""A GPU for replay/cuda.py without one: its memory is this process's, and the kernels of memory.cu run on this CPU."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from aaco.core.errors import AacoError
from aaco.replay import addresses

SOURCE = Path(__file__).parents[2] / "native/replay/memory.cu"
DELAY = "// Keeps the device busy"  # the only kernel that is for the device alone
# One thread, and what of CUDA the kernels use.
SHIM = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define __global__
#define __device__ static
struct { unsigned x; } blockIdx = {0}, blockDim = {1}, threadIdx = {0}, gridDim = {1};
struct uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
template <class To, class From> static To as(From x) { To to; memcpy(&to, &x, sizeof to); return to; }
static double __longlong_as_double(long long x) { return as<double>(x); }
static float __uint_as_float(unsigned x) { return as<float>(x); }
static long long __double_as_longlong(double x) { return as<long long>(x); }
static unsigned __float_as_uint(float x) { return as<unsigned>(x); }
static unsigned __vcmpeq4(unsigned a, unsigned b)
{
	unsigned same = 0;
	for (int at = 0; at < 32; at += 8)
		same |= ((a ^ b) >> at & 255) ? 0 : 255u << at;
	return same;
}
template <class T> static void atomicAdd(T *to, T more) { *to += more; }
"""


def compiled_kernels(folder: Path, guard: str = "", without: str = "") -> ctypes.CDLL:
    """The kernels of memory.cu for this processor; with a guard replaced by what it is without."""
    (folder / "memory.so").write_bytes(_memory_code(guard, without))
    return ctypes.CDLL(str(folder / "memory.so"))


@cache
def _memory_code(guard: str, without: str) -> bytes:
    """What the compiler makes of memory.cu, made once."""
    text = SOURCE.read_text()
    assert not guard or text.count(guard) == 1
    text = text.replace(guard, without) if guard else text
    with tempfile.TemporaryDirectory() as made:
        source, code = Path(made, "memory.cpp"), Path(made, "memory.so")
        source.write_text(SHIM + text[:text.index(DELAY)])
        subprocess.run(["clang++", "-O1", "-shared", "-fPIC", "-o", code, source], check=True)
        return code.read_bytes()


class FakeGpu:
    """What CudaReplay uses of DriverGpu. A kernel of the program is a function that gets the launch's arguments."""

    device_name, driver_version = "Fake GPU", "580.1"

    def __init__(self, tools: ctypes.CDLL, kernels: dict[str, Callable[[int], object]], free: int = 1 << 30) -> None:
        """kernels: by symbol; each gets the address of its arguments. free: bytes of device memory."""
        self.stream, self._events, self.number = ctypes.c_void_p(7), [ctypes.c_void_p(1), ctypes.c_void_p(2)], 0
        self.tools, self.kernels, self.free = tools, kernels, free
        self.is_taken = False  # the addresses of every reservation
        self.calls: list[str] = []
        self._kept: list[Any] = []
        self._names = ["", *kernels, "differing", "beyond", "invert", "written", "delay"]
        self._failed = False

    def attribute(self, name: str) -> int:
        return {"major": 9, "minor": 0, "l2": 1 << 16}[name]

    def memory(self) -> tuple[int, int]:
        return self.free, 1 << 30

    def allocate(self, size: int) -> int:
        self._kept.append(ctypes.create_string_buffer(size + 512))
        return -(-ctypes.addressof(self._kept[-1]) // 512) * 512

    def load(self, code: bytes) -> ctypes.c_void_p:
        return ctypes.c_void_p(1)

    def _create(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._names.index(arguments[1].decode()))

    def wait(self) -> None:
        if self._failed:
            raise AacoError("cuStreamSynchronize: an illegal memory access was encountered (700)")

    def launch(self, ready: Any) -> None:
        """A kernel of memory.cu, with its arguments as they are given."""
        function = ready.arguments[0]
        values = ready.kept[0]
        if (name := self._names[function.value]) != "delay":
            getattr(self.tools, name)(*[getattr(value, "value", value) if isinstance(value, ctypes.c_void_p) else value
                                        for value in values])

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        getattr(self, f"_{name}", lambda *_: None)(*arguments)

    def _reserve(self, to: Any, size: int, _: int, begin: int, __: int) -> None:
        got, _ = addresses.take(begin, size, mmap.PROT_READ | mmap.PROT_WRITE)
        to._obj.value = got if got and not self.is_taken else begin + (1 << 40)

    def _function(self, to: Any, _: Any, symbol: bytes) -> None:
        if symbol.decode() not in self.kernels:
            raise AacoError("cuModuleGetFunction: named symbol not found (500)")
        to._obj.value = self._names.index(symbol.decode())

    def _copy_async(self, to: int, source: int, size: int, _: Any) -> None:
        ctypes.memmove(to, source, size)

    def _to_device(self, to: int, source: Any, size: int) -> None:
        ctypes.memmove(to, source, size)

    def _to_host(self, to: Any, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def _fill_async(self, to: int, value: int, count: int, _: Any) -> None:
        ctypes.memmove(to, value.to_bytes(4, "little") * count, 4 * count)

    def _fill_stripes(self, to: int, pitch: int, value: int, width: int, height: int, _: Any) -> None:
        for row in range(height):
            ctypes.memset(to + row * pitch, value, width)

    def _elapsed(self, to: Any, _: Any, __: Any) -> None:
        to._obj.value = 0.002

    def _launch_extended(self, _: Any, function: Any, pointers: Any, extra: Any) -> None:
        try:
            self.kernels[self._names[function.value]](pointers[0] if pointers else extra[1])
        except ZeroDivisionError:  # the kernel's way to access what it must not
            self._failed = True
