"""Measures this machine's CPU ceilings in a fresh process: arithmetic, memory and cache bandwidth, cost of a call.

A roof is useful when real kernels stay below it, so each ceiling is the best of several kernels of different make:
for arithmetic numpy's BLAS and the kernels of ONNX Runtime, for bandwidth four access patterns. Arithmetic is measured
in the types that ONNX Runtime multiplies in on every CPU: fp32, fp64, and 8-bit integers as in quantised models. A
kernel may still come out above its roof: a Winograd-like convolution does fewer operations than its definition counts,
and data that stays in a cache outruns memory. Such a utilisation (above 1.05) is to be reported as it is, never
clipped.

Bandwidth is counted as STREAM counts it (McCalpin 1995): bytes the program reads and writes. The line that a store
must first fetch (write-allocate) is not counted, so a kernel that writes where it has not read shows less than the bus
carries. The update pattern (read and write in place) fetches nothing uncounted. STREAM's scale and triad move the
same bytes as its copy and add and are left out: numpy has no fused multiply-add that could show a difference.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import as_strided

from aaco.calibration import child, rounds
from aaco.calibration.card import Ceiling, CeilingConditions
from aaco.calibration.rounds import Burst, RateSeries, ranking, repeat
from aaco.core.arrays import Array
from aaco.core.errors import Missing, UsageError
from aaco.core.readings import Absent
from aaco.core.show import SILENT, Show

FLOATS = ("float32", "float64")  # what BLAS multiplies
OPERATORS = {"float32": ("MatMul", "Conv"), "float64": ("MatMul", ""), "int8": ("MatMulInteger", "QLinearConv")}
# A product in fp64 takes twice as long as in fp32, and four rounds must find time to settle.
EDGES = {"float32": (384, 1536, 3072), "float64": (384, 1024, 2048), "int8": (384, 1536, 3072)}
# Scales and zero points of a quantised convolution; with these few of its sums are cut off at the ends of 8 bits.
QUANTISED = {"x_scale": np.float32(0.02), "x_zero": np.uint8(128), "w_scale": np.float32(0.01), "w_zero": np.int8(0),
             "y_scale": np.float32(2), "y_zero": np.uint8(128)}

BUDGET_S, LIMIT = 4.0, 15  # at most: what has settled ends; and a process that takes so many budgets hangs
REPEAT_S, BURST_S = 0.002, 0.015  # a repeat is far longer than a clock's step, a burst far longer than a repeat
# Parts of the budget. The caches' and the call's rates settle in a few hundredths of a second.
FLOPS = {"fp32_flops": ("float32", 0.33), "fp64_flops": ("float64", 0.12), "int8_flops": ("int8", 0.2)}  # by type
MEMORY_PART, CACHE_PART, CALL_PART = 0.2, 0.055, 0.03

MIB = 1 << 20
LINE = 64  # bytes: no CPU that numpy is built for has shorter cache lines with a higher bandwidth
LLC_MULTIPLE = 4  # STREAM's rule: work on at least four times the last-level cache
SMALLEST_RING, UNKNOWN_RING = 256 * MIB, 1024 * MIB
CACHE_TRAFFIC = 128 * MIB  # per thread and repeat: some milliseconds
MAX_PASSES = 64
START_S = 60.0  # a thread that could not get its memory must not keep the others waiting for ever
CALLS = 20_000
SYSTEM = Path("/sys/devices/system/cpu")


class CpuCeilings(NamedTuple):
    """The measured ceilings, and by name why any other is absent."""

    ceilings: list[Ceiling]
    absent: dict[str, str]


def measure(threads: int | None = None, budget_s: float = BUDGET_S, show: Show = SILENT) -> CpuCeilings:
    """Return this machine's ceilings for work on `threads` threads (default: every CPU this process may use).

    `fp32_flops`, `fp64_flops`, `int8_flops` (FLOP/s), `dram_bytes_per_s`, `dispatch_ns` (one thread), and
    `l2_bytes_per_s`, `l3_bytes_per_s` if the kernel reports the caches' sizes. `budget_s` is the time spent measuring;
    starting the process and first touching the memory take about a second more. The process inherits the CPU affinity
    and no thread setting of the caller. Raise UsageError for a senseless request, Missing if the machine cannot be
    measured.
    """
    usable = len(os.sched_getaffinity(0))
    threads = usable if threads is None else threads
    if threads < 1 or not budget_s > 0:
        raise UsageError(f"{threads} threads, {budget_s} s: neither may be zero or less", "aaco calibrate --help")
    if threads > usable:
        raise Missing(f"{threads} threads asked for, but this process may use {usable} CPUs",
                      f"ask for at most {usable}, or start it with a wider affinity (taskset -c)")
    answers = child.run("aaco.calibration.cpu", (str(threads), str(budget_s)), _thread_settings(threads),
                        LIMIT * budget_s + START_S)
    lines = list(child.counted(answers, show))
    return CpuCeilings([Ceiling.model_validate(line["ceiling"]) for line in lines if "ceiling" in line],
                       {line["absent"]: line["why"] for line in lines if "absent" in line})


def _make_burst(call: Callable[[], object], work: float) -> Burst:
    """Return bursts of a call that does `work`; short calls are grouped into repeats of REPEAT_S."""
    call()  # the first call pays for page faults and thread starts
    inner = 1 + int(REPEAT_S / _time_calls(call, 1))

    def burst() -> list[float]:
        rates: list[float] = []
        end = time.perf_counter() + BURST_S
        while not rates or time.perf_counter() < end:
            rates.append(work * inner / _time_calls(call, inner))
        return rates

    return burst


def _time_calls(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in itertools.repeat(None, times):
        call()
    return time.perf_counter() - start


# Arithmetic


def flops(dtype: str, threads: int, budget_s: float) -> tuple[RateSeries, str]:
    """Return operations per second of matrix products and convolutions in a type (a multiply-add counts 2), and how.

    dtype: a key of FLOPS. Raise Absent if nothing here multiplies in it.
    """
    kernels, note = _products_of_blas(dtype, threads) if dtype in FLOATS else {}, ""
    try:
        kernels |= _ort_kernels(dtype, threads)
    except ImportError as error:
        note = f"without ONNX Runtime's kernels ({error})"
    if not kernels:
        raise Absent(note)
    series = repeat(kernels, budget_s)
    return series, "; ".join(filter(None, (
        f"set by {series.winner}, the fastest of (GFLOP/s) {ranking(series)}", note)))


def _choose_edges(dtype: str, threads: int) -> tuple[int, ...]:
    """Return edges of square matrices that fit the caches, reach the plateau, and feed many threads."""
    return EDGES[dtype] if threads >= 8 else EDGES[dtype][:2]


def _products_of_blas(dtype: str, threads: int) -> dict[str, Burst]:
    bursts = {}
    for edge in _choose_edges(dtype, threads):
        left, right = _random_array(dtype, edge, edge), _random_array(dtype, edge, edge)
        product = partial(np.matmul, left, right, out=np.empty_like(left))
        bursts[f"numpy {dtype} product {edge}"] = _make_burst(product, 2.0 * edge**3)
    return bursts


def _ort_kernels(dtype: str, threads: int) -> dict[str, Burst]:
    """Return bursts of ONNX Runtime's product and convolution.

    The right-hand matrix and the filter are constants, as in models: ONNX Runtime packs them once, when the session
    opens. The convolution is 3 x 3 over 256 channels without padding, so that its definition counts no operation that
    is not done; MLAS computes it directly, and has none of fp64. 8-bit data is unsigned and weights are signed: ONNX
    Runtime's quantiser makes these and instruction sets multiply them. Raise ImportError.
    """
    product, convolution = OPERATORS[dtype]
    data = "uint8" if dtype == "int8" else dtype
    kernels = {f"ONNX Runtime {product} {edge}": _ort_burst(product, _random_array(data, edge, edge),
                                                            _random_array(dtype, edge, edge), 2.0 * edge**3, threads)
               for edge in _choose_edges(dtype, threads)}
    if convolution:
        kernels[f"ONNX Runtime {convolution} 3x3x256"] = _ort_burst(
            convolution, _random_array(data, 1, 256, 58, 58), _random_array(dtype, 256, 256, 3, 3),
            2.0 * 256 * 256 * 9 * 56 * 56, threads)
    return kernels


def _ort_burst(operator: str, data: Array, weight: Array, work: float, threads: int) -> Burst:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Idle workers that spin would take the CPUs from the next kernel of the round.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(_build_model(operator, data, weight), options,
                                           providers=["CPUExecutionProvider"])
    return _make_burst(partial(session.run, None, {"x": data}), work)


def _build_model(operator: str, data: Array, weight: Array) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    dtype = helper.np_dtype_to_tensor_dtype(data.dtype)
    made = TensorProto.INT32 if operator == "MatMulInteger" else dtype
    constants, inputs = {"w": weight}, ["x", "w"]
    if operator == "QLinearConv":
        constants |= {name: np.asarray(value) for name, value in QUANTISED.items()}
        inputs = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
    graph = helper.make_graph([helper.make_node(operator, inputs, ["y"])], "ceiling",
                              [helper.make_tensor_value_info("x", dtype, data.shape)],
                              [helper.make_tensor_value_info("y", made, None)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _random_array(dtype: str, *shape: int) -> Array:
    """Return random numbers: integers over their whole range, floating-point numbers from 0 to 1."""
    draw = np.random.default_rng(0)
    if dtype in FLOATS:
        return draw.random(shape, dtype=np.dtype(dtype))
    limits = np.iinfo(dtype)
    return draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)


# Bandwidth


class Stream(Struct, frozen=True):
    """An access pattern over `lanes` arrays of one size; a pass reads and writes `moved` times that size."""

    lanes: int
    moved: int
    run: Callable[[Sequence[Array]], object]


def _update(lanes: Sequence[Array]) -> None:
    for row in lanes[0]:  # row by row: of overlapping rows as output, numpy would make a copy first
        np.multiply(row, np.float32(1), out=row)


STREAMS = {
    "read": Stream(1, 1, lambda lanes: np.maximum.reduce(lanes[0], axis=1)),
    "update": Stream(1, 2, _update),
    "copy": Stream(2, 2, lambda lanes: np.copyto(lanes[1], lanes[0])),
    "add": Stream(3, 3, lambda lanes: np.add(lanes[0], lanes[1], out=lanes[2])),
}


class Team:
    """Threads that start together; each streams through memory that it touched first, so on its own node.

    Every stream has its own segment of each thread's memory. If a round over all segments exceeds the caches, no
    segment is still in them at its next turn.
    """

    def __init__(self, threads: int, segment_bytes: int) -> None:
        self._threads = threads
        self._count = segment_bytes // 4
        self._local = threading.local()
        self._start = threading.Barrier(threads, timeout=START_S)
        self._pool = ThreadPoolExecutor(threads, initializer=self._touch)
        list(self._pool.map(lambda _: self._start.wait(), range(threads)))  # all are here, the memory is touched

    def _touch(self) -> None:
        self._local.memory = np.ones(self._count * len(STREAMS), np.float32)

    def rates(self, name: str, passes: int, turns: int) -> list[float]:
        """Return one repeat: bytes per second of all threads, from the first start to the last end."""
        streamed = list(self._pool.map(lambda _: self._stream(name, passes, turns), range(self._threads)))
        starts, ends, moved = zip(*streamed, strict=True)
        return [sum(moved) / (max(ends) - min(starts))]

    def _stream(self, name: str, passes: int, turns: int) -> tuple[float, float, int]:
        stream, first = STREAMS[name], list(STREAMS).index(name) * self._count
        lanes = overlapping_rows(self._local.memory[first:first + self._count], stream.lanes, passes)
        self._start.wait()
        start = time.perf_counter()
        for _ in range(turns):
            stream.run(lanes)
        return start, time.perf_counter(), turns * stream.moved * lanes[0].size * 4

    def close(self) -> None:
        """End the threads, even those that wait for one that failed, and free their memory."""
        self._start.abort()
        self._pool.shutdown()


def overlapping_rows(memory: Array, lanes: int, passes: int) -> list[Array]:
    """Return `lanes` disjoint arrays (passes, n) in the flat `memory`, each row one cache line after the last.

    One call over such an array goes through the same memory `passes` times without returning to the interpreter.
    Otherwise several threads would measure the interpreter's lock.
    """
    span, step = len(memory) // lanes, LINE // 4
    count = span - step * (passes - 1)
    return [as_strided(memory[lane * span:], (passes, count), (LINE, 4)) for lane in range(lanes)]


def bandwidth(threads: int, segment_bytes: int, passes: int, turns: int, budget_s: float) -> RateSeries:
    """Return the bytes per second of each stream, on `threads` threads with a segment of `segment_bytes` per stream
    each.
    """
    team = Team(threads, segment_bytes)
    try:
        return repeat({name: partial(team.rates, name, passes, turns) for name in STREAMS}, budget_s)
    finally:
        team.close()


def memory_bandwidth(threads: int, caches: Mapping[int, int], budget_s: float) -> tuple[RateSeries, str]:
    """Return the bandwidth over a ring of memory of four times the last-level cache, and how.

    Raise Missing without the room.
    """
    ring, relation = ring_bytes(caches, available_memory())
    series = bandwidth(threads, ring // len(STREAMS) // threads, 1, 1, budget_s)
    return series, (f"set by {series.winner}, the fastest of (GB/s) {ranking(series)}, over {ring / 1e9:.2f} GB "
                    f"({relation}), counted without write-allocate")


def ring_bytes(caches: Mapping[int, int], available: int | None) -> tuple[int, str]:
    """Return the bytes of memory to cycle through, and their relation to the last-level cache. At most half of what is
    available.

    Raise Missing if that is not clearly more than the cache, so that the cache would be measured instead.
    """
    llc = caches[max(caches)] if caches else None
    needed = max(LLC_MULTIPLE * llc, SMALLEST_RING) if llc else UNKNOWN_RING
    ring = needed if available is None else min(needed, available // 2)
    if ring < needed / 2:
        raise Missing(f"memory bandwidth needs {needed / 1e9:.2f} GB to exceed the caches; there is {ring / 1e9:.2f}",
                      "free some memory, or raise the container's memory limit")
    return ring, f"{ring / llc:.1f} x the last-level cache" if llc else "the caches' sizes are not known"


def cache_bandwidth(threads: int, segment_bytes: int, budget_s: float) -> tuple[RateSeries, str]:
    """Return the bandwidth of data that stays in a cache level, and how."""
    passes = max(1, min(MAX_PASSES, CACHE_TRAFFIC // segment_bytes))
    turns = max(1, CACHE_TRAFFIC // (passes * segment_bytes))
    series = bandwidth(threads, segment_bytes, passes, turns, budget_s)
    return series, (f"set by {series.winner}, the fastest of (GB/s) {ranking(series)}, "
                    f"over {segment_bytes / 1024:.0f} KiB per thread")


def working_sets(caches: Mapping[int, int], cpus: int) -> dict[int, int]:
    """Return the bytes per thread that stay in each level (2 and up) but not in the one inside it.

    Four times the inner level's share of a CPU, but at most half of this level's share. Leave out a level whose half
    share is not at least twice the inner one: it cannot be distinguished. `caches` holds the bytes by level.
    """
    sizes = {}
    for inner, level in itertools.pairwise(sorted(caches)):
        below, half = caches[inner] // cpus, caches[level] // cpus // 2
        if half >= 2 * below:
            sizes[level] = min(4 * below, half)
    return sizes


def read_caches(cpus: set[int], root: Path = SYSTEM) -> dict[int, int]:
    """Return the bytes of data cache by level that `cpus` reach, a shared cache counted once; empty if the kernel hides
    it.
    """
    sizes: dict[tuple[int, str], int] = {}
    for folder in (index for cpu in sorted(cpus) for index in root.glob(f"cpu{cpu}/cache/index*")):
        facts = {name: _read_text(folder / name) for name in ("level", "type", "size", "shared_cpu_list")}
        if all(facts.values()) and facts["type"] in ("Data", "Unified"):
            sizes[int(facts["level"]), facts["shared_cpu_list"]] = 1024 * int(
                facts["size"].removesuffix("K"))  # always in K: drivers/base/cacheinfo.c
    levels = sorted({level for level, _ in sizes})
    return {level: sum(size for (of, _), size in sizes.items() if of == level) for level in levels}


def available_memory() -> int | None:
    """Return the bytes this process can still get: the kernel's estimate, or its control group's limit if that is
    lower.
    """
    lines = dict(line.split(":", 1) for line in _read_text(Path("/proc/meminfo")).splitlines())
    bounds = [int(lines["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in lines else []
    group = Path("/sys/fs/cgroup")
    limit, used = _read_text(group / "memory.max"), _read_text(group / "memory.current")
    if limit.isdigit() and used.isdigit():
        bounds.append(int(limit) - int(used))
    return min(bounds, default=None)


def _read_text(path: Path) -> str:
    """Return a kernel file's text; empty if this kernel does not have it."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# Calls


