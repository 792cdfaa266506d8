"""Time lost between kernels."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "METHODS sections 1 and 2"


@rule(label="launch_bound", source=SOURCE, advice=(
    "let the runtime fuse more: check that graph optimisation is on and look at the nodes it kept apart",
    "raise the batch so that each kernel does more (aaco run --batch N)",
    "on a GPU: capture a graph, or a compiled backend"))
def launch_bound(dispatch_overhead_pct: Reading, microkernel_pct: Reading, kernel_amplification_ratio: Reading,
                 launch_tax_pct: Reading, profiling_overhead_pct: Reading) -> Iterator[Evidence]:
    """Much of the time passes between many kernels that are too short to hide their own launch."""
    yield dispatch_overhead_pct.above(20, "much of the run is outside every kernel", 0.4, essential=True)
    yield microkernel_pct.above(30, "many kernels are shorter than a launch", 0.3, essential=True)
    yield profiling_overhead_pct.below(25, "the profiler itself did not make the gaps", 0.2, essential=True)
    yield launch_tax_pct.above(20, "the device waits for launches", 0.2)
    yield kernel_amplification_ratio.above(2, "a node becomes several kernels", 0.1)


@rule(label="kernel_fragmentation", kind="condition", source=SOURCE,
      advice=("look at the nodes with several kernels in attribution/op_to_kernel_map.parquet",))
def kernel_fragmentation(kernel_amplification_ratio: Reading) -> Iterator[Evidence]:
    """One node of the executed graph takes several kernels."""
    yield kernel_amplification_ratio.above(2, "kernels per executed node", essential=True)
