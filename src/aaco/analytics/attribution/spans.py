"""Map kernels to executed graph nodes: a node's range contains the call that launched the kernel.

A kernel's correlation id names its launch call, and the call is inside the range of the node that made it, if runtime
and tracer read the same clock, as ONNX Runtime and CUPTI do. ONNX Runtime writes its ranges in whole microseconds, so a
tolerance applies. A range that contains the launch without it takes precedence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.streaming.calls import CallKind, call_kinds, runtime_calls
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core.arrays import Ints
from aaco.core.tables import replaced

TOLERANCE_NS = 1000
RANGES = ("ort", "marker")  # domains in which runtimes write the ranges of their nodes
NO_LAUNCH = "the call that launched it is not in the capture"
NO_NODE = "launched outside the range of any node"
SEVERAL = "launched inside ranges of nodes on several threads"


@dataclass(frozen=True)
class SpanMatches:
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
    launches = _launches(api_calls)
    call_row = _positions(launches["correlation_id"], integers(kernels["correlation_id"]))
    has_launch = call_row >= 0
    start, end = (np.where(has_launch, np.append(launches[name], 0)[call_row], 0)
                  for name in ("t_start_ns", "t_end_ns"))
    thread = np.where(has_launch, np.append(launches["thread_id"], NONE)[call_row], NONE)
    range_row, several = _innermost(ranges, start, end, thread, tolerance_ns)
    range_row[~has_launch] = -1
    executed = ranges["name"].cast(pa.string()).take(pa.array(np.maximum(range_row, 0), mask=range_row < 0))
    why = np.select([~has_launch, several, range_row < 0], [NO_LAUNCH, SEVERAL, NO_NODE], "")
    return SpanMatches(replaced(kernels, "executed_node", executed.combine_chunks().dictionary_encode()),
                       pa.array(why.tolist(), mask=why == ""))


def _launches(api_calls: pa.Table) -> dict[str, Ints]:
    """Return the launching calls by ascending correlation id; of several with one id, the first."""
    calls = runtime_calls(api_calls)
    names = calls["name"].combine_chunks()
    part = np.zeros(0, np.int8)
    if calls.num_rows:
        part = call_kinds(names.dictionary.to_pylist())[np.asarray(names.indices)]
    columns = {name: integers(calls[name]) for name in ("correlation_id", "t_start_ns", "t_end_ns", "thread_id")}
    launching = np.flatnonzero((part > CallKind.OTHER) & (part <= CallKind.FILL) & (columns["correlation_id"] > 0))
    _, first = np.unique(columns["correlation_id"][launching], return_index=True)
    return {name: values[launching][first] for name, values in columns.items()}


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


def _positions(sorted_ids: Ints, ids: Ints) -> Ints:
    if not len(sorted_ids):
        return np.full(len(ids), -1)
    places = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    return np.where(sorted_ids[places] == ids, places, -1)
