"""Find longest paths over a recorded schedule, in O(E) memory and near-linear time, on integer columns.

A node began at a known time and took a known time. An edge says that its target could begin only after some part of its
source had passed, plus a lag. The recorded schedule satisfies every edge, which makes longest paths cheap: with the
recorded times t as potentials, the cost of an edge becomes t(target) - t(source) - weight, which is never negative, so
Dijkstra's algorithm finds longest paths as shortest ones (Johnson 1977, "Efficient algorithms for shortest paths in
sparse networks"; Kelley 1961 for earliest and latest times in project networks). Costs are whole ns in float64: exact
below 2**53 ns, 104 days.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush
from math import ceil

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.core.arrays import Flags, Ints, Reals

LONGEST_NS = 2**52
NO_EDGE = -1
FEW = 100_000  # edges
NEVER = np.iinfo(np.int64).max


class Edge(IntEnum):
    """Why a node had to wait for another. Of several with the same delay the first in this order is named."""

    PEER = 0  # a collective operation: all ranks must have come
    SYNC = 1  # a host call waited for device work
    EVENT = 2  # device work waited for work of another stream
    STREAM = 3  # device work waited for earlier work of its stream
    LAUNCH = 4  # device work waited for the call that launched it
    HOST = 5  # a call came after the one before it on its thread


class Dag(Struct, frozen=True):
    """A schedule and its constraints. All times in ns.

    Per node: `start`, `length`, `counts` (whether the window lasts until it has ended). Per edge: `source`, `target`
    (node numbers), `part` (of the source's length, that must have passed), `lag` (known least delay after it), `kind`
    (Edge), `inferred` (concluded from times, not recorded). The window is [begin, end]. Every edge must hold:
    start[source] + part + lag <= start[target]; part and lag >= 0.
    """

    start: Ints
    length: Ints
    source: Ints
    target: Ints
    part: Ints
    lag: Ints
    kind: Ints
    inferred: Flags
    counts: Flags
    begin: int
    end: int

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.start)

    def holds(self) -> bool:
        """Return whether the recorded schedule obeys every edge and is inside the window, as all functions here
        require.
        """
        if not self.nodes:
            return True
        free = self.start[self.target] - self.start[self.source] - self.part - self.lag
        inside = self.start.min() >= self.begin and self.start.max() <= self.end <= self.begin + LONGEST_NS
        return bool(inside and (free >= 0).all() and (self.part >= 0).all() and (self.lag >= 0).all()
                    and (self.part <= self.length[self.source]).all() and (self.length >= 0).all())


class BoundDag(Struct, frozen=True):
    """A Dag in which every node is held where it is. `edge`: per node the edge that held it, NO_EDGE for the first of a
    chain. The lag of that edge has grown to what was observed.
    """

    dag: Dag
    edge: Ints


def bind(dag: Dag) -> BoundDag:
    """Return the Dag with the edge that held each node: the one that arrives last by its known lag.

    The remaining time until the node's start becomes part of that lag, so the recorded schedule is the earliest one.
    """
    arrival = dag.start[dag.source] + dag.part + dag.lag
    latest = np.full(dag.nodes, np.iinfo(np.int64).min)
    np.maximum.at(latest, dag.target, arrival)
    holds = arrival == latest[dag.target]
    edge = np.full(dag.nodes, NO_EDGE, np.int64)
    for kind in reversed(Edge):
        rows = np.flatnonzero(holds & (dag.kind == kind))
        edge[dag.target[rows]] = rows
    binding = edge[edge != NO_EDGE]
    lag = dag.lag.copy()
    lag[binding] += dag.start[dag.target[binding]] - arrival[binding]
    return BoundDag(replace(dag, lag=lag), edge)


def walk(bound: BoundDag, last: int) -> Ints:
    """Return the nodes from the first of the chain that held `last`, to `last`.

    A cycle of edges without length, which only a false trace has, ends it.
    """
    before = np.where(bound.edge == NO_EDGE, -1, bound.dag.source[bound.edge]).tolist() if bound.dag.source.size else []
    seen = bytearray(bound.dag.nodes)
    path, node = [], last
    while node >= 0 and not seen[node]:
        seen[node] = 1
        path.append(node)
        node = before[node] if before else -1
    return np.array(path[::-1], np.int64)


def slack(dag: Dag) -> Ints:
    """Return per node how much later it could have started without the window ending later, everything else as early as
    possible: latest start minus earliest start. The earliest is the recorded one if the Dag comes from `bind`. NEVER
    for nodes on which nothing depends that counts.
    """
    free = dag.start[dag.target] - dag.start[dag.source] - dag.part - dag.lag
    last = np.flatnonzero(dag.counts)
    return _nearest(-dag.start, dag.target, dag.source, free, last, (dag.end - dag.start - dag.length)[last])


def replay(dag: Dag, factor: Reals) -> tuple[Ints, Ints]:
    """Return per node its start after the window's begin and its length, if it takes `factor` (>= 0) times as long.

    Everything starts as early as it may. Lags, and when chains begin, stay as they are.
    """
    length = np.rint(dag.length * factor).astype(np.int64)
    part = np.minimum(length[dag.source], np.rint(dag.part * factor[dag.source]).astype(np.int64))
    stretch = max(1, ceil(factor.max(initial=1.0)))
    return earliest(dag, part, dag.lag, dag.start - dag.begin, stretch), length


def window(dag: Dag, factor: Reals | None = None) -> int:
    """Return the length of the window if nodes take `factor` times as long."""
    start, length = replay(dag, np.ones(dag.nodes) if factor is None else factor)
    return int((start + length)[dag.counts].max(initial=0))


def longest_sum(dag: Dag, counted: Flags) -> int:
    """Return the largest sum of the lengths of `counted` nodes over any chain. Lags and other nodes count nothing."""
    part = np.where(counted[dag.source], dag.part, 0)
    start = earliest(dag, part, np.zeros_like(dag.lag), np.zeros_like(dag.start), 1)
    return int((start + np.where(counted, dag.length, 0)).max(initial=0))


def earliest(dag: Dag, part: Ints, lag: Ints, release: Ints, stretch: int) -> Ints:
    """Return per node its earliest start after the window's begin under other parts and lags.

    release: before it the first of a chain does not start. stretch: a factor by which the recorded schedule obeys the
    edges when all its times are multiplied by it.
    """
    after = stretch * (dag.start - dag.begin)
    free = after[dag.target] - after[dag.source] - part - lag
    first = np.ones(dag.nodes, bool)
    first[dag.target] = False
    roots = np.flatnonzero(first)
    gained = _nearest(dag.start, dag.source, dag.target, free, roots, (after - release)[roots])
    return np.where(gained == NEVER, release, after - gained)


def _nearest(when: Ints, source: Ints, target: Ints, cost: Ints, roots: Ints, at: Ints) -> Ints:
    """Return per node the least cost to reach it from outside, if entering each of `roots` costs `at`; NEVER if it is
    not reached. Raise ValueError if a cost is negative: then the schedule does not obey its edges.

    when: per node a time; edges that all go from an earlier node to a later one are followed once, in that order.
    """
    if min(cost.min(initial=0), at.min(initial=0)) < 0:
        raise ValueError("the schedule does not obey its edges")
    if len(source) <= FEW and (when[source] < when[target]).all():
        return _in_order(when, source, target, cost, roots, at)
    order = np.argsort(source, kind="stable")
    first = np.r_[0, np.cumsum(np.bincount(source, minlength=len(when)))]
    search = _by_heap if len(source) <= FEW else _by_scipy
    return search(first, target[order], cost[order], roots, at)


def _in_order(when: Ints, source: Ints, target: Ints, cost: Ints, roots: Ints, at: Ints) -> Ints:
    """Return the least costs where every edge goes from an earlier node to a later one: no node is improved after it
    is left. A third of what the heap takes.
    """
    entered = np.full(len(when), NEVER)
    np.minimum.at(entered, roots, at)
    nearest = entered.tolist()
    order = np.argsort(when[source], kind="stable")
    edges = zip(source[order].tolist(), target[order].tolist(), cost[order].tolist(), strict=True)
    for before, after, delay in edges:
        if nearest[before] + delay < nearest[after]:
            nearest[after] = nearest[before] + delay
    return np.array(nearest, np.int64)


def _by_heap(first: Ints, target: Ints, cost: Ints, roots: Ints, at: Ints) -> Ints:
    """Return the least costs by Dijkstra's algorithm on lists; for few edges cheaper than importing scipy (0.2 CPU s,
    30 MB).
    """
    begins, targets, costs = first.tolist(), target.tolist(), cost.tolist()
    nearest = [NEVER] * (len(begins) - 1)
    heap = list(zip(at.tolist(), roots.tolist(), strict=True))
    heapify(heap)
    while heap:
        so_far, node = heappop(heap)
        if so_far < nearest[node]:
            nearest[node] = so_far
            for edge in range(begins[node], begins[node + 1]):
                if so_far + costs[edge] < nearest[targets[edge]]:
                    heappush(heap, (so_far + costs[edge], targets[edge]))
    return np.array(nearest, np.int64)


def _by_scipy(first: Ints, target: Ints, cost: Ints, roots: Ints, at: Ints) -> Ints:
    """Return the same, compiled, from one more node that has an edge to each root."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    nodes, kind = len(first) - 1, np.int32 if len(target) < 2**30 else np.int64
    indptr = np.r_[first, len(target) + len(roots)].astype(kind)
    costs = np.concatenate([cost, at]).astype(np.float64)
    graph = csr_array((costs, np.concatenate([target, roots]).astype(kind), indptr), shape=(nodes + 1, nodes + 1))
    distance = dijkstra(graph, directed=True, indices=np.array([nodes]))[0, :nodes]
    reached = np.isfinite(distance)
    return np.where(reached, np.where(reached, distance, 0).astype(np.int64), NEVER)
