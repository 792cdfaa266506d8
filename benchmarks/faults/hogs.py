"""Programs that take something away from the measured process: python -m benchmarks.faults.hogs KIND CPU AMOUNT PARENT.

Each runs on one CPU until its parent is gone, and says "ready" once it works.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

import numpy as np

PERIOD_S = 0.02
BLOCK = 64 << 20
TIMERS, LEAD_NS = 800, 1_000_000
CLOCK_MONOTONIC = 1


class TimerSpec(ctypes.Structure):
    """struct itimerspec of timerfd_settime(2)."""

    _fields_ = (("interval_s", ctypes.c_long), ("interval_ns", ctypes.c_long), ("first_s", ctypes.c_long),
                ("first_ns", ctypes.c_long))


def busy(duty: float) -> Callable[[], None]:
    """Takes a share of the CPU's time, in turns of PERIOD_S."""
    def turn() -> None:
        end = time.perf_counter() + duty * PERIOD_S
        while time.perf_counter() < end:
            pass
        if duty < 1:
            time.sleep((1 - duty) * PERIOD_S)

    return turn


def copying(duty: float) -> Callable[[], None]:
    """Copies blocks larger than caches, so that the memory's bandwidth is shared."""
    source, target = np.ones(BLOCK, np.uint8), np.ones(BLOCK, np.uint8)

    def turn() -> None:
        start = time.perf_counter()
        np.copyto(target, source)
        if duty < 1:
            time.sleep((1 - duty) / duty * (time.perf_counter() - start))

    return turn


def timers(spacing_us: float) -> Callable[[], None]:
    """Keeps many one-shot timers running out on this CPU, one each `spacing_us`: interrupts, and little else."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptors = [libc.timerfd_create(CLOCK_MONOTONIC, 0) for _ in range(TIMERS)]
    if min(descriptors) < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    specs = [TimerSpec(0, 0, 0, LEAD_NS + int(number * spacing_us * 1000)) for number in range(TIMERS)]
    calls = [(descriptor, 0, ctypes.byref(spec), None) for descriptor, spec in zip(descriptors, specs, strict=True)]
    settime, rest_s = libc.timerfd_settime, (TIMERS * spacing_us * 1000) / 1e9

    def turn() -> None:
        for call in calls:
            settime(*call)
        time.sleep(rest_s)

    return turn


KINDS = {"busy": busy, "copying": copying, "timers": timers}


def main() -> None:
    """Work until the parent is gone."""
    kind, cpu, amount, parent = sys.argv[1:]
    os.sched_setaffinity(0, {int(cpu)})
    turn = KINDS[kind](float(amount))
    turn()
    print("ready", flush=True)
    while os.getppid() == int(parent):
        turn()


if __name__ == "__main__":
    main()
