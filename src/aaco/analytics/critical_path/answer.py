"""The critical path of a trace: what its wall time consists of, how much later each dispatch could have run, and what a
faster kernel would gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aaco.analytics.collectives import matched
from aaco.analytics.critical_path import dag
from aaco.analytics.critical_path.dag import Bound, Edge
from aaco.analytics.critical_path.edges import Graph, graph
from aaco.analytics.critical_path.events import LAUNCHES, Events
from aaco.analytics.idle import KERNEL_WAIT_NS
from aaco.analytics.lanes import NONE, Flags, Ints
from aaco.analytics.work import COMMUNICATION, COMPUTE, COPY
from aaco.core.readings import Absent

# What each ns of the window was spent on.
KINDS = ("compute", "communication", "copy", "launch", "host", "sync", "kernel_wait", "unknown")
(ON_COMPUTE, ON_COMMUNICATION, ON_COPY, ON_LAUNCH, ON_HOST, ON_SYNC, ON_KERNEL_WAIT, ON_UNKNOWN) = range(len(KINDS))
_OF_WORK = {COMPUTE: ON_COMPUTE, COMMUNICATION: ON_COMMUNICATION, COPY: ON_COPY}
_OF_EDGE = {Edge.LAUNCH: ON_LAUNCH, Edge.HOST: ON_HOST, Edge.SYNC: ON_SYNC, Edge.PEER: ON_COMMUNICATION,
            Edge.STREAM: ON_UNKNOWN, Edge.EVENT: ON_UNKNOWN}


@dataclass(frozen=True)
class Segments:
    """The path from the window's begin to its end without a hole, in order: columns.

    kind: number in KINDS. edge: number of the Edge that the segment is the delay of, -1 for the time of work or a call
    and for what was before the first of them. work, call: rows that it is of (for a delay: that waited), -1 for none.
    """

    start: Ints
    end: Ints
    kind: Ints
    edge: Ints
    inferred: Flags
    work: Ints
    call: Ints


@dataclass(frozen=True)
class Path:
    """The critical path of captures on one clock. slack: per piece of work in ns; on_path: ns of it on the path."""

    captures: tuple[int, ...]
    events: Events
    graph: Graph
    bound: Bound
    segments: Segments
    slack: Ints
    on_path: Ints
    critical_path_ns: int

    @property
    def window_ns(self) -> int:
        """The window's length, which is the path's."""
        return self.graph.dag.end - self.graph.dag.begin


def every(events: Events, collectives: pa.Table) -> Iterator[Path]:
    """The path of each set of captures that collective operations connect. Raises Absent."""
    if len(events.work):
        operation = operations(collectives, events)
        for mine in groups(events.work.capture, operation):
            yield find(events, operation) if mine.all() else find(events.of(np.unique(events.work.capture[mine])),
                                                                  operation[mine])


def find(events: Events, operation: Ints) -> Path:
    """The critical path of events on one clock, at least one of them work. Raises Absent where they span too long."""
    made = graph(events, operation)
    if made.dag.end - made.dag.begin > dag.LONGEST_NS:
        raise Absent("the trace spans more than 52 days: times of different clocks in one capture?")
    bound = dag.bind(made.dag)
    of_kernel = made.work >= 0
    of_kernel[of_kernel] = events.work.kind[made.work[of_kernel]] != COPY
    kernels_only = dag.longest_sum(made.dag, of_kernel)
    slack = dag.slack(bound.dag)[:len(events.work)]
    last = int(np.argmax(np.where(made.work >= 0, made.dag.start + made.dag.length, NONE)))
    segments = _segments(made, bound, dag.walk(bound, last), events)
    own = np.flatnonzero(segments.kind <= ON_COPY)
    on_path = np.zeros(len(events.work), np.int64)
    np.add.at(on_path, segments.work[own], (segments.end - segments.start)[own])
    return Path(tuple(np.unique(events.work.capture).tolist()), events, made, bound, segments, slack, on_path,
                kernels_only)


def _segments(made: Graph, bound: Bound, path: Ints, events: Events) -> Segments:
    """The delay before each node of the path and the node's own time; the first begins with the window.

    What a launch took longer than any launch of the capture should is a delay of its own, which nothing explains.
    """
    tight, edge = bound.dag, bound.edge[path[1:]]
    start, work, call = tight.start[path], made.work[path], made.call[path]
    until = start + np.r_[tight.part[edge], tight.length[path[-1]]]
    free = np.r_[tight.begin, until[:-1]]
    why = np.r_[-1, tight.kind[edge]]
    launcher = np.r_[-1, call[:-1]]
    returned = events.calls.end[np.maximum(launcher, 0)] if len(events.calls) else free
    in_time = np.where(why == Edge.LAUNCH, np.maximum(returned, free + (made.late_ns or 0)), start)
    cut = np.clip(in_time, free, start)
    kinds = np.array([_OF_WORK[each] for each in sorted(_OF_WORK)])
    launching = np.append(np.isin(events.calls.part, LAUNCHES), False)[call]
    own = np.where(work >= 0, kinds[events.work.kind[np.maximum(work, 0)]], np.where(launching, ON_LAUNCH, ON_HOST))
    inferred, none, no = np.r_[False, tight.inferred[edge]], np.full(len(path), -1), np.zeros(len(path), bool)
    some = np.stack((cut > free, start > cut, until > start), 1).reshape(-1)
    return Segments(*(np.stack(each, 1).reshape(-1)[some] for each in (
        (free, cut, start), (cut, start, until), (_delays(why, start - free, call >= 0), none * 0 + ON_UNKNOWN, own),
        (why, why, none), (inferred, inferred, no), (work, work, work), (call, call, call))))


def _delays(why: Ints, ns: Ints, of_call: Flags) -> Ints:
    """The kind of each delay. Before the first of a chain the host had not made a call that is known."""
    kinds = np.array([_OF_EDGE[each] for each in Edge])
    found = np.where(why >= 0, kinds[np.maximum(why, 0)], np.where(of_call, ON_HOST, ON_UNKNOWN))
    return np.where((found == ON_UNKNOWN) & (why >= 0) & (ns <= KERNEL_WAIT_NS), ON_KERNEL_WAIT, found)


def bound_by(segments: Segments) -> dict[str, int]:
    """The ns of each kind; they sum to the window."""
    total = np.zeros(len(KINDS), np.int64)
    np.add.at(total, segments.kind, segments.end - segments.start)
    return dict(zip(KINDS, total.tolist(), strict=True))


def what_if(path: Path, scale: Mapping[str, float]) -> int:
    """The window in ns if the dispatches of these kernels (by name) took `scale` times as long. Raises KeyError where
    no kernel has the name."""
    return dag.window(path.bound.dag, _factors(path, scale))


def replayed(path: Path, scale: Mapping[str, float]) -> tuple[Ints, Ints]:
    """Per piece of work when it would start and end then, on the trace's clock. Raises KeyError."""
    graph = path.bound.dag
    start, length = dag.replay(graph, _factors(path, scale))
    began = graph.begin + start[:len(path.events.work)]
    ended = np.zeros(len(began), np.int64)
    of_work = np.flatnonzero(path.graph.work >= 0)  # of a collective's two nodes the second ends it
    ended[path.graph.work[of_work]] = graph.begin + (start + length)[of_work]
    return began, ended


