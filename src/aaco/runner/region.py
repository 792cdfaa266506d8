"""Where the measured inferences begin and end, told to a profiler that counts between these marks alone."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from aaco.core.errors import AacoError

LIBRARY = "libcuda.so.1"
BEGIN, END = "cuProfilerStart", "cuProfilerStop"


@contextmanager
def told() -> Iterator[None]:
    """A block that the profiler watches. Raises AacoError where CUDA's driver is not there, or refuses."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise AacoError(f"no profiler can be told where inferences begin: {error}", "aaco doctor") from error
    _call(driver, BEGIN)
    yield
    _call(driver, END)


def _call(driver: ctypes.CDLL, name: str) -> None:
    code = getattr(driver, name)()
    if code:
        raise AacoError(f"{name} failed with CUDA's error {code}", "aaco doctor  # whether CUDA works here")
