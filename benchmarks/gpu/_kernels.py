"""A program with one kernel of interest, launched some times: what benchmarks.gpu.replay captures.

    python _kernels.py NAME LOCK [EDGE]

NAME is one of PROGRAMS. While it uses the device it holds the file LOCK, so that programs may start at once. It imports
nothing of AACO but the way to NVRTC: what captures it comes by PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import fcntl
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

WARM, LAUNCHES = 5, 20
SOURCE = Path(__file__).with_name("_kernels.cu")


def _torch_programs(torch: Any) -> dict[str, Callable[[], Callable[[], object]]]:
    functional, bf16 = torch.nn.functional, torch.bfloat16

    def random(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def add() -> Callable[[], object]:
        a, b, out = random(4096, 4096), random(4096, 4096), random(4096, 4096)
        return lambda: torch.add(a, b, out=out)

    def softmax() -> Callable[[], object]:
        a, out = random(4096, 4096), random(4096, 4096)
        return lambda: torch.softmax(a, -1, out=out)

    def row_sum() -> Callable[[], object]:
        a, out = random(8192, 8192), torch.empty(8192, device="cuda")
        return lambda: torch.sum(a, 1, out=out)

    def product(m: int, k: int, n: int, dtype: Any) -> Callable[[], object]:
        a, b, out = random(m, k, dtype=dtype), random(k, n, dtype=dtype), random(m, n, dtype=dtype)
        return lambda: torch.mm(a, b, out=out)

    def gather() -> Callable[[], object]:
        a, out = random(1 << 20, 64), random(1 << 20, 64)
        places = torch.randint(0, 1 << 20, (1 << 20,), device="cuda")
        return lambda: torch.index_select(a, 0, places, out=out)

    def attention() -> Callable[[], object]:
        q, k, v = (random(4, 16, 1024, 64, dtype=bf16) for _ in range(3))
        backend = torch.nn.attention.SDPBackend.CUDNN_ATTENTION

        def call() -> object:
            with torch.no_grad(), torch.nn.attention.sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(q, k, v)

        return call

    def convolution() -> Callable[[], object]:
        a, weights = random(32, 64, 56, 56), random(64, 64, 3, 3)

        def call() -> object:
            with torch.no_grad():
                return functional.conv2d(a, weights, padding=1)

        return call

    def triton() -> Callable[[], object]:
        sys.path.insert(0, str(Path(__file__).parent))
        from _triton_kernel import doubled
        a, out = random(4096, 4096), random(4096, 4096)
        return lambda: doubled[(4096,)](a, out, 4096, BLOCK=4096)

    return {"add": add, "softmax": softmax, "row_sum": row_sum,
            "gemm_f32": lambda: product(2048, 2048, 2048, torch.float32),
            "nvjet": lambda: product(4096, 4096, 4096, bf16), "nvjet_splitk": lambda: product(512, 8192, 640, bf16),
            "gather": gather, "attention": attention, "convolution": convolution, "triton": triton}


OWN = ("chase", "counter", "accumulate", "scaled", "waits")
SMALL = "small_"  # before a name of OWN: the same kernel, with little memory
PROGRAMS = ("add", "softmax", "row_sum", "gemm_f32", "nvjet", "nvjet_splitk", "gather", "attention", "convolution",
            "triton", *OWN, *(SMALL + name for name in OWN))


def _own(name: str) -> Callable[[], object]:
    """One of the kernels of _kernels.cu, by the driver: its memory is cuMemAlloc's and the module's."""
    from aaco.calibration.driver import DriverGpu, address

    gpu = DriverGpu("NVIDIA")
    arch = f"sm_{gpu.attribute('major')}{gpu.attribute('minor')}"
    module = gpu.load(compiled(SOURCE.read_text(), arch))
    small, name = name.startswith(SMALL), name.removeprefix(SMALL)
    nodes, length, numbers = (1 << 8, 64, 1 << 10) if small else (1 << 16, 4096, 1 << 20)
    if name == "chase":
        base = gpu.allocate(64 * nodes)
        out = gpu.allocate(8 * 256)
        order = [(at * 40503 + 1) % nodes for at in range(nodes)]
        raw = (ctypes.c_uint64 * (8 * nodes))()
        for at in range(nodes):
            raw[8 * at] = base + 64 * order[at]
            raw[8 * at + 1] = at * at
        gpu.call("to_device", base, raw, ctypes.sizeof(raw))
        launch = gpu.kernel(module, "chase", 1, address(base), address(out), length)
    else:
        memory, out = gpu.allocate(4 * numbers), gpu.allocate(4 * numbers)
        gpu.call("fill_async", memory, 0x3F8CCCCD if name == "scaled" else 7, numbers, gpu.stream)  # 1.1f
        blocks = 1 if name == "counter" else numbers // 256
        launch = gpu.kernel(module, name, blocks, address(memory), address(out), numbers)
    return lambda: gpu.launch(launch)


def compiled(source: str, arch: str) -> bytes:
    """Return the cubin that NVRTC makes. Exits where it refuses."""
    from aaco.calibration.device_compilers import NVRTC, CompileError, by_library
    try:
        return by_library(NVRTC, (f"--gpu-architecture={arch}", "--std=c++17"), source.encode(), {}, "kernels.cu").code
    except CompileError as refusal:
        sys.exit(refusal.log)


def main(name: str, lock: str) -> None:
    """Launch the kernel LAUNCHES times, each after the one before has ended."""
    import torch
    with Path(lock).open("w") if lock else nullcontext() as file:
        if file:
            fcntl.flock(file, fcntl.LOCK_EX)
        torch.manual_seed(0)
        call = _own(name) if name.removeprefix(SMALL) in OWN else _torch_programs(torch)[name]()
        kept = None
        for _ in range(WARM + LAUNCHES):
            kept = call()
            torch.cuda.synchronize()
        del kept


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
