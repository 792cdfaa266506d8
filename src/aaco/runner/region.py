"""Marks the measured inferences for a profiler that counts only between these marks."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from aaco.core.errors import AacoError

LIBRARY = "libcuda.so.1"
BEGIN, END = "cuProfilerStart", "cuProfilerStop"


@contextmanager
def profiled() -> Iterator[None]:
    """Let the profiler watch the block. Raise AacoError if CUDA's driver is missing, or refuses."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise AacoError(f"profilers cannot be marked where inferences begin: {error}", "aaco doctor") from error
    _call(driver, BEGIN)
    yield
    _call(driver, END)


def _call(driver: ctypes.CDLL, name: str) -> None:
    code = getattr(driver, name)()
    if code:
        raise AacoError(f"{name} failed with CUDA's error {code}", "aaco doctor  # whether CUDA works here")
