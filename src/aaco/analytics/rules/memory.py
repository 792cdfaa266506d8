"""Memory limits the kernels while they run: its bandwidth, or its latency."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.advice.action import MORE_REQUESTS, OWN_CODE
from aaco.analytics.bottleneck import calibration
from aaco.analytics.rules import roof
from aaco.core.advice import Step, fact_is, fact_is_not
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

COMPILED = (fact_is("execution", "compiled"),)


@rule(label="memory_bound", source=roof.SOURCE, advice=(
    Step("fuse or remove the elementwise and copy kernels that the report lists", (OWN_CODE,), COMPILED,
         acts_on="pointwise_pct"),
    Step("fuse them with torch.compile", (fact_is("framework", "pytorch"), OWN_CODE), COMPILED,
         acts_on="pointwise_pct"),
    Step("a fused optimizer", (fact_is("optimizer", "loop", "foreach"),)),
    Step("shrink what is moved: a narrower type for weights and activations",
         (fact_is_not("element_type", "fp16", "bf16", "fp8", "fp4", "int8", "int4"),
          fact_is_not("product_type", "fp8", "fp4", "int8", "int4"))),
    Step("raise the batch so that weights are read once for more samples",
         (OWN_CODE, fact_is("product_kind", "gemm", "conv", "recurrent"))),
    *MORE_REQUESTS))
def memory_bound(memory_limited_pct: Reading, device_limited_pct: Reading, host_limited_pct: Reading,
                 device_throttled_pct: Reading, memory_side_pct: Reading, hardware_envelope_utilization: Reading,
                 dispatch_overhead_pct: Reading, roofline_coverage_pct: Reading, node_compute_pct: Reading,
                 node_memory_pct: Reading, runtime_overhead_pct: Reading, thread_wait_pct: Reading, node_unplaced_pct:
                 Reading, unexplained_pct: Reading, contended_pct: Reading, quota_pct: Reading,
                 counted_memory_pct: Reading) -> Iterator[Evidence]:
    """Most time goes to kernels limited by memory traffic, and nothing but them fills it."""
    if node_memory_pct.value is not None:
        yield from roof.of_cpu_run(
            node_memory_pct, "nodes that pass over memory take most of the run's own time",
            (node_compute_pct, runtime_overhead_pct, thread_wait_pct, node_unplaced_pct, unexplained_pct),
            contended_pct, quota_pct)
        return
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        yield from roof.of_nodes(memory_side_pct, "most kernel time does little arithmetic per byte",
                                 hardware_envelope_utilization, dispatch_overhead_pct, roofline_coverage_pct)
        return
    if roof.by_counters(counted_memory_pct, dispatch_overhead_pct, host_limited_pct):
        yield from roof.of_counters(counted_memory_pct, "memory bandwidth limits most of the kernels' time")
        return
    yield from roof.of_device(memory_limited_pct, "most of that time is in kernels on the memory side",
                              device_limited_pct, host_limited_pct, calibration.FITTED, device_throttled_pct)


@rule(label="memory_latency_bound", source="docs/concepts/diagnosis.md; Little's law", advice=(
    Step("give the device more independent work at once: larger batches, more blocks per launch, several queries "
         "together", (OWN_CODE,)),
    Step("make addresses known earlier: sort the indices, store children next to each other, prefetch into shared "
         "memory", (OWN_CODE,)),
    *MORE_REQUESTS))
def memory_latency_bound(memory_latency_limited_pct: Reading, device_limited_pct: Reading, host_limited_pct: Reading,
                         device_throttled_pct: Reading, dispatch_overhead_pct: Reading, counted_latency_pct: Reading
                         ) -> Iterator[Evidence]:
    """Most time goes to kernels that wait for dependent or scattered reads, with too few of them in flight."""
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        return  # a run profiled by its nodes: it has no trace of the device
    if roof.by_counters(counted_latency_pct, dispatch_overhead_pct, host_limited_pct):
        yield from roof.of_counters(counted_latency_pct, "waits for memory limit most of the kernels' time")
        return
    yield from roof.of_device(memory_latency_limited_pct, "most of that time is in kernels bound by memory latency",
                              device_limited_pct, host_limited_pct, calibration.FITTED, device_throttled_pct)
