"""Kernels of an accelerator traced to executed graph nodes: a node's range contains the call that launched the kernel.

A kernel's correlation id names its launch call, and the call lies in the range of the node that made it, on one clock
where runtime and tracer read the same one, as ONNX Runtime and CUPTI do. ONNX Runtime writes its ranges in whole
microseconds, hence the tolerance; a launch that lies in a range without it is that range's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.calls import Does, parts
from aaco.analytics.lanes import NONE, Ints, integers
from aaco.analytics.linking import DOMAINS
from aaco.core.tables import replaced

TOLERANCE_NS = 1000
RANGES = ("ort", "marker")  # domains in which runtimes write the ranges of their nodes
NO_LAUNCH = "the call that launched it is not in the capture"
NO_NODE = "launched outside the range of any node"
SEVERAL = "launched inside ranges of nodes on several threads"


@dataclass(frozen=True)
class Spans:
    """The kernels with `executed_node` filled in where it was found, and for the others why it was not (else null)."""

    kernels: pa.Table
    why: pa.Array


def launched_in(kernels: pa.Table, api_calls: pa.Table, nodes: Collection[str], tolerance_ns: int = TOLERANCE_NS
                ) -> Spans:
    """Find the executed node of each kernel of one process.

    api_calls: the launching calls, and one range per execution of a node, of a domain in RANGES and named like the
    node. nodes: names of the executed nodes; ranges of other names are none. A thread that runtime and tracer number
    alike decides between ranges that overlap; where they number differently, a launch in several is of none.
    """
    wanted = pa.array(sorted(nodes), pa.string())
    ranges = api_calls.filter(pc.and_(pc.is_in(api_calls["domain"].cast(pa.string()), pa.array(RANGES)),
                                      pc.is_in(api_calls["name"].cast(pa.string()), wanted)))
    launches = _launches(api_calls)
    at = _positions(launches["correlation_id"], integers(kernels["correlation_id"]))
    known = at >= 0
    start, end = (np.where(known, np.append(launches[name], 0)[at], 0) for name in ("t_start_ns", "t_end_ns"))
    thread = np.where(known, np.append(launches["thread_id"], NONE)[at], NONE)
    found, several = _innermost(ranges, start, end, thread, tolerance_ns)
    found[~known] = -1
    executed = ranges["name"].cast(pa.string()).take(pa.array(np.maximum(found, 0), mask=found < 0))
    why = np.select([~known, several, found < 0], [NO_LAUNCH, SEVERAL, NO_NODE], "")
    return Spans(replaced(kernels, "executed_node", executed.combine_chunks().dictionary_encode()),
                 pa.array(why.tolist(), mask=why == ""))


def _launches(api_calls: pa.Table) -> dict[str, Ints]:
    """The launching calls by ascending correlation id; of several with one id, the first."""
    known = api_calls.filter(pc.is_in(api_calls["domain"].cast(pa.string()), pa.array(DOMAINS)))
    names = known["name"].combine_chunks()
    part = parts(names.dictionary.to_pylist())[np.asarray(names.indices)] if known.num_rows else np.zeros(0, np.int8)
    columns = {name: integers(known[name]) for name in ("correlation_id", "t_start_ns", "t_end_ns", "thread_id")}
    wanted = np.flatnonzero((part > Does.OTHER) & (part <= Does.FILL) & (columns["correlation_id"] > 0))
    _, first = np.unique(columns["correlation_id"][wanted], return_index=True)
    return {name: values[wanted][first] for name, values in columns.items()}


def _innermost(ranges: pa.Table, start: Ints, end: Ints, thread: Ints, tolerance_ns: int) -> tuple[Ints, np.ndarray]:
    """Of each [start, end] the row of the innermost range around it (-1: none), and whether threads contend for it."""
    begins, ends, threads = (integers(ranges[name]) for name in ("t_start_ns", "t_end_ns", "thread_id"))
    found, count = np.full(len(start), -1), np.zeros(len(start), np.int64)
    own = np.isin(thread, threads)
    for each in np.unique(threads).tolist():
        rows = np.flatnonzero(threads == each)
        rows = rows[np.lexsort((-ends[rows], begins[rows]))]
        inside = _around(begins[rows], ends[rows], start, end, tolerance_ns)
        here = (inside >= 0) & (~own | (thread == each))
        found[here] = rows[inside[here]]
        count += here
    several = count > 1
    found[several] = -1
    return found, several


def _around(begins: Ints, ends: Ints, start: Ints, end: Ints, tolerance_ns: int) -> Ints:
    """The last of one thread's ranges, in order, that contains each [start, end]: exactly, else within the tolerance.
    """
    wider = np.append(_wider(ends), -1)
    found = np.full(len(start), -1)
    for slack in (0, tolerance_ns):
        open_ = np.flatnonzero(found < 0)
        at = np.searchsorted(begins, start[open_] + slack, side="right") - 1
        while len(short := np.flatnonzero((at >= 0) & (ends[at] + slack < end[open_]))):
            at[short] = wider[at[short]]
        found[open_] = at
    return found


def _wider(ends: Ints) -> Ints:
    """Of each range the last one before it that ends later, or -1."""
    found, stack = np.full(len(ends), -1), list[int]()
    for place, end in enumerate(ends.tolist()):
        while stack and ends[stack[-1]] <= end:
            stack.pop()
        found[place] = stack[-1] if stack else -1
        stack.append(place)
    return found


def _positions(known: Ints, asked: Ints) -> Ints:
    if not len(known):
        return np.full(len(asked), -1)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[at] == asked, at, -1)
