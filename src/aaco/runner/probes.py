"""Known work, timed in the measured process before and after its inferences: is it the machine that became slower?

An inference that slowed down has changed itself, or something around it has. Work that is always the same tells which:
a loop in the interpreter (the processor), a copy larger than caches (the memory's bandwidth), short sleeps (timers and
scheduling), touching new pages (the kernel's memory), and reading the clock without pause, where each hole is time
that somebody else took: short ones are interrupts, long ones other tasks (as osnoise of the kernel does,
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
    """One look at the machine: each probe's time in ns, or a share of 1 for the holes in the clock."""
    return _core() | _memory() | _timer() | _holes() | _pages()


def _core() -> dict[str, float]:
    """The counting loop: its fastest turn is the clock's speed, the mean over it the share that others took."""
    times = _timed(_count, LOOPS)
    return {"core_fastest_ns": float(times.min()), "core_median_ns": float(np.median(times)),
            "core_mean_ns": float(times.mean())}


def _count() -> None:
    for _ in range(TURNS):
        pass


def _memory() -> dict[str, float]:
    source, target = np.ones(BLOCK_BYTES, np.uint8), np.ones(BLOCK_BYTES, np.uint8)
    times = _timed(lambda: np.copyto(target, source), COPIES)
    return {"copy_fastest_ns": float(times.min()), "copy_median_ns": float(np.median(times))}


def _timer() -> dict[str, float]:
    """How much later than asked short sleeps end."""
    late = _timed(lambda: time.sleep(NAP_S), NAPS) - NAP_S * 1e9
    return {"nap_late_ns": float(np.median(late)), "nap_latest_ns": float(np.quantile(late, 0.9))}


def _holes() -> dict[str, float]:
    """Holes between readings of the clock: how many short ones a ms, and the shares of time in short and long ones."""
    clock = time.monotonic_ns
    begin = last = clock()
    holes: list[int] = []
    while last - begin < SPIN_NS:
        now = clock()
        if now - last > HOLE_NS:
            holes.append(now - last)
        last = now
    found, whole = np.array(holes, np.float64), float(last - begin)
    short, long = found[found < TASK_NS], found[found >= TASK_NS]
    return {"holes_per_ms": len(short) * 1e6 / whole, "short_holes_ratio": float(short.sum()) / whole,
            "long_holes_ratio": float(long.sum()) / whole}


def _pages() -> dict[str, float]:
    """Time to touch a page that the kernel has yet to give."""
    def touch() -> None:
        with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1

    return {"page_ns": float(_timed(touch, TOUCHES).min()) / PAGES}


def _timed(work: Callable[[], object], times: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    clock, taken = time.monotonic_ns, np.empty(times)
    for turn in range(times):
        start = clock()
        work()
        taken[turn] = clock() - start
    return taken
