"""What the kernels of a capture say by themselves, where it holds counters or instruction traces and no program's time.

Kernel time is split by the limits of kernels; only kernels with deciding counters count for a class of the session.
Waits come from traced waves: cycles stalled for loads of one kind, of all cycles that the waves spent.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from aaco.core import documents
from aaco.tracelake import layout


class LimitedTime(Struct, frozen=True):
    """Kernel time with one limit. roof_share: of the roof that limits it, weighted by time over roof_ns of it; rate:
    the unit and type of that roof, if it is one of arithmetic and the same for all.
    """

    limit: str
    kernels: int
    ns: int
    roof_share: float | None
    roof_ns: int
    rate: str | None


class TracedWaves(Struct, frozen=True):
    """Waves that were traced, or samples of the program counter (cycles 0 then). waits: cycles stalled, or samples not
    issuing, by what they wait for.
    """

    kernels: int
    cycles: int
    stalled_cycles: int | None
    samples: int
    waits: Mapping[str, int] = field(default_factory=dict)


@documents.document(layout.finding("kernel_evidence"), version=1)
class KernelEvidence(Struct, frozen=True):
    """kernel_evidence.json. counted_ns: kernel time by part of the budget, of kernels with deciding counters.
    without_time: kernels that have counters and no time.
    """

    kernels: int
    kernel_ns: int
    counted_ns: Mapping[str, int]
    limits: tuple[LimitedTime, ...]
    waves: TracedWaves | None
    without_time: int = 0

    def counted_pct(self, part: str) -> float:
        """Return the share of the kernel time that counters place in this part, 0..100."""
        return 100 * self.counted_ns.get(part, 0) / self.kernel_ns if self.kernel_ns else 0.0
