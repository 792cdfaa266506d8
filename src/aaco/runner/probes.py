"""Known work, timed in the measured process before and after its inferences: did the machine become slower?

An inference slows down by itself, or by something around it. Work that is always the same distinguishes the two: a loop
in the interpreter (the processor), a copy larger than caches (the memory's bandwidth), short sleeps (timers and
scheduling), touching new pages (the kernel's memory), and reading the clock without pause. Each hole between clock
readings is time taken by others: short ones are interrupts, long ones other tasks (as osnoise of the kernel does,
Documentation/trace/osnoise-tracer.rst). About a tenth of a second in all, outside every latency.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable

import numpy as np

TURNS, LOOPS = 4000, 60  # of the counting loop: about 0.1 ms each
BLOCK_BYTES, COPIES = 48 << 20, 5  # a copy reads as much and writes as much
NAP_S, NAPS = 200e-6, 25
SPIN_NS = 15_000_000
HOLE_NS, TASK_NS = 1_500, 60_000  # a pause in reading the clock is a hole; one longer is another task's turn
PAGES, TOUCHES = 1024, 4


def look() -> dict[str, float]:
    """Return each probe's time in ns, or a share of 1 for the holes in the clock."""
    return _probe_core() | _probe_memory() | _probe_timer() | _probe_holes() | _probe_pages()


def _probe_core() -> dict[str, float]:
    """Return the times of the counting loop: its fastest turn is the clock's speed, the mean over it the share that
    others took.
    """
    times = _time_turns(_count, LOOPS)
    return {"core_fastest_ns": float(times.min()), "core_median_ns": float(np.median(times)),
            "core_mean_ns": float(times.mean())}


def _count() -> None:
    for _ in range(TURNS):
        pass


def _probe_memory() -> dict[str, float]:
    source, target = np.ones(BLOCK_BYTES, np.uint8), np.ones(BLOCK_BYTES, np.uint8)
    times = _time_turns(lambda: np.copyto(target, source), COPIES)
    return {"copy_fastest_ns": float(times.min()), "copy_median_ns": float(np.median(times))}


def _probe_timer() -> dict[str, float]:
    """Return how much later than requested short sleeps end."""
    late = _time_turns(lambda: time.sleep(NAP_S), NAPS) - NAP_S * 1e9
    return {"nap_late_ns": float(np.median(late)), "nap_latest_ns": float(np.quantile(late, 0.9))}


def _probe_holes() -> dict[str, float]:
    """Return the holes between readings of the clock: short ones per ms, and the shares of time in short and long ones.
    """
    clock = time.monotonic_ns
    begin = last = clock()
    holes: list[int] = []
    while last - begin < SPIN_NS:
        now = clock()
        if now - last > HOLE_NS:
            holes.append(now - last)
        last = now
    durations, whole = np.array(holes, np.float64), float(last - begin)
    short, long = durations[durations < TASK_NS], durations[durations >= TASK_NS]
    return {"holes_per_ms": len(short) * 1e6 / whole, "short_holes_ratio": float(short.sum()) / whole,
            "long_holes_ratio": float(long.sum()) / whole}


def _probe_pages() -> dict[str, float]:
    """Return the time to touch a page that the kernel has not allocated yet."""
    def touch() -> None:
        with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1

    return {"page_ns": float(_time_turns(touch, TOUCHES).min()) / PAGES}


def _time_turns(work: Callable[[], object], times: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    clock, taken = time.monotonic_ns, np.empty(times)
    for turn in range(times):
        start = clock()
        work()
        taken[turn] = clock() - start
    return taken
