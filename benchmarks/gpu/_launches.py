"""A program that works on the GPU, and says how long that took it: run by benchmarks.gpu.tracer, traced and untraced.

    python _launches.py launches              1000 tiny kernels in a round, host ns for each, as JSON
    python _launches.py spins                 kernels of about a millisecond, by the device's own events, us
    python _launches.py products [FILE]       products of matrices in PyTorch; FILE gets torch.profiler's trace of them

Launches are PyTorch's where it is installed, else the driver's by ctypes; it imports nothing else.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

WARM, ROUNDS, LAUNCHES = 3, 30, 1000
SPINS, TURNS = 40, 400_000
EDGES, PRODUCTS = (512, 1024, 2048, 4096), 30
# Fused multiply-adds, one after the other; for any device since Turing.
PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry spin(.param .u32 turns, .param .u64 sink)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    .reg .f32 %f<3>;
    ld.param.u32 %r1, [turns];
    ld.param.u64 %rd1, [sink];
    mov.u32 %r2, 0;
    mov.f32 %f1, 0f3F800000;
    mov.f32 %f2, 0f3F7FFFFF;
TURN:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    fma.rn.f32 %f1, %f1, %f2, %f2;
    add.u32 %r2, %r2, 1;
    bra TURN;
DONE:
    st.global.f32 [%rd1], %f1;
    ret;
}
\0"""


class Driver:
    """The first GPU by the driver's own functions, with one kernel."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._sink, self._kernel = ctypes.c_uint64(), ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        self.call("cuModuleGetFunction", ctypes.byref(self._kernel), module, ctypes.c_char_p(b"spin"))
        self.call("cuMemAlloc_v2", ctypes.byref(self._sink), ctypes.c_size_t(256))

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the driver. Exits where it returns an error."""
        code = getattr(self._cuda, name)(*arguments)
        if code:
            sys.exit(f"{name}: error {code}")

    def launcher(self, turns: int) -> Callable[[], object]:
        """What launches the kernel once."""
        count = ctypes.c_uint32(turns)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(count), ctypes.addressof(self._sink))
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        arguments = (self._kernel, one, one, one, one, one, one, ctypes.c_uint(0), none, values, none)
        function, kept = self._cuda.cuLaunchKernel, (count, values)

        def launch(kept: object = kept) -> object:
            return function(*arguments)

        return launch

    def synchronise(self) -> None:
        """Wait for the device."""
        self.call("cuCtxSynchronize")

    def event(self) -> ctypes.c_void_p:
        """A new event of the device."""
        made = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), ctypes.c_uint(0))
        return made


def launches() -> dict[str, Any]:
    """Host time of a launch, ns, by round."""
    torch = _torch()
    if torch is None:
        driver = Driver()
        launch, synchronise, by = driver.launcher(0), driver.synchronise, "driver"
    else:
        x = torch.zeros(1024, device="cuda")
        launch, synchronise, by = lambda: x.add_(1.0), torch.cuda.synchronize, f"PyTorch {torch.__version__}"
    took = []
    gc.disable()
    for _ in range(WARM + ROUNDS):
        synchronise()
        begin = time.perf_counter_ns()
        for _ in range(LAUNCHES):
            launch()
        took.append((time.perf_counter_ns() - begin) / LAUNCHES)
        synchronise()
    return {"by": by, "ns": took[WARM:], "launches": (WARM + ROUNDS) * LAUNCHES}


def spins() -> dict[str, Any]:
    """Time between two events around a kernel, us, one kernel after the other."""
    driver, took = Driver(), []
    launch = driver.launcher(TURNS)
    begin, end, apart = driver.event(), driver.event(), ctypes.c_float()
    for _ in range(SPINS):
        driver.call("cuEventRecord", begin, ctypes.c_void_p())
        launch()
        driver.call("cuEventRecord", end, ctypes.c_void_p())
        driver.synchronise()
        driver.call("cuEventElapsedTime", ctypes.byref(apart), begin, end)
        took.append(1000 * apart.value)
    return {"us": took}


def products(trace: str | None) -> dict[str, Any]:
    """Products of several sizes, each often, in one order; the last of each size are what counts."""
    torch = _torch()
    if torch is None:
        sys.exit("PyTorch with CUDA is not installed")
    pairs = [[torch.randn(edge, edge, device="cuda", dtype=torch.bfloat16) for _ in range(2)] for edge in EDGES]

    def work() -> None:
        for left, right in pairs:
            for _ in range(PRODUCTS):
                left @ right
            torch.cuda.synchronize()

    work()
    if trace is None:
        work()
    else:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
            work()
        profiled.export_chrome_trace(trace)
    return {"by": f"PyTorch {torch.__version__}"}


def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


if __name__ == "__main__":
    what = sys.argv[1]
    print(json.dumps(products(sys.argv[2] if len(sys.argv) > 2 else None) if what == "products" else
                     {"launches": launches, "spins": spins}[what]()))
