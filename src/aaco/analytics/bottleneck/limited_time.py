"""Sum up what classified and traced kernels say by themselves: time by limit, waits by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aaco.analytics.bottleneck.kernel_evidence import KernelEvidence, LimitedTime, TracedWaves
from aaco.analytics.instructions.inside import KernelInstructions
from aaco.tracelake.document_schemas.answers import ClassifiedKernel

COUNTERS = "counters"


def kernel_evidence(classes: Sequence[ClassifiedKernel], kernel_ns: int, traced: Sequence[KernelInstructions],
                    without_time: int = 0) -> KernelEvidence | None:
    """Return what classified and traced kernels say; None without any. kernel_ns: of all kernels."""
    if not classes and not traced and not without_time:
        return None
    counted: dict[str, int] = defaultdict(int)
    by_limit: dict[str, list[ClassifiedKernel]] = defaultdict(list)
    for kernel in classes:
        by_limit[kernel.label].append(kernel)
        if kernel.by == COUNTERS and kernel.part:
            counted[kernel.part] += kernel.total_ns
    limits = sorted((_limited(limit, kernels) for limit, kernels in by_limit.items()),
                    key=lambda limited: (-limited.ns, limited.limit))
    return KernelEvidence(len(classes), kernel_ns, dict(counted), tuple(limits), _waves(traced), without_time)


_SHARE = {"compute_throughput": "compute_share", "memory_bandwidth": "memory_share", "lds": "lds_share"}


def _limited(limit: str, kernels: Sequence[ClassifiedKernel]) -> LimitedTime:
    shares = [(share, kernel.total_ns) for kernel in kernels
              if (share := getattr(kernel, _SHARE.get(limit, ""), None)) is not None]
    time = sum(ns for _, ns in shares)
    rates = {kernel.rate for kernel in kernels}
    rate = next(iter(rates)) if limit == "compute_throughput" and len(rates) == 1 else None
    return LimitedTime(limit, len(kernels), sum(kernel.total_ns for kernel in kernels),
                       sum(share * ns for share, ns in shares) / time if time else None, time, rate)


def _waves(traced: Sequence[KernelInstructions]) -> TracedWaves | None:
    """Return the sum over the kernels; waits are those for loads, of samples the reasons why nothing issued."""
    if not traced:
        return None
    timed = [kernel for kernel in traced if kernel.whole.cycles and kernel.whole.stall_cycles is not None]
    waits: dict[str, int] = defaultdict(int)
    for kernel in timed:
        for loads in kernel.loads:
            waits[loads.category] += loads.stall_cycles or 0
    if not timed:
        for kernel in traced:
            for reason, samples in kernel.stall_reasons.items():
                waits[reason] += samples
    stalled = sum(kernel.whole.stall_cycles or 0 for kernel in timed) if timed else None
    return TracedWaves(len({kernel.kernel for kernel in traced}), sum(kernel.whole.cycles or 0 for kernel in timed),
                       stalled, sum(kernel.whole.samples for kernel in traced),
                       dict(sorted(waits.items(), key=lambda item: (-item[1], item[0]))))
