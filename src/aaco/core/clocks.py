"""The host's clocks and the offsets between them, so that events from different clocks can be aligned."""

from __future__ import annotations

import time

from msgspec import Struct


class ClockOffsets(Struct, frozen=True):
    """At CLOCK_MONOTONIC `monotonic_ns`, what the other clocks read. All in ns.

    `uncertainty_ns` is the width of the monotonic bracket around the other readings.
    """

    monotonic_ns: int
    boottime_ns: int
    realtime_ns: int
    uncertainty_ns: int

    def from_realtime(self, realtime_ns: int) -> int:
        """A CLOCK_REALTIME instant on CLOCK_MONOTONIC, assuming no step since the snapshot."""
        return realtime_ns - self.realtime_ns + self.monotonic_ns

    def ahead_ns(self, clock: str | None) -> int | None:
        """How far the clock ("monotonic", "boottime", "realtime") is ahead of CLOCK_MONOTONIC; None for any other."""
        reads = {"monotonic": self.monotonic_ns, "boottime": self.boottime_ns, "realtime": self.realtime_ns}
        return reads[clock] - self.monotonic_ns if clock in reads else None


def snapshot(tries: int = 9) -> ClockOffsets:
    """Read the three clocks together, keeping the tightest of `tries` brackets."""
    return min((_bracket() for _ in range(tries)), key=lambda offsets: offsets.uncertainty_ns)


def _bracket() -> ClockOffsets:
    before = time.monotonic_ns()
    boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    realtime = time.time_ns()
    after = time.monotonic_ns()
    return ClockOffsets((before + after) // 2, boottime, realtime, after - before)
