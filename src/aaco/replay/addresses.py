"""Addresses of this process, at a fixed place or not at all.

It imports nothing of AACO and no library but ctypes: it is the first thing that a replay's process runs, so that
libraries, loaded later, keep away from what it holds.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable

MAP_FIXED_NOREPLACE = 0x100000  # Linux 4.17, mman.h
FAILED = ctypes.c_void_p(-1).value
Span = tuple[int, int]  # first address, and the first after it
_held: set[Span] = set()


def take(begin: int, size: int, protection: int = 0) -> tuple[int | None, int]:
    """Map memory at an address, by default such that nothing can use it: the address, or None and errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3,
                                                              ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    address = libc.mmap(begin, size, protection, flags, -1, 0)
    if address == FAILED:
        return None, ctypes.get_errno()
    return address or 0, 0


def hold(spans: Iterable[Span]) -> None:
    """Keep everything else in this process away from these addresses, as far as they are free."""
    for begin, end in spans:
        if take(begin, end - begin) == (begin, 0):
            _held.add((begin, end))


def release() -> None:
    """Free all that is held, for the memory that is to be there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    while _held:
        begin, end = _held.pop()
        libc.munmap(begin, end - begin)