def _factors(path: Path, scale: Mapping[str, float]) -> NDArray[np.float64]:
    """Per node how many times as long it takes."""
    known = {name: number for number, name in enumerate(path.events.names)}
    by_name = np.ones(len(known) + 1)
    for name, factor in scale.items():
        by_name[known[name]] = factor
    symbol = np.where(path.graph.work >= 0, path.events.work.name[np.maximum(path.graph.work, 0)], NONE)
    return by_name[np.where(symbol == NONE, len(known), symbol)]


def operations(collectives: pa.Table, events: Events) -> Ints:
    """Per piece of work the number of the collective operation that connects it to other devices' work, -1 for none.

    Operations whose ranks do not overlap in time, as true ones do, connect nothing: their clocks disagree.
    """
    work = events.work
    kernel = np.where(work.kind == COPY, NONE, work.key)
    found = matched(collectives, kernel, work.start, work.device)
    rows = np.flatnonzero(found >= 0)
    came, gone = (np.full(int(found.max(initial=-1)) + 1, fill) for fill in (NONE, np.iinfo(np.int64).max))
    np.maximum.at(came, found[rows], work.start[rows])
    np.minimum.at(gone, found[rows], work.end[rows])
    found[rows[came[found[rows]] > gone[found[rows]]]] = -1
    return found


def groups(captures: Ints, operation: Ints) -> Iterator[Flags]:
    """Per set of captures that collective operations connect, which work is theirs. Without any, each is alone."""
    leader = {capture: capture for capture in np.unique(captures).tolist()}
    for number in np.unique(operation[operation >= 0]).tolist():
        together = {leader[capture] for capture in np.unique(captures[operation == number]).tolist()}
        if len(together) > 1:
            first = min(together)
            leader = {capture: first if its in together else its for capture, its in leader.items()}
    for each in sorted(set(leader.values())):
        yield np.isin(captures, [capture for capture, its in leader.items() if its == each])
