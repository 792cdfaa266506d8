"""A program that launches one kernel of _optimize.cu: what benchmarks.gpu.optimize captures.

    python _optimize_program.py CASE LOCK

While it uses the device it holds the file LOCK, so that programs may start at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SOURCE = Path(__file__).with_name("_optimize.cu")
NATIVE = Path(__file__).parents[2] / "native/testbeds"
PARAMETERS = ("const float *", "float *", "int", "int", "int")
LAUNCHES = 3


class Shape(NamedTuple):
    """A launch: outputs, the length of the loop, the stride, how many numbers it reads, and its block.

    pragma: before the loops. is_bad: the source was written badly on purpose.
    """

    kernel: str
    n: int
    k: int
    stride: int
    inputs: int
    block: int = 256
    pragma: str = ""
    is_bad: bool = False


K = 1024
LONG = (K * 128, 128, K * 128, K * 128 * 128)
CASES = {"strided": Shape("strided", *LONG),
         "strided, few threads": Shape("strided", K * 16, K, K * 16, K * K * 16),
         "sine, unrolled by 2": Shape("sine", *LONG, pragma="unroll 2", is_bad=True),
         "gathered": Shape("gathered", K * 128, 128, K * K * 8, K * K * 8),
         "strided, not unrolled": Shape("strided", *LONG, block=64, pragma="unroll 1", is_bad=True),
         "sum in memory": Shape("sum_in_memory", *LONG, is_bad=True),
         "chain": Shape("chain", K * 512, 4096, 0, K * 512),
         "four_chains": Shape("four_chains", K * 512, 2048, 0, K * 512),
         "product": Shape("product", K * K, K, 0, K * K),
         "row_softmax": Shape("row_softmax", K * 64, 128, 0, K * 64 * 128),
         "stencil": Shape("stencil", K * K * 2, 32, 0, K * K * 2),
         "polynomial, not unrolled": Shape("polynomial", K * K * 2, 256, 0, K * K * 2, pragma="unroll 1", is_bad=True),
         "root_mean_square, not unrolled": Shape("root_mean_square", *LONG, pragma="unroll 1", is_bad=True)}


class Testbed(NamedTuple):
    """A launch of a kernel of native/testbeds: its blocks, its arguments, and its dynamic shared memory, bytes.

    An argument is a whole number, a float, or memory: how many floats, or how many 64-bit indices, it holds.
    """

    blocks: int
    arguments: tuple[tuple[str, float], ...]
    shared: int = 0


def _memory(*counts: int) -> tuple[tuple[str, float], ...]:
    return tuple(("floats", count) for count in counts)


THREADS = 128
WIDTH = 1024
TESTBEDS = {
    "softmax": Testbed(2048, (*_memory(2048 * WIDTH, 2048 * WIDTH), ("int", WIDTH))),
    "reduction": Testbed(4096, (*_memory(4096 * WIDTH, 4096), ("int", WIDTH))),
    "matmul": Testbed(512 * 512 // THREADS, (*_memory(*3 * (512 * 512,)), *3 * (("int", 512),))),
    "gather": Testbed(4096, (*_memory(8192 * 512), ("indices", 4096), *_memory(4096 * 512), ("int", 512))),
    "attention": Testbed(256, (*_memory(256 * 64, 512 * 64, 512 * 64, 256 * 64), ("int", 512), ("int", 64),
                               ("float", 0.125)), 4 * (512 + THREADS)),
    "in_place": Testbed(K * K // THREADS, (*_memory(K * K, K * K), ("float", 0.01), ("int", K * K)))}
# What decides the shape of each, and the same kernels with less of it.
SHAPED = {"softmax": WIDTH, "reduction": WIDTH, "matmul": 512, "gather": 512, "attention": 64, "in_place": K * K}
LESS = ", less"
OTHERS = {
    "softmax": Testbed(1024, (*_memory(1024 * 512, 1024 * 512), ("int", 512))),
    "reduction": Testbed(1024, (*_memory(1024 * 512, 1024), ("int", 512))),
    "matmul": Testbed(512 * 512 // THREADS, (*_memory(512 * 256, 256 * 512, 512 * 512), ("int", 512), ("int", 512),
                                             ("int", 256))),
    "gather": Testbed(4096, (*_memory(8192 * 256), ("indices", 4096), *_memory(4096 * 256), ("int", 256))),
    "attention": Testbed(256, (*_memory(256 * 32, 512 * 32, 512 * 32, 256 * 32), ("int", 512), ("int", 32),
                               ("float", 0.125)), 4 * (512 + THREADS)),
    "in_place": Testbed(K * 512 // THREADS, (*_memory(K * 512, K * 512), ("float", 0.01), ("int", K * 512)))}


def numbers(count: int) -> np.ndarray:
    """Return floats from 0.25 to 1."""
    return np.random.default_rng(count).uniform(0.25, 1.0, count).astype(np.float32)


def main(case: str, lock: str) -> None:
    """Launch the kernel LAUNCHES times."""
    from aaco.calibration.driver import DriverGpu, ReadyLaunch, address
    from benchmarks.gpu._kernels import compiled

    with Path(lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        gpu = DriverGpu("NVIDIA")
        arch = f"sm_{gpu.attribute('major')}{gpu.attribute('minor')}"
        name = case.removesuffix(LESS)
        if name in TESTBEDS:
            _launch_testbed(gpu, arch, name, TESTBEDS[name] if case == name else OTHERS[name])
            return
        shape = CASES[case]
        module = gpu.load(compiled(SOURCE.read_text(), arch))
        content = numbers(shape.inputs)
        a, out = gpu.allocate(4 * shape.inputs), gpu.allocate(4 * shape.n)
        gpu.call("to_device", a, content.ctypes.data_as(ctypes.c_void_p), content.nbytes)
        gpu.call("fill_async", out, 0, shape.n, gpu.stream)
        values = [address(a), address(out), *map(ctypes.c_int, (shape.n, shape.k, shape.stride))]
        pointers = (ctypes.c_void_p * 5)(*[ctypes.addressof(value) for value in values])
        launch = ReadyLaunch((gpu._create("function", module, shape.kernel.encode()), shape.n // shape.block, 1, 1,
                              shape.block, 1, 1, 0, gpu.stream, pointers, None), (values, pointers))
        for _ in range(LAUNCHES):
            gpu.launch(launch)
            gpu.wait()


def _launch_testbed(gpu: Any, arch: str, name: str, testbed: Testbed) -> None:
    """Launch a kernel of native/testbeds LAUNCHES times."""
    from aaco.calibration.driver import ReadyLaunch, address

    module = gpu.load(testbed_code(name, (NATIVE / f"{name}.hip.cpp").read_bytes(), arch))
    values: list[Any] = []
    for kind, value in testbed.arguments:
        if kind == "int":
            values.append(ctypes.c_int(int(value)))
        elif kind == "float":
            values.append(ctypes.c_float(value))
        else:
            content = numbers(int(value)) if kind == "floats" else np.arange(int(value), dtype=np.int64) * 7 % 8192
            at = gpu.allocate(content.nbytes)
            gpu.call("to_device", at, content.ctypes.data_as(ctypes.c_void_p), content.nbytes)
            values.append(address(at))
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    function = gpu._create("function", module, name.encode())
    for _ in range(LAUNCHES):
        gpu.launch(ReadyLaunch((function, testbed.blocks, 1, 1, THREADS, 1, 1, testbed.shared, gpu.stream, pointers,
                                None), (values, pointers)))
        gpu.wait()


def testbed_code(name: str, text: bytes, arch: str) -> bytes:
    """Return the code of a testbed's text. Raise CompileError, Missing."""
    from aaco.calibration import compiler
    from aaco.calibration.device_compilers import NVRTC, by_library

    headers = {header: (compiler.sources() / header).read_bytes() for header in compiler.HEADERS[:1]}
    headers["testbed.h"] = (NATIVE / "testbed.h").read_bytes()
    return by_library(NVRTC, (f"--gpu-architecture={arch}", "--std=c++17"), text, headers, f"{name}.hip.cpp").code


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(sys.argv[1], sys.argv[2])
