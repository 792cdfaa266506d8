"""The surroundings of a measured process: the words before its command line, and its pauses.

The caller that combines a run with a laboratory sets them; the runner does not import laboratories.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct


class Surroundings(Struct, frozen=True):
    """launcher: a program and its arguments; the command is appended, and the program becomes it.

    After burst_ns of inferences the measured loop sleeps for rest_ns, between two inferences; 0: it never does.
    """

    launcher: tuple[str, ...] = ()
    burst_ns: int = 0
    rest_ns: int = 0


NONE = Surroundings()
_NOW: ContextVar[Surroundings] = ContextVar("surroundings", default=NONE)


def now() -> Surroundings:
    """Return those of the enclosing block."""
    return _NOW.get()


@contextmanager
def within(surroundings: Surroundings) -> Iterator[None]:
    """Start every measured process of the block in these surroundings."""
    token = _NOW.set(surroundings)
    try:
        yield
    finally:
        _NOW.reset(token)


class Rest:
    """Lets a loop sleep after each burst, so that the kernel need not preempt it."""

    def __init__(self, burst_ns: int, rest_ns: int) -> None:
        self.burst_ns, self.rest_ns = burst_ns, rest_ns
        self.woke_ns = time.monotonic_ns()

    def after(self, end_ns: int) -> None:
        """Sleep if the burst is over; an inference has ended at `end_ns` (CLOCK_MONOTONIC)."""
        if self.burst_ns and end_ns - self.woke_ns >= self.burst_ns:
            time.sleep(self.rest_ns / 1e9)
            self.woke_ns = time.monotonic_ns()
