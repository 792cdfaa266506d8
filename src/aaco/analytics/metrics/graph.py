"""What the model's graph allows: its longest path by measured time, and the memory that its tensors need."""

from __future__ import annotations

from aaco.analytics.graph.graph_bounds import LongestChain, PeakMemory
from aaco.core.readings import Absent
from aaco.core.registry import metric

DATAFLOW = "docs/concepts/operators.md"


@metric(unit="ms", better="lower", formula="largest sum of node times over any chain of the graph", source=DATAFLOW)
def graph_critical_path_ms(graph_path: LongestChain) -> float:
    """How long an inference takes at least, by its measured node times, if its nodes waited for data only."""
    return graph_path.length / 1e6


@metric(unit="ratio", better="none", formula="sum of node times / longest path", source=DATAFLOW)
def graph_parallelism(graph_path: LongestChain) -> float:
    """How many nodes could run at once on average: 1 is a chain, on which more streams bring nothing."""
    return graph_path.parallelism


@metric(unit="bytes", better="lower", formula="most bytes of tensors that are made and still needed, over the nodes in "
        "the graph's order", source=DATAFLOW)
def graph_peak_live_bytes(graph_memory: PeakMemory) -> float:
    """Memory that the tensors between the nodes need at once, without inputs and weights; the graph as it was given."""
    if graph_memory.unknown:
        raise Absent(f"the sizes of {graph_memory.unknown} tensors are not known; the others peak at "
                     f"{graph_memory.peak_bytes:,} bytes")
    return float(graph_memory.peak_bytes)