def _nothing() -> None:
    pass


def calls(budget_s: float) -> tuple[RateSeries, str]:
    """Return the calls per second of a Python function that does nothing, and how."""
    burst = _make_burst(partial(_time_calls, _nothing, CALLS), CALLS)
    return repeat({"call": burst}, budget_s), "a call of a Python function that does nothing, in a loop, loop included"


# The fresh process


class MachineSnapshot(Struct, frozen=True):
    """The machine's state at one instant; None for what the kernel does not report."""

    cpu_mhz: float | None
    load: float | None
    jiffies: tuple[int, int] | None  # busy and all, of every CPU, since boot
    own_jiffies: float  # jiffies of this process


def snapshot() -> MachineSnapshot:
    """Return the clocks and the CPU times of now."""
    load = _read_text(Path("/proc/loadavg")).split()
    used = os.times()
    return MachineSnapshot(_read_mhz(), float(load[0]) if load else None,
                           _parse_jiffies(_read_text(Path("/proc/stat"))),
                           (used.user + used.system) * os.sysconf("SC_CLK_TCK"))


def conditions(before: MachineSnapshot, after: MachineSnapshot) -> CeilingConditions:
    """Return the conditions between two snapshots."""
    return CeilingConditions(cpu_mhz_before=before.cpu_mhz, cpu_mhz_after=after.cpu_mhz, load_average=before.load,
                             others_cpu_pct=_others_cpu_pct(before, after))


