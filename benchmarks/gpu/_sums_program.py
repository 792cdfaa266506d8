"""A program with a kernel to optimise: `build` compiles sums.cu, `run LAUNCHES` launches it and prints a sum.

To run it needs the driver alone, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE, CODE = HERE / "sums.cu", HERE / "sums.cubin"
ROWS, COLUMNS, THREADS = 128, 128 * 1024, 64
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class Driver:
    """The NVIDIA driver, with its first device."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self.device, context = c_int(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Exits where it fails."""
        if status := getattr(self._cuda, name)(*arguments):
            sys.exit(f"{name} gave {status}")

    def allocate(self, size: int) -> c_uint64:
        """Return the address of memory."""
        at = c_uint64()
        self.call("cuMemAlloc_v2", byref(at), ctypes.c_size_t(size))
        return at

    def attribute(self, number: int) -> int:
        """Return an attribute of the device."""
        found = c_int()
        self.call("cuDeviceGetAttribute", byref(found), number, self.device)
        return found.value

    def function(self, module: c_void_p, name: str) -> c_void_p:
        """Return a kernel."""
        found = c_void_p()
        self.call("cuModuleGetFunction", byref(found), module, name.encode())
        return found

    def launch(self, function: c_void_p, threads: int, *arguments: Any, times: int = 1) -> None:
        """Launch a kernel with so many threads in all."""
        pointers = (c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        for _ in range(times):
            self.call("cuLaunchKernel", function, threads // THREADS, 1, 1, THREADS, 1, 1, 0, None, pointers, None)
        self.call("cuCtxSynchronize")


def build() -> None:
    """Compile the source for this device."""
    from aaco.calibration.device_compilers import NVRTC, CompileError, by_library

    driver = Driver()
    arch = f"--gpu-architecture=sm_{driver.attribute(MAJOR)}{driver.attribute(MINOR)}"
    try:
        CODE.write_bytes(by_library(NVRTC, (arch, "--std=c++17"), SOURCE.read_bytes(), {}, SOURCE.name).code)
    except CompileError as refusal:
        sys.exit(refusal.log)


def run(launches: int) -> None:
    """Sum the columns as often, and print the first sum."""
    driver, module = Driver(), c_void_p()
    driver.call("cuModuleLoadData", byref(module), CODE.read_bytes())
    count = ROWS * COLUMNS
    a, out = driver.allocate(4 * count), driver.allocate(4 * COLUMNS)
    driver.launch(driver.function(module, "fill"), count, a, c_int(count))
    driver.launch(driver.function(module, "column_sums"), COLUMNS, a, out, c_int(ROWS), c_int(COLUMNS), times=launches)
    first = (ctypes.c_float * 1)()
    driver.call("cuMemcpyDtoH_v2", first, out, ctypes.c_size_t(4))
    print(first[0])


if __name__ == "__main__":
    build() if sys.argv[1] == "build" else run(int(sys.argv[2]))
