"""What counters say of the kernels' time, of captures that hold kernels and no program's time."""

from __future__ import annotations

from aaco.analytics.bottleneck.kernel_evidence import KernelEvidence
from aaco.core.readings import Absent
from aaco.core.registry import metric

SOURCE = "docs/concepts/diagnosis.md: kernel classes, weighted by time"
FORMULA = "100 x time of kernels that counters place there / time of all kernels"
NONE_COUNTED = "no counter decides what limits a kernel"


def _pct(kernel_evidence: KernelEvidence, part: str) -> float:
    if not kernel_evidence.counted_ns:
        raise Absent(NONE_COUNTED)
    return kernel_evidence.counted_pct(part)


@metric(unit="pct", better="none", formula=FORMULA, source=SOURCE)
def counted_compute_pct(kernel_evidence: KernelEvidence) -> float:
    """Share of kernel time limited by arithmetic, by counters."""
    return _pct(kernel_evidence, "compute")


@metric(unit="pct", better="none", formula=FORMULA, source=SOURCE)
def counted_memory_pct(kernel_evidence: KernelEvidence) -> float:
    """Share of kernel time limited by memory bandwidth, by counters."""
    return _pct(kernel_evidence, "memory")


@metric(unit="pct", better="none", formula=FORMULA, source=SOURCE)
def counted_latency_pct(kernel_evidence: KernelEvidence) -> float:
    """Share of kernel time that waits for memory, by counters."""
    return _pct(kernel_evidence, "memory_latency")
