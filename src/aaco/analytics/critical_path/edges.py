"""Make the graph of a trace: which piece of work or call had to wait for which, each edge observed or inferred.

A piece of work is a node from its start, and so is a call. A call that waits has a second node where it returns. A
collective operation has one where its last rank came, and from there on each rank's kernel is another node.

observed  stream      work after the work before it on its stream (or queue, where the capture knows no stream)
          launch      work after the start of the call with its correlation id; of a graph launch all its kernels
          host        a call after the one before it on its thread, with all that the host did between
          sync        the return of a device synchronisation after all work that had been launched before it, on every
                      stream of its process; of a synchronous copy after that copy
          collective  a collective's transfer after the last rank's arrival
inferred  stream      work that began while earlier work of its stream still ran: it follows that work's start
          sync        the return of a stream's, event's or signal's wait, if the capture does not name the stream or
                      event: after the work that ended last before it; of an asynchronous copy that returned after its
                      copy had ended
          event       the first work that a thread launches onto another stream after an event was recorded and waited
                      for: after the last work launched before the record
          event       work that started at most KERNEL_WAIT_NS after other work of the process ended, if its stream and
                      launch were ready for longer: after that work. Without a known launch the delay may be any
                      length: only the order of times is known
          thread      a thread's first call after it had been silent: after the last call of another thread of the
                      process that then fell silent
An edge that contradicts its times (a wait that returned before the work had ended) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from aaco.analytics.critical_path.dag import Dag, Edge
from aaco.analytics.critical_path.events import PathCalls, PathEvents, PathWork
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.stream_ids import NONE, first_rows, last_before, latest_end_before
from aaco.analytics.streaming.work import COPY
from aaco.analytics.timeline.idle import KERNEL_WAIT_NS
from aaco.core.arrays import Flags, Ints, joined
from aaco.core.distinct import coded

MOST_WAITERS = 64  # threads of a process whose waits for the whole device are followed
HANDED_OVER_NS = 50_000  # a thread silent for this long may have waited for another


class WaitGraph(Struct, frozen=True):
    """The Dag of one clock's events. `work` and `call` are rows of each node, -1 for none.

    The first nodes are the pieces of work. A collective's kernel has two: its arrival, without length, and what
    followed when all ranks had arrived. latency_ns: median delay of launches that found their device idle, else the
    smallest of all. late_ns: from it on a delay is an outlier (Tukey's upper fence). None without launches.
    """

    dag: Dag
    work: Ints
    call: Ints
    latency_ns: int | None
    late_ns: int | None


class WaitEdges(Struct, frozen=True):
    """Edges between nodes. `lag` is the least known delay; None: all that was observed."""

    source: Ints
    target: Ints
    kind: Edge
    inferred: Flags
    lag: Ints | None


def graph(events: PathEvents, operation: Ints) -> WaitGraph:
    """Return the graph of events on one clock, some of them work. The window ends with the last work.

    operation: per piece of work the number of its collective operation with other ranks, -1 for none. Calls after the
    last work are left out.
    """
    return _WaitNodes(events.work, events.calls, operation).graph()


_EdgeColumns = tuple[Ints, Ints, Ints, Ints, Flags]


def _narrow(edges: WaitEdges) -> _EdgeColumns:
    """Return the edges as columns. Nodes in 32 bits and kinds in 8 halve the memory; 2**31 nodes would not fit
    anyway.
    """
    count = len(edges.source)
    lag = np.full(count, NONE) if edges.lag is None else edges.lag
    return (edges.source.astype(np.int32), edges.target.astype(np.int32), lag, np.full(count, edges.kind, np.int8),
            edges.inferred)


class _WaitNodes:
    """Numbers nodes: work, calls, returns of calls that wait, joins of collectives, and what followed each."""

    def __init__(self, work: PathWork, calls: PathCalls, operation: Ints) -> None:
        self.work, self.calls = work, calls
        self.end = int(work.end.max())
        self.kept = calls.start <= self.end
        self.of_call = len(work) + np.arange(len(calls))
        copied = _copied_until(work, calls)
        is_sync = (calls.part == CallKind.SYNC) | (calls.part == CallKind.WAIT)
        is_wait = is_sync | ((copied != NONE) & (copied <= calls.end))
        self.waits = self.kept & is_wait & (calls.end <= self.end)
        waiting = np.flatnonzero(self.waits)
        self.of_return = np.full(len(calls), -1)
        self.of_return[waiting] = len(work) + len(calls) + np.arange(len(waiting))
        count = len(work) + len(calls) + len(waiting)
        self.joined = np.flatnonzero(operation >= 0)
        number, first = coded(operation[self.joined])
        self.join = count + number
        self.follows = count + len(first) + np.arange(len(self.joined))
        self.exit = np.arange(len(work))
        self.exit[self.joined] = self.follows
        came = np.full(len(first), NONE)
        np.maximum.at(came, number, work.start[self.joined])
        call_length = np.where(is_wait, 0, calls.end - calls.start)
        work_length = work.end - work.start
        work_length[self.joined] = 0
        self.start = np.concatenate([work.start, calls.start, calls.end[waiting], came, came[number]])
        self.length = np.concatenate([work_length, call_length, np.zeros(len(waiting) + len(first), np.int64),
                                      work.end[self.joined] - came[number]])
        none = np.full(len(first), -1)
        self.work_of = np.concatenate([np.arange(len(work)), np.full(len(calls) + len(waiting), -1), none, self.joined])
        self.call_of = np.concatenate([np.full(len(work), -1), np.arange(len(calls)), waiting, none,
                                       np.full(len(self.joined), -1)])
        self.latency_ns: int | None = None
        self.late_ns: int | None = None

    def graph(self) -> WaitGraph:
        """Return which node waited for which, without edges that the recorded times contradict."""
        source, target, lag, kind, inferred = self._joined()
        room = self.start[target] - self.start[source]
        fits = room >= 0
        if not fits.all():
            source, target, lag, kind, inferred, room = (
                column[fits] for column in (source, target, lag, kind, inferred, room))
        part = np.minimum(self.length[source], room)
        part[kind == Edge.LAUNCH] = 0
        room -= part
        np.minimum(lag, room, out=lag, where=lag != NONE)
        np.copyto(lag, room, where=lag == NONE)
        begin = min(int(self.work.start[0]), int(self.calls.start[self.kept].min(initial=self.end)))
        start = np.minimum(self.start, self.end)  # calls after the end have no edges
        length = np.minimum(self.length, self.end - start)
        dag = Dag(start, length, source, target, part, lag, kind, inferred, self.work_of >= 0, begin, self.end)
        return WaitGraph(dag, self.work_of, self.call_of, self.latency_ns, self.late_ns)

    def _joined(self) -> _EdgeColumns:
        """Return all edges: source, target, least delay (NONE: what was observed), kind, inferred."""
        narrowed = [_narrow(edges) for edges in self._edges()]
        source, target, lag, kind, inferred = (np.concatenate(columns) for columns in zip(*narrowed, strict=True))
        return source, target, lag, kind, inferred

    def _edges(self) -> Iterator[WaitEdges]:
        yield from self._streams()
        yield self._launches()
        yield from self._syncs()
        yield from self._waits()
        yield self._copies()
        yield from self._events()
        yield self._between_streams()
        yield from self._threads()
        yield from self._collectives()

    def _streams(self) -> Iterator[WaitEdges]:
        """Yield work after the work of its lane that ended last; if that still ran, after the start of the one
        before.
        """
        order = np.argsort(self.work.lane, kind="stable")
        before, self.ready = _in_lanes(self.work, self.work.lane)
        start, ready = self.work.start[order], self.ready[order]
        free = (before >= 0) & (ready <= start)
        yield self._after(order[before[free]], order[np.flatnonzero(free)], Edge.STREAM)
        overlapping = np.flatnonzero((before >= 0) & ~free)
        yield self._after(order[overlapping - 1], order[overlapping], Edge.STREAM, inferred=True)
        first = first_rows(self.work.lane[order])
        until = np.r_[first[1:], len(order)]
        lone = np.ones(len(order), bool)
        lone[np.concatenate([before[free], overlapping - 1, until - 1])] = False
        yield self._freed(order, np.flatnonzero(lone), first, until)

    def _freed(self, order: Ints, lone: Ints, first: Ints, until: Ints) -> WaitEdges:
        """Return edges to the work that began in a lane after work there that held nothing else. lone: its
        positions.
        """
        start, end = self.work.start[order], self.work.end[order]
        lane = np.searchsorted(first, lone, side="right") - 1
        sources, targets = [], []
        for number in np.unique(lane).tolist():
            members, stop = lone[lane == number], int(until[number])
            begin = int(first[number])
            after = np.maximum(begin + np.searchsorted(start[begin:stop], end[members]), members + 1)
            sources.append(order[members[after < stop]])
            targets.append(order[after[after < stop]])
        return self._after(joined(sources), joined(targets), Edge.STREAM)

    def _launches(self) -> WaitEdges:
        """Return edges from each launch call's start to its work, with at least the capture's launch latency."""
        rows = np.flatnonzero(self.work.launch >= 0)
        call = self.work.launch[rows]
        delay = self.work.start[rows] - self.calls.start[call]
        first = np.zeros(len(rows), bool)
        first[coded(call)[1]] = True
        sound = first & (delay >= 0)
        idle = sound & (_in_lanes(self.work, self.work.device)[1][rows] <= self.calls.start[call])
        seen = delay[idle] if idle.any() else delay[sound].min(keepdims=True) if sound.any() else delay[:0]
        if len(seen):
            low, middle, high = np.quantile(seen, (0.25, 0.5, 0.75))
            self.latency_ns, self.late_ns = int(middle), int(high + 1.5 * (high - low))
        none = np.zeros(len(rows), bool)
        return WaitEdges(self.of_call[call], rows, Edge.LAUNCH, none, np.full(len(rows), self.latency_ns or 0))

    def _syncs(self) -> Iterator[WaitEdges]:
        """Yield the return of a wait for the whole device after the last work of each stream launched before it.

        Work belongs to the first wait of a thread after its launch that did not return before its end; if waits are
        nested, also to the one that returns first. Work without a known launch counts as launched before all of them.
        """
        syncs = np.flatnonzero(self.waits & (self.calls.part == CallKind.SYNC))
        work, calls = self.work, self.calls
        for thread in _most_frequent(calls.thread[syncs], MOST_WAITERS):
            thread_waits = syncs[calls.thread[syncs] == thread]
            begin, end = calls.start[thread_waits], calls.end[thread_waits]
            first = calls.take(thread_waits[:1])
            rows = np.flatnonzero((work.capture == first.capture) & ((work.process == first.process)
                                                                     | (work.process == NONE)))
            launch = work.launch[rows]
            launched = np.where(launch >= 0, np.searchsorted(begin, calls.start[launch], side="right"), 0)
            at = np.maximum(launched, np.searchsorted(np.maximum.accumulate(end), work.end[rows]))
            rows, at = rows[at < len(thread_waits)], at[at < len(thread_waits)]
            soonest = _soonest(end)[at]
            for wait in (at, soonest) if (soonest != at).any() else (at,):
                ended = np.flatnonzero(work.end[rows] <= end[wait])
                yield self._last_of_streams(rows[ended], self.of_return[thread_waits[wait[ended]]])

    def _last_of_streams(self, rows: Ints, waited: Ints) -> WaitEdges:
        """Return an edge to each return node from the last work of each stream that it waited for."""
        work = self.work
        order = np.lexsort((work.end[rows], work.lane[rows], waited))
        key = np.stack([waited[order], work.lane[rows[order]]])
        last = order[np.r_[(key[:, 1:] != key[:, :-1]).any(axis=0), np.ones(min(1, len(order)), bool)]]
        several = len(np.unique(work.device[rows])) > 1
        return self._after(rows[last], waited[last], Edge.SYNC, inferred=several)

    def _waits(self) -> Iterator[WaitEdges]:
        """Yield the return of a wait for a stream, event or signal after the work that ended last before it."""
        waits = np.flatnonzero(self.waits & (self.calls.part == CallKind.WAIT))
        work, calls = self.work, self.calls
        for capture in np.unique(calls.capture[waits]).tolist():
            members = waits[calls.capture[waits] == capture]
            rows = np.flatnonzero(work.capture == capture)
            rows = rows[np.argsort(work.end[rows], kind="stable")]
            if not len(rows):
                continue
            at = np.searchsorted(work.end[rows], calls.end[members], side="right") - 1
            last = rows[np.maximum(at, 0)]
            launched = np.where(work.launch[last] >= 0, calls.start[np.maximum(work.launch[last], 0)], NONE)
            waited = (at >= 0) & (work.end[last] > calls.start[members]) & (launched < calls.start[members])
            single_lane = len(np.unique(work.lane[rows])) == 1
            yield self._after(last[waited], self.of_return[members[waited]], Edge.SYNC, inferred=not single_lane)

    def _copies(self) -> WaitEdges:
        """Return edges to the return of a copy call from its copy, if that ended before."""
        rows = np.flatnonzero((self.work.kind == COPY) & (self.work.launch >= 0))
        call = self.work.launch[rows]
        waited = self.waits[call] & np.isin(self.calls.part[call], (CallKind.COPY, CallKind.FILL))
        waited &= self.work.end[rows] <= self.calls.end[call]
        rows, call = rows[waited], call[waited]
        return WaitEdges(self.exit[rows], self.of_return[call], Edge.SYNC, self.calls.asynchronous[call],
                         np.zeros(len(rows), np.int64))

    def _events(self) -> Iterator[WaitEdges]:
        """Yield work launched after a stream's event wait, after the last work launched before the event's record."""
        work, calls = self.work, self.calls
        first_work = np.full(len(calls), -1)
        last_work = np.full(len(calls), -1)
        rows = np.flatnonzero(work.launch >= 0)
        first_work[work.launch[rows[::-1]]] = rows[::-1]
        last_work[work.launch[rows]] = rows
        order = np.argsort(calls.thread, kind="stable")
        lane = calls.thread[order]
        part, launching = calls.part[order], last_work[order] >= 0
        record = last_before(lane, part == CallKind.RECORD)
        before_record = last_before(lane, launching)
        after = _next_after(lane, launching)
        waits = np.flatnonzero((part == CallKind.STREAM_WAIT) & (record >= 0) & (after >= 0))
        waits = waits[before_record[record[waits]] >= 0]
        source = last_work[order[before_record[record[waits]]]]
        target = first_work[order[after[waits]]]
        sound = (work.lane[source] != work.lane[target]) & (work.end[source] <= work.start[target]) & (source < target)
        yield self._after(source[sound], target[sound], Edge.EVENT, inferred=True)

    def _between_streams(self) -> WaitEdges:
        """Return edges to work that neither its stream nor its launch explains, from other work that ended just
        before.
        """
        work = self.work
        called = np.full(len(work), NONE)
        launched = np.flatnonzero(work.launch >= 0)
        called[launched] = self.calls.start[work.launch[launched]]
        sources, targets = [], []
        group = coded(work.capture, work.process)[0]
        for number in np.unique(group).tolist():
            rows = np.flatnonzero(group == number)
            by_end = rows[np.argsort(work.end[rows], kind="stable")]
            at = np.searchsorted(work.end[by_end], work.start[rows], side="right") - 1
            last = by_end[np.maximum(at, 0)]
            end = work.end[last]
            idle = (self.ready[rows] == NONE) | (work.start[rows] - self.ready[rows] > KERNEL_WAIT_NS)
            near = (work.start[rows] - end <= KERNEL_WAIT_NS) & (called[rows] < end) | (called[rows] == NONE)
            is_held = (at >= 0) & (last < rows) & (work.lane[last] != work.lane[rows]) & (end > self.ready[rows])
            is_held &= idle & near
            sources.append(last[is_held])
            targets.append(rows[is_held])
        return self._after(joined(sources), joined(targets), Edge.EVENT, inferred=True)

    def _threads(self) -> Iterator[WaitEdges]:
        """Yield each node of a thread after the one before it.

        The time between two calls is the host's own, unless the thread seems to have waited for another.
        """
        calls = self.calls
        at = np.flatnonzero(self.kept)
        back = np.flatnonzero(self.waits)
        node = np.concatenate([self.of_call[at], self.of_return[back]])
        call = np.concatenate([at, back])
        second = np.concatenate([np.zeros(len(at), np.int64), np.ones(len(back), np.int64)])
        order = np.lexsort((second, call, self.start[node], calls.thread[call]))
        node, thread, second = node[order], calls.thread[call[order]], second[order]
        follows = np.flatnonzero(thread[1:] == thread[:-1]) + 1
        sources, targets = self._handed_over(node, call[order], second)
        lag = np.where((second[follows] == 1) | np.isin(node[follows], targets), 0, NONE)
        yield WaitEdges(node[follows - 1], node[follows], Edge.HOST, np.zeros(len(follows), bool), lag)
        yield WaitEdges(sources, targets, Edge.HOST, np.ones(len(sources), bool), np.zeros(len(sources), np.int64))

    def _handed_over(self, node: Ints, call: Ints, second: Ints) -> tuple[Ints, Ints]:
        """Return calls that ended a silence of their thread, and the other thread's node just before each, which began
        one.

        node: thread by thread, in order.
        """
        start, end = self.start[node], self.start[node] + self.length[node]
        thread = self.calls.thread[call]
        same = thread[1:] == thread[:-1]
        quiet = np.where(same, start[1:] - end[:-1] >= HANDED_OVER_NS, True)
        before, after = np.r_[True, quiet], np.r_[quiet, True]
        process = coded(self.calls.capture[call], self.calls.process[call])[0]
        order = np.lexsort((second, call, start, process))
        last, current = order[:-1], order[1:]
        handed = (process[last] == process[current]) & (thread[last] != thread[current]) & (second[current] == 0)
        handed &= after[last] & before[current] & (end[last] <= start[current])
        return node[last[handed]], node[current[handed]]

    def _collectives(self) -> Iterator[WaitEdges]:
        """Yield all ranks' arrivals before the operation, and the operation before what each rank's kernel does
        then.
        """
        none, zero = np.zeros(len(self.joined), bool), np.zeros(len(self.joined), np.int64)
        yield WaitEdges(self.joined, self.join, Edge.PEER, none, zero)
        yield WaitEdges(self.join, self.follows, Edge.PEER, none, zero)

    def _after(self, work: Ints, node: Ints, kind: Edge, inferred: bool = False) -> WaitEdges:
        """Return edges from pieces of work to nodes, without a known delay."""
        return WaitEdges(self.exit[work], node, kind, np.full(len(work), inferred), np.zeros(len(work), np.int64))


def _in_lanes(work: PathWork, lane: Ints) -> tuple[Ints, Ints]:
    """Return, by lane and start, the position of the one before each that ended last (-1: none), and by row its end."""
    order = np.argsort(lane, kind="stable")
    lane, end = lane[order], work.end[order]
    until = latest_end_before(lane, end, np.full(int(lane.max(initial=-1)) + 1, NONE))
    ready = np.empty(len(order), np.int64)
    ready[order] = until
    return last_before(lane, end >= until), ready


def _copied_until(work: PathWork, calls: PathCalls) -> Ints:
    """Return per copy call the end of the last copy that it started; NONE for other calls."""
    until = np.full(len(calls), NONE)
    rows = np.flatnonzero((work.kind == COPY) & (work.launch >= 0))
    np.maximum.at(until, work.launch[rows], work.end[rows])
    return np.where(np.isin(calls.part, (CallKind.COPY, CallKind.FILL)), until, NONE)


def _soonest(end: Ints) -> Ints:
    """Return for each row which row from it on ends first."""
    best = np.minimum.accumulate(end[::-1])[::-1]
    back = np.flatnonzero(end == best)
    return back[np.searchsorted(back, np.arange(len(end)))]


def _next_after(lane: Ints, marked: Flags) -> Ints:
    """Return for each row the index of the first marked row after it in its lane; -1 if there is none."""
    reversed_index = last_before(lane[::-1], marked[::-1])[::-1]
    return np.where(reversed_index >= 0, len(lane) - 1 - reversed_index, -1)


def _most_frequent(values: Ints, most: int) -> list[int]:
    distinct_values, count = np.unique(values, return_counts=True)
    frequent: list[int] = distinct_values[np.argsort(-count, kind="stable")][:most].tolist()
    return frequent
