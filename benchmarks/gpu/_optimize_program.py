"""A program that launches one kernel of _optimize.cu: what benchmarks.gpu.optimize captures.

    python _optimize_program.py CASE LOCK

While it uses the device it holds the file LOCK, so that programs may start at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

SOURCE = Path(__file__).with_name("_optimize.cu")
PARAMETERS = ("const float *", "float *", "int", "int", "int")
LAUNCHES = 3


class Shape(NamedTuple):
    """A launch: outputs, the length of the loop, the stride, and how many numbers it reads."""

    kernel: str
    n: int
    k: int
    stride: int
    inputs: int


K = 1024
CASES = {"strided": Shape("strided", K * 128, 128, K * 128, K * 128 * 128),
         "strided, few threads": Shape("strided", K * 16, K, K * 16, K * K * 16),
         "chain": Shape("chain", K * 512, 4096, 0, K * 512),
         "four_chains": Shape("four_chains", K * 512, 2048, 0, K * 512),
         "product": Shape("product", K * K, K, 0, K * K),
         "sine": Shape("sine", K * 128, 128, K * 128, K * 128 * 128),
         "gathered": Shape("gathered", K * 128, 128, K * K * 8, K * K * 8),
         "row_softmax": Shape("row_softmax", K * 64, 128, 0, K * 64 * 128),
         "transposed": Shape("transposed", K * K * 4, K * 2, K * 2, K * K * 4),
         "stencil": Shape("stencil", K * K * 2, 32, 0, K * K * 2),
         "polynomial": Shape("polynomial", K * K * 2, 256, 0, K * K * 2),
         "root_mean_square": Shape("root_mean_square", K * 128, 128, K * 128, K * 128 * 128)}


def numbers(count: int) -> np.ndarray:
    """Return floats from 0.25 to 1."""
    return np.random.default_rng(count).uniform(0.25, 1.0, count).astype(np.float32)


def main(case: str, lock: str) -> None:
    """Launch the kernel LAUNCHES times."""
    from aaco.calibration.driver import DriverGpu, address
    from benchmarks.gpu._kernels import compiled

    with Path(lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shape, gpu = CASES[case], DriverGpu("NVIDIA")
        arch = f"sm_{gpu.attribute('major')}{gpu.attribute('minor')}"
        module = gpu.load(compiled(SOURCE.read_text(), arch))
        content = numbers(shape.inputs)
        a, out = gpu.allocate(4 * shape.inputs), gpu.allocate(4 * shape.n)
        gpu.call("to_device", a, content.ctypes.data_as(ctypes.c_void_p), content.nbytes)
        gpu.call("fill_async", out, 0, shape.n, gpu.stream)
        launch = gpu.kernel(module, shape.kernel, -(-shape.n // 256), address(a), address(out), shape.n, shape.k,
                            shape.stride)
        for _ in range(LAUNCHES):
            gpu.launch(launch)
            gpu.wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(sys.argv[1], sys.argv[2])
