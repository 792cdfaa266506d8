"""Real time in bursts: SCHED_FIFO for the threads of a control group, for less than 0.9 s at a stretch.

A SCHED_FIFO thread that never sleeps starves its CPU until the kernel throttles it for the rest of the second
(sched_rt_runtime_us in sched(7)). A thread of this process, of higher priority and on other CPUs, checks the run time
of the group's threads 25 times a second. A group that has used its burst is fair again for PAUSE_S. A workload that
sleeps for as long by itself between bursts is never touched.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from aaco.core.host import text
from aaco.core.readings import known
from aaco.laboratory.knobs import cgroup
from aaco.laboratory.knobs.process import FAIR, FIFO, FIFO_PRIORITY, RealTime

STEP_S = 0.04
BURST_S = 0.8
PAUSE_S = 0.1


class Bursts:
    """Keeps the threads of control groups in bursts of real time for the length of the block."""

    def __init__(self, groups: Sequence[Path], cpus: Sequence[int]) -> None:
        self.groups, self.cpus = groups, cpus
        self.credit_s = BURST_S
        self.paused = False
        self.pauses = 0
        self._ran: dict[str, int] = {}
        self._policy = RealTime()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bursts:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the thread is to get none
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        cgroup.make_fair(self.groups)

    def _run(self) -> None:
        with suppress(OSError):  # without the right to it, nothing below has an effect either
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY + 10))
            os.sched_setaffinity(0, os.sched_getaffinity(0) - set(self.cpus) or os.sched_getaffinity(0))
        last = time.monotonic()
        while not self._over.wait(STEP_S):
            now = time.monotonic()
            self.step(now - last)
            last = now

    def step(self, elapsed_s: float) -> None:
        """Account for the time since the last step, and set the policy of the threads until the next."""
        threads = cgroup.threads(self.groups)
        ran_s = min(elapsed_s, self._most_run_s(threads))
        if self.paused:
            ran_s = 0.0  # fair time starves nobody
        self.credit_s = min(BURST_S, self.credit_s - ran_s + (elapsed_s - ran_s) * BURST_S / PAUSE_S)
        rested = self.credit_s == BURST_S if self.paused else self.credit_s > STEP_S
        self.pauses += not rested and not self.paused
        self.paused = not rested
        self._set_policy(threads, FIFO if rested else FAIR)

    def _most_run_s(self, threads: list[str]) -> float:
        """Return the run time of the busiest thread since the last step, s; one thread at a time starves a CPU."""
        now = {thread: int((known(text, Path(f"/proc/{thread}/schedstat")) or "0").split()[0]) for thread in threads}
        most = max((ran - self._ran[thread] for thread, ran in now.items() if thread in self._ran), default=0)
        self._ran = now
        return max(0, most) / 1e9

    def _set_policy(self, threads: list[str], policy: str) -> None:
        for thread in threads:
            known(self._policy.write, thread, policy)
