"""Map kernels to executed graph nodes: a node's range contains the call that launched the kernel.

A kernel's correlation id names its launch call, and the call is inside the range of the node that made it, if runtime
and tracer read the same clock, as ONNX Runtime and CUPTI do. ONNX Runtime writes its ranges in whole microseconds, so a
tolerance applies. A range that contains the launch without it takes precedence.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.streaming.launch_rows import launch_rows
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core.arrays import Ints
from aaco.core.tables import replaced

TOLERANCE_NS = 1000
RANGES = ("ort", "marker")  # domains in which runtimes write the ranges of their nodes
NO_LAUNCH = "the call that launched it is not in the capture"
NO_NODE = "launched outside the range of any node"
SEVERAL = "launched inside ranges of nodes on several threads"


class SpanMatches(Struct, frozen=True):
    """The kernels with `executed_node` filled in if it was found, else the reason (else null)."""

    kernels: pa.Table
    why: pa.Array


def launched_in(kernels: pa.Table, api_calls: pa.Table, nodes: Collection[str], tolerance_ns: int = TOLERANCE_NS
                ) -> SpanMatches:
    """Return the executed node of each kernel of one process.

    api_calls: the launching calls, and one range per execution of a node, of a domain in RANGES and named after the
    node. nodes: names of the executed nodes; ranges of other names are ignored. If ranges overlap, the thread decides,
    provided that runtime and tracer number it equally; otherwise a launch in several ranges has no node.
    """
    node_names = pa.array(sorted(nodes), pa.string())
    ranges = api_calls.filter(pc.and_(pc.is_in(api_calls["domain"].cast(pa.string()), pa.array(RANGES)),
                                      pc.is_in(api_calls["name"].cast(pa.string()), node_names)))
    row = launch_rows(kernels, api_calls)
    has_launch = row >= 0
    start, end = (np.where(has_launch, np.append(integers(api_calls[name]), 0)[row], 0)
                  for name in ("t_start_ns", "t_end_ns"))
    thread = np.where(has_launch, np.append(integers(api_calls["thread_id"]), NONE)[row], NONE)
    range_row, several = _innermost(ranges, start, end, thread, tolerance_ns)
    range_row[~has_launch] = -1
    executed = ranges["name"].cast(pa.string()).take(pa.array(np.maximum(range_row, 0), mask=range_row < 0))
    why = np.select([~has_launch, several, range_row < 0], [NO_LAUNCH, SEVERAL, NO_NODE], "")
    return SpanMatches(replaced(kernels, "executed_node", executed.combine_chunks().dictionary_encode()),
                       pa.array(why.tolist(), mask=why == ""))


def _innermost(ranges: pa.Table, start: Ints, end: Ints, thread: Ints, tolerance_ns: int) -> tuple[Ints, np.ndarray]:
    """Return the row of the innermost range around each [start, end] (-1: none), and whether several threads have
    one.
    """
    begins, ends, threads = (integers(ranges[name]) for name in ("t_start_ns", "t_end_ns", "thread_id"))
    innermost, count = np.full(len(start), -1), np.zeros(len(start), np.int64)
    is_shared_thread = np.isin(thread, threads)
    for range_thread in np.unique(threads).tolist():
        rows = np.flatnonzero(threads == range_thread)
        rows = rows[np.lexsort((-ends[rows], begins[rows]))]
        inside = _around(begins[rows], ends[rows], start, end, tolerance_ns)
        here = (inside >= 0) & (~is_shared_thread | (thread == range_thread))
        innermost[here] = rows[inside[here]]
        count += here
    several = count > 1
    innermost[several] = -1
    return innermost, several


def _around(begins: Ints, ends: Ints, start: Ints, end: Ints, tolerance_ns: int) -> Ints:
    """Return the last of one thread's ranges, in order, that contains each [start, end]: exactly, else with
    tolerance.
    """
    wider = np.append(_wider(ends), -1)
    positions = np.full(len(start), -1)
    for slack in (0, tolerance_ns):
        open_ = np.flatnonzero(positions < 0)
        candidates = np.searchsorted(begins, start[open_] + slack, side="right") - 1
        while len(short := np.flatnonzero((candidates >= 0) & (ends[candidates] + slack < end[open_]))):
            candidates[short] = wider[candidates[short]]
        positions[open_] = candidates
    return positions


def _wider(ends: Ints) -> Ints:
    """Return for each range the last one before it that ends later, or -1."""
    wider, stack = np.full(len(ends), -1), list[int]()
    for place, end in enumerate(ends.tolist()):
        while stack and ends[stack[-1]] <= end:
            stack.pop()
        wider[place] = stack[-1] if stack else -1
        stack.append(place)
    return wider
