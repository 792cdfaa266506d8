"""Memory of this process: returned to the system when freed, so that the peak does not grow with the input."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

# mallopt(3), of glibc: more freed memory than this at the heap's end goes back; larger blocks are mapped alone.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
KEPT = 32 << 20
PLENTY = 256 << 20  # resident memory below which nothing is trimmed: what goes back must be faulted in anew
GROWTH = 32 << 20  # above it, so much more than after the last trim is worth another
_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Heap:
    """The C library's heap in a frugal process: how to trim it, and what was resident after that."""

    trim: Callable[[int], int] | None = None
    resident = 0


def frugal() -> None:
    """From now on freed memory returns to the system, and Arrow takes its own from where everything else does.

    Allocators keep what is freed for later, each thread for itself; over a stream of large arrays that doubles the
    peak. For a program of its own, not for a library: it holds for the whole process. Without glibc only Arrow changes.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    libc = ctypes.CDLL(None)
    mallopt, trim = getattr(libc, "mallopt", None), getattr(libc, "malloc_trim", None)
    if mallopt is not None and trim is not None:
        for parameter, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, KEPT), (_MMAP_THRESHOLD, KEPT)):
            mallopt(parameter, value)
        _Heap.trim = trim


def give_back(plenty: int | None = None) -> None:
    """Return what is free between blocks that are still used, once there may be much of it; for a frugal process only.

    A long stream of arrays of many sizes leaves such holes, and without this they grow with the stream's length. To be
    called before what needs much memory for a moment. plenty: in place of PLENTY, bytes.
    """
    least = PLENTY if plenty is None else plenty
    if _Heap.trim is not None and _resident() > max(least, _Heap.resident + GROWTH):
        _Heap.trim(0)
        _Heap.resident = _resident()


def _resident() -> int:
    """Return this process's resident memory, bytes; 0 if the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return 0
