"""What limits the kernels while they run: arithmetic, or memory bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "METHODS section 2; Williams, Waterman and Patterson 2009"
MOST = 60.0  # per cent of kernel time; a clear majority
NEAR = 0.3  # of the measured roof; below it neither roof explains the time


@rule(label="compute_bound", source=SOURCE, advice=(
    "lower the precision: export fp16 or int8 (aaco run --model YOUR_INT8.onnx --backend B)",
    "compare thread counts: intra_op_threads in configs/backends.yaml",
    "prune or replace the slowest nodes: the report lists them"))
def compute_bound(compute_side_pct: Reading, hardware_envelope_utilization: Reading,
                  dispatch_overhead_pct: Reading, roofline_coverage_pct: Reading) -> Iterator[Evidence]:
    """Most time goes to kernels limited by arithmetic, and they run near enough to that roof for it to matter."""
    yield compute_side_pct.above(MOST, "most kernel time does enough arithmetic per byte", 0.35, essential=True)
    yield from _at_the_roof(hardware_envelope_utilization, dispatch_overhead_pct, roofline_coverage_pct)


@rule(label="memory_bound", source=SOURCE, advice=(
    "fuse or remove the elementwise and copy nodes that the report lists",
    "shrink what is moved: a narrower type for weights and activations",
    "raise the batch so that weights are read once for more samples (aaco run --batch N)"))
def memory_bound(memory_side_pct: Reading, hardware_envelope_utilization: Reading,
                 dispatch_overhead_pct: Reading, roofline_coverage_pct: Reading) -> Iterator[Evidence]:
    """Most time goes to kernels limited by memory traffic, and they run near enough to that roof for it to matter."""
    yield memory_side_pct.above(MOST, "most kernel time does little arithmetic per byte", 0.35, essential=True)
    yield from _at_the_roof(hardware_envelope_utilization, dispatch_overhead_pct, roofline_coverage_pct)


def _at_the_roof(utilization: Reading, overhead_pct: Reading, coverage_pct: Reading) -> Iterator[Evidence]:
    """What either bound needs besides its side of the roofline."""
    yield utilization.above(NEAR, "the kernels reach a fair part of the measured roof", 0.35, essential=True)
    yield utilization.below(1.05, "the roof is not beaten, which would make it the wrong roof", 0.1, essential=True)
    yield overhead_pct.below(20, "little time passes outside kernels", 0.2)
    yield coverage_pct.above(80, "the model covers most kernel time", 0.1)
