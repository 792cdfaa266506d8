"""How long the steps of a trace take without a profiler, where someone timed them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from aaco.core.readings import Absent

# Of 215 recorded programs with both times kernels took at most 1.03 times the latency, and the latency was at most 1.5
# times a traced step: a host that loads data takes other times from step to step.
MOST_BUSY, MOST_LONGER = 1.1, 3.0
TENTHS = 10  # the fewest latencies of which a tenth is one


class Unprofiled(Struct, frozen=True):
    """Latencies of the same steps without a profiler: count, median, and source. steps: in the trace, if given.
    fastest_ms: that of which a tenth of them are faster; None of fewer than TENTHS.
    """

    count: int
    median_ms: float
    source: str
    steps: int | None = None
    fastest_ms: float | None = None

    @classmethod
    def of(cls, latencies_ms: Sequence[float], source: str, steps: int | None = None) -> Unprofiled:
        """Return what is told of these latencies, ms, of which there is at least one."""
        ordered = sorted(latencies_ms)
        fastest_ms = ordered[len(ordered) // TENTHS] if len(ordered) >= TENTHS else None
        return cls(len(ordered), statistics.median(ordered), source, steps, fastest_ms)

    def refuse_others(self, steps: int, devices: int, span_ns: float, busy_ns: float) -> None:
        """Raise Absent if the latency cannot be of the steps of a trace: the device alone works longer in each, or they
        are far shorter with the profiler, which shortens no step. All are sums over devices. busy_ns: of kernels;
        copies and collectives may take longer in a trace. The host's part of the first step is not in the span.
        """
        latency_ns = 1e6 * self.median_ms
        if busy_ns > MOST_BUSY * steps * latency_ns:
            raise Absent(f"the device's work alone takes {busy_ns / steps / 1e6:.3g} ms of a traced step, and "
                         f"{self.median_ms:g} ms were given")
        if (steps - devices) * latency_ns > MOST_LONGER * span_ns:
            raise Absent(f"a traced step takes {span_ns / steps / 1e6:.3g} ms, a profiler makes none shorter, and "
                         f"{self.median_ms:g} ms were given")
