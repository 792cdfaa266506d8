"""Reads the ring of a BPF feature in bulk: records of one size, moved to a file unchanged.

The ring is the kernel's BPF_MAP_TYPE_RINGBUF (Documentation/bpf/ringbuf.rst): two counters and the data, mapped twice
in a row so that no record is ever cut. A producer reserves room in order, marks it busy, and clears the mark when it is
filled; so reading stops at the first record that is busy.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from aaco.collectors.host.bpf import Feature, refusal
from aaco.collectors.recording import append
from aaco.core import files
from aaco.core.closing import Closing
from aaco.core.errors import StorageError

PERIOD_S, EXTRA_PERIOD_S = 0.05, 1.0
CROWDED = 0.25  # a ring fuller than this is read again at once
BUSY = np.uint32(1 << 31)
# The ring's own header of 8 bytes, then struct record of native/bpf/record.h.
RECORD = np.dtype([
    ("length", "<u4"), ("page", "<u4"), ("t_ns", "<i8"), ("dur_ns", "<i8"), ("wait_ns", "<i8"), ("process", "<u4"),
    ("thread", "<u4"), ("other", "<u4"), ("lost", "<u4"), ("value", "<u4"), ("cpu", "<u2"), ("kind", "u1"),
    ("reason", "u1"), ("name", "S16")])
HEADER_BYTES = 8


class BpfRing(Closing):
    """The reading end of a feature's ring of `size` bytes (a power of two); its records are all of type `record`.

    Raises Missing if it cannot be mapped.
    """

    def __init__(self, feature: Feature, size: int, record: np.dtype[np.void] = RECORD) -> None:
        self.size, self.record = size, record
        self.consumed = 0  # records read
        page, ring = mmap.PAGESIZE, feature.maps["ring"]
        try:
            self._own = mmap.mmap(ring, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
            self._kernels = mmap.mmap(ring, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        except OSError as error:
            raise refusal(f"ring of BPF feature {feature.name}", error) from error
        self._read_to = np.frombuffer(self._own, np.uint64, 1)
        self._written_to = np.frombuffer(self._kernels, np.uint64, 1)
        self._data = np.frombuffer(self._kernels, np.uint8, offset=page)

    def drain(self, file: IO[bytes]) -> float:
        """Move finished records to the file, and return how full the ring was (0 to 1). Raise OSError.

        The kernel gets the space back only once the records are in the file.
        """
        begin, end = int(self._read_to[0]), int(self._written_to[0])
        place = begin & (self.size - 1)
        waiting = self._data[place:place + end - begin].view(self.record)
        busy = np.flatnonzero(waiting["length"] & BUSY)
        finished = waiting[:busy[0]] if len(busy) else waiting
        if len(finished):
            append(file, finished.view(np.uint8).data)
            self._read_to[0] = begin + finished.nbytes
            self.consumed += len(finished)
        return (end - begin) / self.size

    def close(self) -> None:
        """Unmap the ring."""
        del self._read_to, self._written_to, self._data
        self._own.close()
        self._kernels.close()


class Pump:
    """A thread that moves rings to a file until `stop`, and every second adds what `extra` returns.

    After `stop`: cpu_s, the thread's CPU time; failure, the disk's refusal.
    """

    def __init__(self, rings: Sequence[BpfRing], file: IO[bytes], period_s: float, extra: Callable[[], bytes]) -> None:
        self.cpu_s = 0.0
        self.failure: StorageError | None = None
        self._rings, self._file, self._period_s, self._extra = rings, file, period_s, extra
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aaco-bpf", daemon=True)

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Move what is left, and end."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with files.storage(Path(self._file.name)):
                self._keep_moving()
        except StorageError as error:
            self.failure = error
        self.cpu_s = time.thread_time()

    def _keep_moving(self) -> None:
        due = time.monotonic() + EXTRA_PERIOD_S
        while not self._stopped.wait(self._period_s):
            self._move()
            if time.monotonic() > due:
                append(self._file, self._extra())
                due = time.monotonic() + EXTRA_PERIOD_S
        self._move()
        append(self._file, self._extra())

    def _move(self) -> None:
        while max([ring.drain(self._file) for ring in self._rings]) > CROWDED:
            pass
