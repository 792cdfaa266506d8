"""Arithmetic limits the kernels while they run."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck import calibration
from aaco.analytics.rules import roof
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule


@rule(label="compute_bound", source=roof.SOURCE, advice=(
    "lower the precision: fp16 or bf16 instead of fp32, fp8 or int8 where the accuracy allows it",
    "replace the slowest nodes or operators: the report lists them",
    "on the CPU compare thread counts: intra_op_threads in configs/backends.yaml"))
def compute_bound(compute_limited_pct: Reading, device_limited_pct: Reading, host_limited_pct: Reading,
                  device_throttled_pct: Reading, compute_side_pct: Reading, hardware_envelope_utilization: Reading,
                  dispatch_overhead_pct: Reading, roofline_coverage_pct: Reading) -> Iterator[Evidence]:
    """Most time goes to kernels limited by arithmetic, and nothing but them fills it."""
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        yield from roof.of_nodes(compute_side_pct, "most kernel time does enough arithmetic per byte",
                                 hardware_envelope_utilization, dispatch_overhead_pct, roofline_coverage_pct)
        return
    yield from roof.of_device(compute_limited_pct, "most of that time is in kernels on the compute side",
                              device_limited_pct, host_limited_pct, calibration.FITTED, device_throttled_pct)
