"""Arithmetic limits the kernels while they run."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck import calibration
from aaco.analytics.rules import roof
from aaco.core.advice import Step, fact_is, fact_is_not
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule


@rule(label="compute_bound", source=roof.SOURCE, advice=(
    Step("lower the precision: fp16 or bf16 instead of fp32",
         (fact_is_not("product_type", "fp16", "bf16", "fp8", "fp4", "int8", "int4"),)),
    Step("lower the precision: fp8 or int8 where the accuracy allows it",
         (fact_is("product_type", "fp16", "bf16"), fact_is("eight_bit_units", "yes"))),
    "replace the slowest nodes or operators: the report lists them",
    Step("on the CPU compare thread counts: intra_op_threads in configs/backends.yaml",
         (fact_is("vendor", "cpu"), fact_is("framework", "onnxruntime")))))
def compute_bound(compute_limited_pct: Reading, device_limited_pct: Reading, host_limited_pct: Reading,
                  device_throttled_pct: Reading, compute_side_pct: Reading, hardware_envelope_utilization: Reading,
                  dispatch_overhead_pct: Reading, roofline_coverage_pct: Reading, node_compute_pct: Reading,
                  node_memory_pct: Reading, runtime_overhead_pct: Reading, thread_wait_pct: Reading, node_unplaced_pct:
                  Reading, unexplained_pct: Reading, contended_pct: Reading, quota_pct: Reading,
                  counted_compute_pct: Reading) -> Iterator[Evidence]:
    """Most time goes to kernels limited by arithmetic, and nothing but them fills it."""
    if node_compute_pct.value is not None:
        yield from roof.of_cpu_run(
            node_compute_pct, "nodes whose arithmetic limits them take most of the run's own time",
            (node_memory_pct, runtime_overhead_pct, thread_wait_pct, node_unplaced_pct, unexplained_pct),
            contended_pct, quota_pct)
        return
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        yield from roof.of_nodes(compute_side_pct, "most kernel time does enough arithmetic per byte",
                                 hardware_envelope_utilization, dispatch_overhead_pct, roofline_coverage_pct)
        return
    if roof.by_counters(counted_compute_pct, dispatch_overhead_pct, host_limited_pct):
        yield from roof.of_counters(counted_compute_pct, "arithmetic limits most of the kernels' time")
        return
    yield from roof.of_device(compute_limited_pct, "most of that time is in kernels on the compute side",
                              device_limited_pct, host_limited_pct, calibration.FITTED, device_throttled_pct)