def _others_cpu_pct(before: MachineSnapshot, after: MachineSnapshot) -> float | None:
    if before.jiffies is None or after.jiffies is None or after.jiffies[1] <= before.jiffies[1]:
        return None
    busy, total = (late - early for early, late in zip(before.jiffies, after.jiffies, strict=True))
    return round(max(0.0, 100 * (busy - (after.own_jiffies - before.own_jiffies)) / total), 1)


def _parse_jiffies(stat: str) -> tuple[int, int] | None:
    """Return busy (stolen by the hypervisor included) and all jiffies, from the first line of proc_stat(5)."""
    if not stat.startswith("cpu "):
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.splitlines()[0].split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return busy, busy + idle + iowait


def _read_mhz() -> float | None:
    kilohertz = [_read_text(path) for path in SYSTEM.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    clocks = [int(value) / 1e3 for value in kilohertz if value.isdigit()] or _read_nominal_mhz()
    return round(float(np.mean(clocks)), 1) if clocks else None


def _read_nominal_mhz() -> list[float]:
    lines = _read_text(Path("/proc/cpuinfo")).splitlines()
    return [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]


def _plan_runs(threads: int, budget_s: float) -> dict[str, Callable[[], Ceiling]]:
    """Return what to measure, by name, in order."""
    cpus = os.sched_getaffinity(0)
    caches = read_caches(cpus)
    memory = partial(memory_bandwidth, threads, caches, MEMORY_PART * budget_s)
    inside = {f"l{level}_bytes_per_s": partial(cache_bandwidth, threads, size, CACHE_PART * budget_s)
              for level, size in working_sets(caches, len(cpus)).items()}
    rates = {name: partial(flops, dtype, threads, part * budget_s) for name, (dtype, part) in FLOPS.items()}
    bytes_ = {"dram_bytes_per_s": memory, **inside}
    runs = {name: partial(_measure_ceiling, name, unit, threads, run)
            for unit, measured in (("FLOP/s", rates), ("B/s", bytes_)) for name, run in measured.items()}
    return runs | {"dispatch_ns": lambda: rounds.cost(_measure_ceiling("dispatch_ns", "ns", 1, partial(calls,
                                                                                           CALL_PART * budget_s)))}


def _measure_ceiling(name: str, unit: str, threads: int, run: Callable[[], tuple[RateSeries, str]]) -> Ceiling:
    before = snapshot()
    series, how = run()
    return rounds.rate(name, unit, threads, series, how, conditions(before, snapshot()))


def _thread_settings(threads: int) -> dict[str, str]:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    # OpenBLAS's workers spin 2^26 cycles after a product by default, in the way of the next kernel.
    return dict.fromkeys(names, str(threads)) | {"OPENBLAS_THREAD_TIMEOUT": "4"}


def main() -> None:
    """Measure in this process; the arguments are threads and budget in s (see child.answer)."""
    with child.answer() as tell:
        runs = _plan_runs(int(sys.argv[1]), float(sys.argv[2]))
        tell(plan=list(runs))
        for name, run in runs.items():
            try:
                tell(ceiling=run().model_dump())
            except Absent as reason:
                tell(absent=name, why=str(reason))


if __name__ == "__main__":
    main()
