"""Times at which the kernel received data (Documentation/networking/timestamping.rst), put on CLOCK_MONOTONIC.

The kernel stamps on CLOCK_REALTIME. Both clocks run at one rate, so that their difference changes only when someone
sets the wall clock: stamps between two looks with different differences are not used.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core import clocks

SO_TIMESTAMPING = 37  # include/uapi/asm-generic/socket.h; both the option and the type of the message
RX_SOFTWARE, SOFTWARE = 1 << 3, 1 << 4  # include/uapi/linux/net_tstamp.h
STAMP = struct.Struct("qq")  # the first of three struct timespec
_unpack = STAMP.unpack_from
ROOM = socket.CMSG_SPACE(3 * STAMP.size)
NS = 1_000_000_000
MOST_APART_NS = 1_000  # of two differences of the clocks, beyond the widths of their brackets
now = time.monotonic_ns  # CLOCK_MONOTONIC, ns


def ask(connection: socket.socket) -> bool:
    """Ask the kernel to stamp what it receives on a socket; return False where it does not know how."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE)
    except OSError:
        return False
    return True


def stamp_of(messages: Iterable[tuple[int, int, bytes]]) -> int:
    """Return the software stamp among the messages of recvmsg(2), CLOCK_REALTIME ns; 0 where there is none."""
    for _, kind, content in messages:
        if kind == SO_TIMESTAMPING:
            seconds, nanoseconds = _unpack(content)
            return seconds * NS + nanoseconds
    return 0


def look() -> tuple[int, int, int]:
    """Return CLOCK_REALTIME, CLOCK_MONOTONIC and the width of the bracket around them, ns."""
    offsets = clocks.snapshot()
    return offsets.realtime_ns, offsets.monotonic_ns, offsets.uncertainty_ns


class ClockLooks(Struct, frozen=True):
    """The looks at both clocks, in order: when, CLOCK_MONOTONIC minus CLOCK_REALTIME, and how wide each bracket was."""

    at: NDArray[np.int64]
    difference: NDArray[np.int64]
    width: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """Return how often the wall clock was set between two looks."""
        return int(self._stepped.sum())

    @property
    def _stepped(self) -> NDArray[np.bool_]:
        apart = np.abs(np.diff(self.difference))
        return np.asarray(apart > self.width[:-1] + self.width[1:] + MOST_APART_NS)

    def monotonic(self, kernel_ns: NDArray[np.int64], user_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stamps on CLOCK_MONOTONIC; 0 where there is none, or the wall clock was set around it.

        user_ns: when each was read; the look before that gives the difference. A stamp later than its read is of a
        clock that was set after the last look.
        """
        if not len(self.at):
            return np.zeros(len(user_ns), np.int64)
        before = np.maximum(np.searchsorted(self.at, user_ns, side="right") - 1, 0)
        mapped = kernel_ns + self.difference[before]
        stepped = np.append(self._stepped, False)[before]
        unusable = (kernel_ns == 0) | stepped | (mapped > user_ns + self.width[before] + MOST_APART_NS)
        return np.where(unusable, 0, np.minimum(mapped, user_ns))
