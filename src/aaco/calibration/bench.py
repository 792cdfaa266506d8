"""The process that measures one GPU: memory, caches, vector and matrix rates, launches, copies.

The kernels are native/calibration, the matrix products the vendor's library. Both go through the vendor's driver by
ctypes (driver.py), with one code for NVIDIA and AMD. Device events give times on the device, perf_counter times on the
host. As on the CPU, a roof is the best of several kernels of different make. A kernel beyond it is reported as it is,
never clipped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from aaco.calibration import child, compiler, matrix, rounds, work
from aaco.calibration.card import CalibratedDevice
from aaco.calibration.driver import DriverGpu, Vendor, address, double
from aaco.calibration.launches import LaunchMeter
from aaco.calibration.rounds import Burst, RateSeries, ranking, repeat
from aaco.core.errors import AacoError, Missing

Run = Callable[[], tuple[RateSeries, str]]

REPEAT_S, BURSTS = 0.002, 30  # in a part
SHORTEST_S = 1e-7  # below an event's resolution, which is 0.5 us
EDGES, LONGEST_S = (2048, 4096, 8192), 0.02  # of matrices; no larger one where its product would take longer
TRIES = 5  # of each algorithm: two that differ by a few per cent must not be chosen between by chance
# Consecutive bursts ran at the clock that the limiter of the board's power had left (three rounds on an H200
# differed by up to 6.6 %); a rest before each is to have them begin alike.
RESTS, LONGER = 4, 5  # rests in the time of a part; and how many of its times a part with rests has
EMPTY, WAITS = "empty", 200  # the kernel that does nothing, and how often it is waited for in a burst
GRAPH_KERNELS, COPIED = 1000, 256 << 20
A16, B16 = 0x3BFF3BFF, 0x14191419  # two of 0.9995 and two of 0.001 in fp16
MATRIX = ("f64", "tf32", "f16", "bf16", "f8", "i8")


class Bench:
    """The device with its compiled kernels, and what to measure on it."""

    def __init__(self, gpu: DriverGpu, arch: str, code: bytes, part_s: float, visit: int) -> None:
        self.gpu, self.arch, self._module = gpu, arch, gpu.load(code)
        self._part_s, self._burst_s = part_s, part_s / BURSTS
        self.sizes = work.sizes(gpu.memory()[0], gpu.attribute("l2") or None, gpu.attribute("units"))
        self._out = gpu.allocate(work.STEP)
        self.launches = LaunchMeter(gpu, gpu.kernel(self._module, EMPTY, 1), visit)

    def plan(self) -> dict[str, tuple[str, Run]]:
        """Return the unit and measurement of each ceiling, in order."""
        matrices = (*MATRIX, "f32") if self.gpu.vendor == "AMD" else MATRIX
        rates: dict[str, Run] = {"vector_f64_flops": partial(self._measure_fma, "f64"),
                                 "vector_f32_flops": partial(self._measure_fma, "f32"),
                                 "vector_f16_flops": partial(self._measure_fma, "f16"),
                                 **{f"matrix_{dtype}_flops": partial(self._measure_matrix, dtype)
                                    for dtype in matrices}}
        bytes_: dict[str, Run] = {"dram_bytes_per_s": self._measure_memory, "l2_bytes_per_s": self._measure_l2,
                                  "lds_bytes_per_s": self._measure_lds,
                                  **{f"{way}_{kind}_bytes_per_s": partial(self._measure_copies, way, kind)
                                     for way in ("h2d", "d2h") for kind in ("pinned", "pageable")}}
        costs: dict[str, Run] = {"round_trip_ns": self._measure_round_trip, "graph_kernel_ns": self._measure_graph}
        last: dict[str, Run] = {"launch_ns": self._measure_launch}  # of visits before all others, too
        return {name: (unit, run) for unit, runs in (("ns", costs), ("B/s", bytes_), ("FLOP/s", rates), ("ns", last))
                for name, run in runs.items()}

    # Memory and caches

    def _measure_memory(self) -> tuple[RateSeries, str]:
        gpu, lane, blocks = self.gpu, self.sizes.lane, self.sizes.memory_blocks
        with self._allocate_lanes(3) as (a, b, c):
            arguments: dict[str, tuple[Any, ...]] = {
                "memory_read": (address(a), address(self._out)), "memory_write": (address(c), 1.0),
                "memory_copy": (address(a), address(b)), "memory_add": (address(a), address(b), address(c))}
            bursts = {name.removeprefix("memory_"):
                      self._kernel_burst(name, work.memory_bytes(name, blocks), blocks, *pointers)
                      for name, pointers in arguments.items()}
            bursts["driver's copy"] = self._make_burst(partial(gpu.call, "copy_async", b, a, lane, gpu.stream),
                                                       2.0 * lane)
            bursts["driver's fill"] = self._make_burst(partial(gpu.call, "fill_async", c, 0x3F800000, lane // 4,
                                                               gpu.stream), float(lane))
            series = repeat(bursts, 2 * self._part_s)
        return series, (f"set by {series.winner}, the fastest of (GB/s) {ranking(series)}, "
                        f"over arrays of {lane / 1e9:.2f} GB")

    def _measure_l2(self) -> tuple[RateSeries, str]:
        vectors, blocks = self.sizes.l2_vectors, self.sizes.units * work.BLOCKS_PER_UNIT["l2_read"]
        if vectors is None:
            raise Missing("the driver does not tell how large the second-level cache is")
        with self._allocate_lanes(1, size=vectors * work.VECTOR) as (a,):
            bursts = {f"{part * work.VECTOR >> 10} KiB": self._kernel_burst(
                "l2_read", work.l2_bytes(blocks, work.L2_TURNS), blocks, address(a), address(self._out), part,
                work.L2_TURNS) for part in (vectors, vectors // 2) if part >= work.BLOCK * work.UNROLL}
            series = repeat(bursts, self._part_s)
        return series, f"every block reads the same array; the fastest of (GB/s) {ranking(series)}"

    def _measure_lds(self) -> tuple[RateSeries, str]:
        blocks = self.sizes.units * work.BLOCKS_PER_UNIT["lds_read"]
        burst = self._kernel_burst("lds_read", work.lds_bytes(blocks, work.LDS_TURNS), blocks, address(self._out), 1.0,
                                   work.LDS_TURNS)
        return repeat({"read": burst}, self._part_s), "16 bytes a lane without conflicts between banks"

    # Arithmetic

    def _measure_fma(self, dtype: str) -> tuple[RateSeries, str]:
        blocks, name = self.sizes.units * work.BLOCKS_PER_UNIT["fma"], f"fma_{dtype}"
        a, b = {"f64": (double(0.9995), double(0.001)), "f32": (0.9995, 0.001), "f16": (A16, B16)}[dtype]
        bursts = {"multiply-adds": self._kernel_burst(name, work.fma_flops(name, blocks, work.FMA_TURNS), blocks,
                                                      address(self._out), a, b, work.FMA_TURNS)}
        note = ""
        if dtype == "f32" and self.gpu.vendor == "NVIDIA":  # its matrix units have no fp32
            try:
                with self._open_products(dtype) as products:
                    return self._add_ranking(repeat(bursts | products, LONGER * self._part_s))
            except AacoError as reason:
                note = f"; without matrix products ({reason.what})"
        series, how = self._add_ranking(repeat(bursts, self._part_s))
        return series, how + note

    def _measure_matrix(self, dtype: str) -> tuple[RateSeries, str]:
        with self._open_products(dtype) as products:
            return self._add_ranking(repeat(products, LONGER * self._part_s))

    def _add_ranking(self, series: RateSeries) -> tuple[RateSeries, str]:
        return series, f"set by {series.winner}, the fastest of (TFLOP/s) {ranking(series, 1e12)}"

    @contextmanager
    def _open_products(self, dtype: str) -> Iterator[dict[str, Burst]]:
        """Yield products of rising size, each by the library's fastest algorithm. Raise AacoError."""
        library = matrix.Products(self.gpu, self.arch)
        try:
            bursts: dict[str, Burst] = {}
            last_s = 0.0
            for edge in EDGES:
                if bursts and last_s * 8 > LONGEST_S:
                    break
                last_s, best = self._find_fastest(library.ways(dtype, edge))
                bursts[f"product of {edge} x {edge}"] = self._make_burst(best, matrix.flops(edge), self._part_s / RESTS)
            yield bursts
        finally:
            library.close()

    def _find_fastest(self, ways: Sequence[Callable[[], None]]) -> tuple[float, Callable[[], None]]:
        """Return the seconds of the fastest of several ways to do the same, and that way. Leave out ways that are
        refused when used.

        Raise AacoError if all are refused.
        """
        timings: list[tuple[float, Callable[[], None]]] = []
        refused = AacoError("the library offers no way")
        for way in ways:
            try:
                timings.append((self._time_once(way, TRIES), way))
            except AacoError as reason:
                refused = reason
        if not timings:
            raise refused
        return min(timings, key=lambda timing: timing[0])

    def _time_once(self, queue: Callable[[], object], tries: int = 1) -> float:
        """Return the shortest time of one run, s."""
        return max(SHORTEST_S, min(self.gpu.seconds(queue, 1) for _ in range(tries)))

    # Launches and copies

    def _measure_launch(self) -> tuple[RateSeries, str]:
        self.launches.visit()
        return self.launches.series()

    def _measure_round_trip(self) -> tuple[RateSeries, str]:
        kernel = self._prepare_empty()

        def once() -> float:
            start = time.perf_counter()
            self.gpu.launch(kernel)
            self.gpu.wait()
            return 1 / (time.perf_counter() - start)

        return repeat({"wait": lambda: [once() for _ in range(WAITS)]}, self._part_s), \
            "a kernel that does nothing is queued and waited for, from Python"

    def _measure_graph(self) -> tuple[RateSeries, str]:
        kernel = self._prepare_empty()

        def queue() -> None:
            for _ in range(GRAPH_KERNELS):
                self.gpu.launch(kernel)

        burst = self._make_burst(self.gpu.graph(queue), GRAPH_KERNELS)
        return repeat({"graph": burst}, self._part_s), \
            f"on the device, of a graph of {GRAPH_KERNELS} kernels that do nothing, one after the other"

    def _prepare_empty(self) -> Any:
        kernel = self.gpu.kernel(self._module, EMPTY, 1)
        self.gpu.launch(kernel)
        self.gpu.wait()
        return kernel

    def _measure_copies(self, way: str, kind: str) -> tuple[RateSeries, str]:
        gpu, how = self.gpu, f"{COPIED >> 20} MiB of {kind} host memory"
        with self._allocate_lanes(1, size=COPIED) as (at,):
            if kind == "pinned":
                host = gpu.pinned(COPIED)
                try:
                    ends = (at, host) if way == "h2d" else (host, at)
                    name = "to_device_async" if way == "h2d" else "to_host_async"
                    return repeat({how: self._make_burst(partial(gpu.call, name, *ends, COPIED, gpu.stream),
                                                         float(COPIED))}, self._part_s), how
                finally:
                    gpu.wait()
                    gpu.call("unpin", host)
            memory = np.ones(COPIED, np.uint8)  # touched, so that no page is made while it is copied
            ends = (at, memory.ctypes.data) if way == "h2d" else (memory.ctypes.data, at)
            copy = partial(gpu.call, "to_device" if way == "h2d" else "to_host", *ends, COPIED)

            def once() -> list[float]:
                start = time.perf_counter()
                copy()
                return [COPIED / (time.perf_counter() - start)]

            return repeat({how: once}, self._part_s), how

    # What they share

    @contextmanager
    def _allocate_lanes(self, count: int, size: int | None = None) -> Iterator[list[int]]:
        """Yield arrays of ones in device memory; free them at the end of the block."""
        gpu, size = self.gpu, size or self.sizes.lane
        lanes: list[int] = []
        try:
            for _ in range(count):
                lanes.append(gpu.allocate(size))
                gpu.call("fill_async", lanes[-1], 0x3F800000, size // 4, gpu.stream)
            gpu.wait()
            yield lanes
        finally:
            for lane in lanes:
                gpu.call("free", lane)

    def _kernel_burst(self, name: str, done: float, blocks: int, *arguments: Any) -> Burst:
        kernel = self.gpu.kernel(self._module, name, blocks, *arguments)
        return self._make_burst(partial(self.gpu.launch, kernel), done)

    def _make_burst(self, queue: Callable[[], object], done: float, rest_s: float = 0.0) -> Burst:
        """Return a burst that repeats `queue`, which does `done` work, by the device's clock, after a rest.

        Group short runs into repeats.
        """
        inner = 1 + int(REPEAT_S / self._time_once(queue))

        def burst() -> list[float]:
            time.sleep(rest_s)
            rates: list[float] = []
            end = time.perf_counter() + self._burst_s
            while not rates or time.perf_counter() < end:
                rates.append(done * inner / max(SHORTEST_S, self.gpu.seconds(queue, inner)))
            return rates

        return burst


def _find_architecture(gpu: DriverGpu, arch: str) -> str:
    if arch:
        return arch
    if gpu.vendor == "AMD":
        raise Missing("the kernel's files do not tell the architecture of this AMD GPU",
                      "ls /sys/class/kfd/kfd/topology/nodes  # is the amdgpu driver loaded, may this user read it?")
    return f"sm_{gpu.attribute('major')}{gpu.attribute('minor')}"


def main() -> None:
    """Measure in this process; the arguments are vendor, device number, architecture, cache, time for a part, and
    bursts of launches between parts (see child.answer).

    An empty architecture is asked from the driver. With the first two arguments only, report the device.
    """
    with child.answer() as tell:
        vendor, number = cast(Vendor, sys.argv[1]), int(sys.argv[2])
        gpu = DriverGpu(vendor, number)
        if len(sys.argv) == 3:
            tell(name=gpu.device_name, compute_units=gpu.attribute("units"), memory_bytes=gpu.memory()[1],
                 bus_id=gpu.bus_id)
            return
        asked_arch, cache = sys.argv[3], Path(sys.argv[4])
        arch = _find_architecture(gpu, asked_arch)
        code, by = compiler.compiled(vendor, arch, cache)
        bench = Bench(gpu, arch, code, float(sys.argv[5]), int(sys.argv[6]))
        tell(device=CalibratedDevice(vendor=vendor, name=gpu.device_name, arch=arch, compute_units=bench.sizes.units,
                                     memory_bytes=gpu.memory()[1], l2_bytes=gpu.attribute("l2") or None,
                                     bus_id=gpu.bus_id, compiler=by).model_dump())
        plan = bench.plan()
        tell(plan=list(plan))
        for name, (unit, run) in plan.items():
            try:
                bench.launches.visit()
                start = time.monotonic_ns()
                series, how = run()
            except AacoError as reason:
                tell(absent=name, why=reason.what)
                continue
            ceiling = rounds.rate(name, unit, 1, series, how)
            tell(ceiling=(rounds.cost(ceiling) if unit == "ns" else ceiling).model_dump(),
                 between_ns=[start, time.monotonic_ns()])
        sys.stdout.flush()
        os._exit(0)  # skip the shutdown, in which a driver may hang


if __name__ == "__main__":
    main()
