"""Compute the critical path of a trace: what its wall time consists of, the slack of each dispatch, and what a faster
kernel would gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.critical_path import dag
from aaco.analytics.critical_path.dag import BoundDag, Edge
from aaco.analytics.critical_path.edges import WaitGraph, graph
from aaco.analytics.critical_path.events import LAUNCHES, PathEvents
from aaco.analytics.critical_path.summary import KINDS
from aaco.analytics.streaming.stream_ids import NONE
from aaco.analytics.streaming.work import COMMUNICATION, COMPUTE, COPY
from aaco.analytics.timeline.collectives import matched
from aaco.analytics.timeline.idle import KERNEL_WAIT_NS
from aaco.core.arrays import Flags, Ints, summed
from aaco.core.readings import Absent

(ON_COMPUTE, ON_COMMUNICATION, ON_COPY, ON_LAUNCH, ON_HOST, ON_SYNC, ON_KERNEL_WAIT, ON_UNKNOWN) = range(len(KINDS))
_OF_WORK = {COMPUTE: ON_COMPUTE, COMMUNICATION: ON_COMMUNICATION, COPY: ON_COPY}
_OF_EDGE = {Edge.LAUNCH: ON_LAUNCH, Edge.HOST: ON_HOST, Edge.SYNC: ON_SYNC, Edge.PEER: ON_COMMUNICATION,
            Edge.STREAM: ON_UNKNOWN, Edge.EVENT: ON_UNKNOWN}


class PathSegments(Struct, frozen=True):
    """The path from the window's begin to its end without a hole, in order: columns.

    kind: number in KINDS. edge: number of the Edge that the segment is the delay of, -1 for the time of work or a call
    and for the time before the first of them. work, call: rows of its work and call (of a delay: those that waited),
    -1: none.
    """

    start: Ints
    end: Ints
    kind: Ints
    edge: Ints
    inferred: Flags
    work: Ints
    call: Ints


class CriticalPath(Struct, frozen=True):
    """The critical path of captures on one clock. slack: ns per piece of work. on_path: ns of it on the path."""

    captures: tuple[int, ...]
    events: PathEvents
    graph: WaitGraph
    bound: BoundDag
    segments: PathSegments
    slack: Ints
    on_path: Ints
    critical_path_ns: int

    @property
    def window_ns(self) -> int:
        """The window's length, which is the path's."""
        return self.graph.dag.end - self.graph.dag.begin


def every(events: PathEvents, collectives: pa.Table) -> Iterator[CriticalPath]:
    """Yield the path of each set of captures that collective operations connect. Raise Absent as `find`."""
    if len(events.work):
        operation = operations(collectives, events)
        for inside in groups(events.work.capture, operation):
            yield find(events, operation) if inside.all() else find(
                events.of(np.unique(events.work.capture[inside])), operation[inside])


def find(events: PathEvents, operation: Ints) -> CriticalPath:
    """Return the critical path of events on one clock, with at least one piece of work. Raise Absent if they span too
    long.
    """
    wait_graph = graph(events, operation)
    if wait_graph.dag.end - wait_graph.dag.begin > dag.LONGEST_NS:
        raise Absent("the trace spans more than 52 days: times of different clocks in one capture?")
    bound = dag.bind(wait_graph.dag)
    of_kernel = wait_graph.work >= 0
    of_kernel[of_kernel] = events.work.kind[wait_graph.work[of_kernel]] != COPY
    kernels_only = dag.longest_sum(wait_graph.dag, of_kernel)
    slack = dag.slack(bound.dag)[:len(events.work)]
    last = int(np.argmax(np.where(wait_graph.work >= 0, wait_graph.dag.start + wait_graph.dag.length, NONE)))
    segments = _segments(wait_graph, bound, dag.walk(bound, last), events)
    device_segments = np.flatnonzero(segments.kind <= ON_COPY)
    on_path = summed(segments.work[device_segments], (segments.end - segments.start)[device_segments],
                     len(events.work))
    return CriticalPath(tuple(np.unique(events.work.capture).tolist()), events, wait_graph, bound, segments, slack,
                        on_path, kernels_only)


def _segments(wait_graph: WaitGraph, bound: BoundDag, path: Ints, events: PathEvents) -> PathSegments:
    """Return the delay before each node of the path and the node's own time; the first begins with the window.

    The time by which a launch exceeds the capture's usual launches is a separate delay without an explanation.
    """
    tight, edge = bound.dag, bound.edge[path[1:]]
    start, work, call = tight.start[path], wait_graph.work[path], wait_graph.call[path]
    until = start + np.r_[tight.part[edge], tight.length[path[-1]]]
    free = np.r_[tight.begin, until[:-1]]
    why = np.r_[-1, tight.kind[edge]]
    launcher = np.r_[-1, call[:-1]]
    returned = events.calls.end[np.maximum(launcher, 0)] if len(events.calls) else free
    in_time = np.where(why == Edge.LAUNCH, np.maximum(returned, free + (wait_graph.late_ns or 0)), start)
    cut = np.clip(in_time, free, start)
    kinds = np.array([_OF_WORK[work_kind] for work_kind in sorted(_OF_WORK)])
    launching = np.append(np.isin(events.calls.part, LAUNCHES), False)[call]
    kind = np.where(work >= 0, kinds[events.work.kind[np.maximum(work, 0)]], np.where(launching, ON_LAUNCH, ON_HOST))
    delays = _delays(why, start - free, call >= 0)
    inferred, none, no = np.r_[False, tight.inferred[edge]], np.full(len(path), -1), np.zeros(len(path), bool)
    is_positive = np.stack((cut > free, start > cut, until > start), 1).reshape(-1)
    return PathSegments(*(np.stack(columns, 1).reshape(-1)[is_positive] for columns in (
        (free, cut, start), (cut, start, until), (delays, none * 0 + ON_UNKNOWN, kind),
        (why, why, none), (inferred, inferred, no), (work, work, work), (call, call, call))))


def _delays(why: Ints, ns: Ints, of_call: Flags) -> Ints:
    """Return the kind of each delay. Before the first call of a chain the host had made no known call."""
    kinds = np.array([_OF_EDGE[edge] for edge in Edge])
    delay_kinds = np.where(why >= 0, kinds[np.maximum(why, 0)], np.where(of_call, ON_HOST, ON_UNKNOWN))
    return np.where((delay_kinds == ON_UNKNOWN) & (why >= 0) & (ns <= KERNEL_WAIT_NS), ON_KERNEL_WAIT, delay_kinds)


def bound_by(segments: PathSegments) -> dict[str, int]:
    """Return the ns of each kind; they sum to the window."""
    total = summed(segments.kind, segments.end - segments.start, len(KINDS))
    return dict(zip(KINDS, total.tolist(), strict=True))


def what_if(path: CriticalPath, scale: Mapping[str, float]) -> int:
    """Return the window in ns if the dispatches of these kernels (by name) took `scale` times as long.

    Raise KeyError if no kernel has the name.
    """
    return dag.window(path.bound.dag, _factors(path, scale))


def replayed(path: CriticalPath, scale: Mapping[str, float]) -> tuple[Ints, Ints]:
    """Return per piece of work when it would then start and end, on the trace's clock. Raise KeyError."""
    graph = path.bound.dag
    start, length = dag.replay(graph, _factors(path, scale))
    began = graph.begin + start[:len(path.events.work)]
    ended = np.zeros(len(began), np.int64)
    of_work = np.flatnonzero(path.graph.work >= 0)  # of a collective's two nodes the second ends it
    ended[path.graph.work[of_work]] = graph.begin + (start + length)[of_work]
    return began, ended


