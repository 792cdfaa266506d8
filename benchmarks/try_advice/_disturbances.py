"""What happens beside a search: other work in bursts, a machine that gets slower, a cold file, a process that dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOG = "while True: pass"
SHORT_S, LONG_S = 0.02, 1.5  # of a burst, and of the rest after it
DRIFT_S = 120.0  # from an idle machine to a busy one
TURN_S = 0.1
POLL_S = 0.02
CRASHES = "crash"  # in the name of a change whose processes die


@contextmanager
def bursts(seed: int) -> Iterator[None]:
    """Run a hog that starts and stops at random moments: some last a turn of one side, some a whole process."""
    rng = random.Random(seed)

    def pattern() -> Iterator[tuple[bool, float]]:
        while True:
            yield True, rng.uniform(SHORT_S, LONG_S)
            yield False, rng.uniform(SHORT_S, LONG_S)

    with _hog(pattern()):
        yield


@contextmanager
def drift(seed: int) -> Iterator[None]:
    """Run a hog whose share of each turn grows: what is measured later is slower; for an odd seed faster."""
    def pattern() -> Iterator[tuple[bool, float]]:
        done_s = 0.0
        while True:
            share = min(1.0, done_s / DRIFT_S)
            share = 1 - share if seed % 2 else share
            yield True, TURN_S * share
            yield False, TURN_S * (1 - share)
            done_s += TURN_S

    with _hog(pattern()):
        yield


@contextmanager
def cold(path: Path) -> Iterator[None]:
    """Drop the file from the page cache again and again, so that whoever loads it waits for the disk."""
    def drop() -> None:
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    with _repeating(drop):
        yield


class Crashes:
    """Kills with SIGSEGV the processes that are started while a change that crashes is at work.

    `step` hears what the search does. when: the words of the step from which on it dies.
    """

    def __init__(self) -> None:
        self.deadly = False

    def step(self, text: str) -> None:
        """Note whether what begins now is to crash."""
        late = "late" in text and "compute the same" in text
        self.deadly = CRASHES in text and not late

    def kill(self) -> None:
        """Kill our children that measure, if they are to crash."""
        if not self.deadly:
            return
        for pid in _children():
            with suppress(OSError):
                if b"aaco.runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGSEGV)

    @contextmanager
    def around(self) -> Iterator[Crashes]:
        """Watch during the block."""
        with _repeating(self.kill):
            yield self


def _children() -> list[int]:
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(pid) for pid in path.read_text().split()]
    return found


@contextmanager
def _repeating(act: Callable[[], float | None]) -> Iterator[None]:
    """Do this again and again in a thread; it returns the seconds until the next time, None: POLL_S."""
    over = threading.Event()

    def work() -> None:
        wait_s: float | None = 0.0
        while not over.wait(POLL_S if wait_s is None else wait_s):
            wait_s = act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _hog(pattern: Iterator[tuple[bool, float]]) -> Iterator[None]:
    """Switch a process that uses a CPU on and off: by turns of (whether it runs, s)."""
    with subprocess.Popen([sys.executable, "-c", HOG]) as hog:
        def switch() -> float:
            runs, seconds = next(pattern)
            hog.send_signal(signal.SIGCONT if runs else signal.SIGSTOP)
            return seconds

        try:
            with _repeating(switch):
                yield
        finally:
            hog.kill()
