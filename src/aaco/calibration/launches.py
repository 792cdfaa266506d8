"""The host's cost of queueing a kernel: from a call of the driver to its return, without the call from Python."""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from aaco.calibration import rounds
from aaco.calibration.driver import FUNCTIONS, DriverGpu
from aaco.calibration.rounds import RateSeries

CALLS, PAIRS = 200, 5  # launches and Python's own calls in a repeat; and repeats in a burst


class LaunchMeter:
    """Launches of an empty kernel, measured in visits between other measurements.

    Other work on the host moves the cost: everywhere for tens of seconds, hence many visits, and on one core longer
    than on another, so each burst is on the next CPU. On the host of an H200, 19 processes in a row that measured for a
    second each found 2.8 to 3.8 us on the CPU they got, 2.9 to 3.6 us on all in turn.

    Launches and Python's calls alternate and each has its own best, because a CPU's clock moves both. Subtraction at
    another clock would move the difference by more (on that host from 3.5 to 2.4 us within a process), and the least of
    differences would be that of a disturbed call from Python. visit: bursts at a time, each on another CPU.
    """

    def __init__(self, gpu: DriverGpu, empty: Any, visit: int) -> None:
        self._at_once = visit
        self._wait, self._launch, self._arguments = gpu.wait, gpu.raw("launch"), empty.arguments
        self._nothing = ctypes.CDLL(None).abs  # returns at once: what it is given costs what a launch's costs
        self._nothing.argtypes, self._nothing.restype = FUNCTIONS["launch"][2], ctypes.c_int
        self._turns = itertools.cycle(sorted(os.sched_getaffinity(0)))
        self._used = set[int]()
        self._python: list[float] = []  # rate of each burst
        self._bursts: list[dict[str, list[float]]] = []

    def visit(self) -> None:
        """Measure some bursts. Raise AacoError if the device fails."""
        with _cpu_mover() as moved_to:
            for cpu in itertools.islice(self._turns, self._at_once):
                if moved_to(cpu):
                    self._used.add(cpu)
                self._burst()

    def series(self) -> tuple[RateSeries, str]:
        """Return the rates of all visits, settled if the last ones found nothing lower, and how."""
        series = rounds.of(self._bursts, self._at_once * rounds.WINDOW)
        moments = len(self._bursts) // self._at_once
        where = f"on {len(self._used)} CPUs in turn" if self._used else "on the CPU that the kernel chose"
        return rounds.less(series, 1 / max(self._python)), (
            f"a kernel that does nothing, queued {CALLS} times, {where} at {moments} moments of the "
            "calibration; the cost of Python's call is taken off")

    def _burst(self) -> None:
        calls, launches = list[float](), list[float]()
        for _ in range(PAIRS):
            calls.append(CALLS / _time_calls(self._nothing, self._arguments))
            launches.append(CALLS / _time_calls(self._launch, self._arguments))
            self._wait()
        self._python.append(rounds.sustained(calls))
        self._bursts.append({"launch": launches})


def _time_calls(call: Callable[..., int], arguments: tuple[Any, ...]) -> float:
    """Return the seconds of CALLS calls. Their results are not checked: the next wait reports a failed one."""
    start = time.perf_counter()
    for _ in itertools.repeat(None, CALLS):
        call(*arguments)
    return time.perf_counter() - start


@contextmanager
def _cpu_mover() -> Iterator[Callable[[int], bool]]:
    """Yield a call that moves this thread to one CPU and returns whether it did; at the end all CPUs are allowed again.

    A CPU may go away (unplugged, or a container's set changed), and a container may prohibit the move.
    """
    allowed = os.sched_getaffinity(0)

    def moved_to(cpu: int) -> bool:
        with suppress(OSError):
            os.sched_setaffinity(0, {cpu})
            return True
        return False

    try:
        yield moved_to
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)
