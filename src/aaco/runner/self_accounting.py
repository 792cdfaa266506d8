"""The measured process's accounting of itself between two inferences: no privilege, no second process.

Between inferences, outside every latency, the worker reads its threads' run-queue wait (schedstat), its switches and
faults (getrusage(2)). Readings take at most a hundredth of the time: one is made only when a hundred times its cost has
passed since the one before, so that short inferences share one. Rows are appended with one write(2) each, so that a
kill costs at most the row in flight.

It can time two canaries, too: work that is always the same, so that a slow one means that the processor or the memory
was slower than before. One counts in the interpreter (core clock, a busy sibling thread), the other gathers words from
all over a block larger than most caches. They are off except for the benchmark that measures their worth (`python -m
benchmarks.sentinel`): added to the wait they find nothing more, and instead of it they raise false alarms that
preemptions, which need no privilege either, do not.
"""

from __future__ import annotations

import os
import resource
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aaco.core.errors import BadCapture

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from aaco.core.tables import TableSpec

# t_ns, wait_ns, threads, involuntary, voluntary, minor faults, major faults: counts since the process began;
# core_ns, memory_ns: the canaries. -1 is null.
ROW = struct.Struct("<9q")
COLUMNS = ("t_ns", "run_queue_wait_ns", "threads", "switches_involuntary", "switches_voluntary", "faults_minor",
           "faults_major", "core_canary_ns", "memory_canary_ns")
READING_SHARE, CANARY_SHARE = 0.01, 0.004  # of the time
TURNS = 400  # of the counting canary, about 5 us
TRIES = 3  # of which the fastest counts: what interrupts one of them is no property of the processor
BLOCK_WORDS = 8 << 20  # 64 MiB
GATHERED, PLACES = 128, 512  # words at a time, and how many sets of places are cycled through
TASKS = "/proc/self/task"


def path_of(folder: Path, process: int) -> Path:
    """Return the raw file of the process with this index inside a session folder."""
    return folder / "runtime" / f"witness-{process:06d}.i64"


class Canary:
    """Two pieces of known work, timed."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._block = np.ones(BLOCK_WORDS, np.int64)  # written, or the pages would all be the one of zeros
        self._places = rng.integers(0, BLOCK_WORDS, (PLACES, GATHERED))
        self._into = np.empty(GATHERED, np.int64)
        self._turn = 0

    def core_ns(self) -> int:
        """Return the time of the counting canary."""
        clock, best = time.monotonic_ns, 1 << 62
        for _ in range(TRIES):
            start = clock()
            for _ in range(TURNS):
                pass
            best = min(best, clock() - start)
        return best

    def memory_ns(self) -> int:
        """Return the time of the gathering canary.

        Once: a second look at the same places would find them in the cache.
        """
        self._turn = (self._turn + 1) % PLACES
        places = self._places[self._turn]
        start = time.monotonic_ns()
        self._block.take(places, out=self._into, mode="clip")
        return time.monotonic_ns() - start


class SelfAccounting:
    """Writes the account of this process into an open file. Raises OSError if the disk refuses a row."""

    def __init__(self, descriptor: int, canaries: bool = False) -> None:
        self._descriptor, self._canary = descriptor, Canary() if canaries else None
        self._threads: list[int] = []
        self._due = self._canary_due = self._readings = 0
        self._look_for_threads()
        self._reading_ns = min(_duration_ns(lambda: self._append_reading(time.monotonic_ns(), canaries=False))
                               for _ in range(TRIES))
        # Alone: as a difference of two readings a busy machine makes it 0, and then every reading would have them.
        self._canary_ns = min(_duration_ns(self._run_canaries) for _ in range(TRIES)) if canaries else 0

    def look(self) -> None:
        """Take in new threads, and make a reading, at either end of a phase."""
        self._look_for_threads()
        self._due = 0
        self.beside(time.monotonic_ns())

    def beside(self, now: int) -> None:
        """Make a reading between two inferences if one is due at `now`, with the canaries if they are."""
        if now < self._due:
            return
        canary = now >= self._canary_due
        self._append_reading(now, canary)
        self._due = now + int(self._reading_ns / READING_SHARE)
        if canary:
            self._canary_due = now + int(self._canary_ns / CANARY_SHARE)

    def close(self) -> None:
        """Close the threads' files; the rows' file is the caller's."""
        for thread in self._threads:
            os.close(thread)
        self._threads = []

    def cost(self) -> dict[str, int | None]:
        """Return the cost of a reading, what canaries add to it (None: off), and the number of readings."""
        return {"reading_ns": self._reading_ns, "canary_ns": self._canary_ns if self._canary else None,
                "readings": self._readings}

    def _look_for_threads(self) -> None:
        self.close()
        for name in os.listdir(TASKS):  # noqa: PTH208
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended, or the kernel keeps no account
                self._threads.append(os.open(f"{TASKS}/{name}/schedstat", os.O_RDONLY))

    def _append_reading(self, now: int, canaries: bool) -> None:
        waited, threads = self._read_waits()
        used = resource.getrusage(resource.RUSAGE_SELF)
        memory, core = self._run_canaries() if canaries else (-1, -1)
        os.write(self._descriptor, ROW.pack(now, waited, threads, used.ru_nivcsw, used.ru_nvcsw, used.ru_minflt,
                                            used.ru_majflt, core, memory))
        self._readings += 1

    def _read_waits(self) -> tuple[int, int]:
        """Return the run-queue wait of the threads in ns, and their number; -1 if the kernel keeps no account."""
        total = ran = 0
        for thread in tuple(self._threads):
            try:
                fields = os.pread(thread, 64, 0).split()
            except ProcessLookupError:  # it ended, and its account with it
                self._threads.remove(thread)
                os.close(thread)
                continue
            ran += int(fields[0])
            total += int(fields[1])
        return (total if ran else -1), len(self._threads)

    def _run_canaries(self) -> tuple[int, int]:
        return (self._canary.memory_ns(), self._canary.core_ns()) if self._canary else (-1, -1)