def _factors(path: CriticalPath, scale: Mapping[str, float]) -> NDArray[np.float64]:
    """Return per node how many times as long it takes."""
    numbers = {name: number for number, name in enumerate(path.events.names)}
    by_name = np.ones(len(numbers) + 1)
    for name, factor in scale.items():
        by_name[numbers[name]] = factor
    symbol = np.where(path.graph.work >= 0, path.events.work.name[np.maximum(path.graph.work, 0)], NONE)
    return by_name[np.where(symbol == NONE, len(numbers), symbol)]


def operations(collectives: pa.Table, events: PathEvents) -> Ints:
    """Return per piece of work the number of the collective operation that connects it to other devices' work, else -1.

    Operations whose ranks do not overlap in time connect nothing: their clocks disagree.
    """
    work = events.work
    kernel = np.where(work.kind == COPY, NONE, work.key)
    numbers = matched(collectives, kernel, work.start, work.device)
    rows = np.flatnonzero(numbers >= 0)
    came, gone = (np.full(int(numbers.max(initial=-1)) + 1, fill) for fill in (NONE, np.iinfo(np.int64).max))
    np.maximum.at(came, numbers[rows], work.start[rows])
    np.minimum.at(gone, numbers[rows], work.end[rows])
    numbers[rows[came[numbers[rows]] > gone[numbers[rows]]]] = -1
    return numbers


def groups(captures: Ints, operation: Ints) -> Iterator[Flags]:
    """Yield per set of captures that collective operations connect which work is theirs. Without any, each is
    separate.
    """
    leader = {capture: capture for capture in np.unique(captures).tolist()}
    for number in np.unique(operation[operation >= 0]).tolist():
        together = {leader[capture] for capture in np.unique(captures[operation == number]).tolist()}
        if len(together) > 1:
            first = min(together)
            leader = {capture: first if its in together else its for capture, its in leader.items()}
    for leading in sorted(set(leader.values())):
        yield np.isin(captures, [capture for capture, its in leader.items() if its == leading])
