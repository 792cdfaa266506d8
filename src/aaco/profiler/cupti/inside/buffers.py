"""Buffers for CUPTI's records, which circulate between CUPTI and the tracer without executing Python.

CUPTI requests a buffer while a launch waits, and returns one while it holds a lock of its own: a callback that waited
for Python's lock could wait forever (native/cupti/callbacks.c, from which the libraries in this folder are built).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .library import CuptiError

FOLDER = Path(__file__).parent
FIX = "install aaco again, onto a file system that programs may be run from; NVIDIA's CUPTI is of x86_64 and aarch64"
# The first buffers, and those that circulate, have their pages when the trace begins. A launch on the host of an H200
# took 80 ns longer if CUPTI was the first to touch them.
READY = 2


class Buffers:
    """The buffers of this process."""

    def __init__(self) -> None:
        """Load the callbacks. Raise CuptiError."""
        try:
            self._native: Any = ctypes.CDLL(str(FOLDER / f"callbacks-{os.uname().machine}.so"))
        except OSError as error:
            raise CuptiError(f"the tracer's callbacks do not load: {error}", FIX) from None
        self._native.aaco_take.restype = ctypes.c_void_p
        self._native.aaco_give.argtypes = [ctypes.c_void_p]
        self.bytes = ctypes.c_size_t.in_dll(self._native, "aaco_buffer_bytes").value

    @property
    def callbacks(self) -> tuple[Any, Any]:
        """Return CUPTI's callbacks to request a buffer, and to return one."""
        return self._native.aaco_requested, self._native.aaco_completed

    @property
    def held(self) -> int:
        """Return the number of buffers that CUPTI has, or that it returned and nothing took."""
        return ctypes.c_uint32.in_dll(self._native, "aaco_held").value

    def prepare(self) -> None:
        """Make the first buffers ready."""
        self._native.aaco_prepare(ctypes.c_uint32(READY))

    def full(self) -> Iterator[tuple[Any, int]]:
        """Yield each returned buffer, in order, and the bytes of its records; the next step recycles it."""
        valid = ctypes.c_size_t()
        while address := self._native.aaco_take(ctypes.byref(valid)):
            yield (ctypes.c_ubyte * self.bytes).from_address(address), valid.value
            ctypes.memset(address, 0, self.bytes)
            self._native.aaco_give(address)
