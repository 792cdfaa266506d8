"""Nothing stands out: several limits share the time."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck import calibration
from aaco.analytics.rules import roof
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule


@rule(label="balanced", source="docs/concepts/diagnosis.md", advice=(
    "no single change gains much: take the largest shares of the budget in turn",))
def balanced(device_limited_pct: Reading, compute_limited_pct: Reading, memory_limited_pct: Reading,
             memory_latency_limited_pct: Reading, transfer_limited_pct: Reading, unplaced_kernel_pct: Reading,
             host_limited_pct: Reading, dispatch_overhead_pct: Reading, node_compute_pct: Reading, node_memory_pct:
             Reading, runtime_overhead_pct: Reading, thread_wait_pct: Reading, node_unplaced_pct: Reading,
             unexplained_pct: Reading, contended_pct: Reading, quota_pct: Reading) -> Iterator[Evidence]:
    """The device is at work, what limits its kernels is known, and no limit takes the majority of the time."""
    if node_compute_pct.value is not None:
        yield from _of_cpu_run((node_compute_pct, node_memory_pct, runtime_overhead_pct, thread_wait_pct),
                               (node_unplaced_pct, unexplained_pct), contended_pct, quota_pct)
        return
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        return  # a run profiled by its nodes: it has no trace of the device
    device = 0.0 if device_limited_pct.value is None else device_limited_pct.value
    fitted = calibration.FITTED
    most = fitted.majority_pct / 100 * device
    yield device_limited_pct.above(fitted.device_pct, "the device itself is at work", 0.3, essential=True)
    for reading, name in ((compute_limited_pct, "arithmetic"), (memory_limited_pct, "memory bandwidth"),
                          (memory_latency_limited_pct, "memory latency")):
        yield reading.below(most, f"{name} limits no majority", 0.15, essential=True)
    yield transfer_limited_pct.below(30, "transfers take no great share", 0.1, essential=True)
    yield unplaced_kernel_pct.below(20, "what limits the kernels is known", 0.15, essential=True)


def _of_cpu_run(limits: tuple[Reading, ...], unknown: tuple[Reading, ...], contended_pct: Reading, quota_pct: Reading
                ) -> Iterator[Evidence]:
    """Yield no part of a CPU run's own time leads by enough, and most of it is known."""
    own = 100 - (contended_pct.value or 0.0)
    first, second = sorted(limits, key=lambda reading: -(reading.value or 0.0))[:2]
    leading = max(roof.LEAST_PCT / 100 * own, (second.value or 0.0) + roof.MARGIN_PCT / 100 * own)
    yield first.below(round(leading, 1), "no part of the run's own time leads by a margin", 0.4, essential=True)
    for reading in unknown:
        yield reading.below(round(0.2 * own, 1), "what the time went to is known", 0.2, essential=True)
    yield contended_pct.below(roof.NOTHING_LEFT_PCT, "others leave enough to judge the run by", 0.1, essential=True)
    if quota_pct.value is not None:
        yield quota_pct.below(roof.QUOTA_PCT, "no quota takes most of the time", 0.1, essential=True)
