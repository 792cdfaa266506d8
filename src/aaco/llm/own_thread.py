"""The client's own thread: how long it waited for a CPU, and how soon the kernel wakes it.

A thread that is woken in time may still wait while others run on its CPU. The kernel counts that time for each
thread (Documentation/scheduler/sched-stats.rst), so that a late dispatch is the machine's or the client's.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aaco.core.errors import Missing

PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 29, 30  # prctl(2)
ACCOUNT = "/proc/thread-self/schedstat"
MOST_TEXT = 96  # bytes: three numbers
UNKNOWN = -1


class CpuWaits:
    """How long this thread was ready to run and did not run."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open(ACCOUNT, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = UNKNOWN

    def total_ns(self) -> int:
        """Return the time since the thread began, ns; UNKNOWN where the kernel keeps no account."""
        if self._descriptor == UNKNOWN:
            return UNKNOWN
        ran, waited, _ = os.pread(self._descriptor, MOST_TEXT, 0).split()
        return int(waited) if int(ran) else UNKNOWN

    def close(self) -> None:
        """Close the account."""
        if self._descriptor != UNKNOWN:
            os.close(self._descriptor)


@contextmanager
def exact_timers() -> Iterator[None]:
    """Wake this thread when a timer ends, not up to 50 us later, inside the block."""
    prctl = ctypes.CDLL(None).prctl
    before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_TIMERSLACK, max(before, 0), 0, 0, 0)  # 0: the default


@contextmanager
def real_time(wanted: bool = True) -> Iterator[None]:
    """Run this thread before all that have no real-time priority, inside the block. Raise Missing if it may not."""
    if not wanted:
        yield
        return
    before, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        raise Missing(f"--real-time: the kernel refuses SCHED_FIFO: {error.strerror}",
                      "run it with CAP_SYS_NICE, or leave the option out") from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, priority)