def _duration_ns(call: Callable[[], object]) -> int:
    start = time.monotonic_ns()
    call()
    return time.monotonic_ns() - start


def parse(folder: Path) -> pa.Table:
    """Return every process's account in a session folder as the account table, without a torn last row.

    Amounts are of the interval between a reading and the one before it, null if the threads were not the same. Raise
    BadCapture on times that run backwards.
    """
    import pyarrow as pa  # here, because the measured process imports this module and must stay light

    from aaco.core.tables import ACCOUNT

    paths = sorted(folder.glob("runtime/witness-*.i64"))
    return pa.concat_tables([_parse_process(process, path, ACCOUNT) for process, path in enumerate(paths)]
                            or [ACCOUNT.build()])


def _parse_process(process: int, path: Path, table: TableSpec) -> pa.Table:
    import pyarrow as pa

    raw = path.read_bytes()
    rows = np.frombuffer(raw[: len(raw) // ROW.size * ROW.size], "<i8").reshape(-1, len(COLUMNS))
    times, threads = rows[:, 0], rows[:, 2]
    if (np.diff(times) < 0).any():
        raise BadCapture(f"{path}: its times run backwards",
                         "the file was damaged after the run; aaco info SESSION checks the hashes")
    first = np.arange(len(rows)) == 0
    changed = first | (np.diff(threads, prepend=threads[:1]) != 0) | (rows[:, 1] < 0)
    columns = {"threads": threads, "dur_ns": pa.array(np.diff(times, prepend=times[:1]), mask=first)}
    for number, name in enumerate(COLUMNS[:7]):
        if name not in ("t_ns", "threads"):
            grown = np.diff(rows[:, number], prepend=rows[:1, number])
            columns[name] = pa.array(grown, mask=changed if name == "run_queue_wait_ns" else first)
    for number, name in enumerate(COLUMNS[7:], 7):
        columns[name] = pa.array(rows[:, number], mask=rows[:, number] < 0)
    return table.build(process=np.full(len(rows), process), t_ns=times, **columns)
