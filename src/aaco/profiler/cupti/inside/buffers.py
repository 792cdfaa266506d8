"""Buffers for CUPTI's records, which go round between CUPTI and the tracer without a word of Python.

CUPTI asks for a buffer while a launch waits, and hands one back with a lock of its own held: a callback that waited for
Python's lock could wait for ever (native/cupti/callbacks.c, from which the libraries beside this file are built).
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
# Of the first buffers the pages are there when the trace begins, and of those that go round. A launch on the host of an
# H200 took 80 ns longer where CUPTI was the first to touch them.
READY = 2


class Buffers:
    """The buffers of this process."""

    def __init__(self) -> None:
        """Load the callbacks. Raises CuptiError."""
        try:
            self._native: Any = ctypes.CDLL(str(FOLDER / f"callbacks-{os.uname().machine}.so"))
        except OSError as error:
            raise CuptiError(f"the tracer's callbacks do not load: {error}", FIX) from None
        self._native.aaco_take.restype = ctypes.c_void_p
        self._native.aaco_give.argtypes = [ctypes.c_void_p]
        self.bytes = ctypes.c_size_t.in_dll(self._native, "aaco_buffer_bytes").value

    @property
    def callbacks(self) -> tuple[Any, Any]:
        """What CUPTI calls for a buffer, and with one."""
        return self._native.aaco_requested, self._native.aaco_completed

    @property
    def held(self) -> int:
        """How many CUPTI has, or gave back and nobody took."""
        return ctypes.c_uint32.in_dll(self._native, "aaco_held").value

    def prepare(self) -> None:
        """Have the first ones ready."""
        self._native.aaco_prepare(ctypes.c_uint32(READY))

    def full(self) -> Iterator[tuple[Any, int]]:
        """Each that came back, in order, and how many bytes of it are records; the next one sends it round again."""
        valid = ctypes.c_size_t()
        while address := self._native.aaco_take(ctypes.byref(valid)):
            yield (ctypes.c_ubyte * self.bytes).from_address(address), valid.value
            ctypes.memset(address, 0, self.bytes)
            self._native.aaco_give(address)
