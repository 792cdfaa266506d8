"""Launches and device work must come in pairs: what is launched runs, what runs was launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.growing_column import GrowingColumn
from aaco.analytics.streaming.id_bitmap import IdBitmap
from aaco.analytics.truth.finding import Finding, Records, Slice
from aaco.core import distinct
from aaco.core.arrays import Ints
from aaco.core.key_index import NONE, KeyIndex
from aaco.core.words import in_percent, plural

REMEMBERED = 1 << 18
PART, WRITTEN, USED = 7, 8, 16  # of a settled launch's byte: what it does, into a graph, had work
AGAIN = "record it again with larger buffers or a shorter window; until then every total is a lower bound"
TRACE_DEVICE = "trace the device too"  # a report names the profiler's option
UNTRACED = "the device's side was not traced, or all of it was lost"
ONE = {"kernel launches": "kernel launch", "graph launches": "graph launch", "copies": "copy"}
RECORD_APIS = "record the host's API calls too (rocprofv3 --hip-trace, nsys -t cuda, torch activities CPU)"


class Tally(Struct):
    """What became of launches: by what they do, how many should have run and how many of those did not."""

    launches: int = 0
    wanted: Counter[int] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)
    written: int = 0  # into a graph, not run
    twice: int = 0  # launches of one kernel that have several
    graphs: Counter[int] = field(default_factory=Counter)  # how many graph launches have this many kernels


class Pairs:
    """Pairs launches with their work as slices come, for every check that needs the pair.

    The last REMEMBERED launches are remembered in full, at 40 bytes each. Of those before, which nearly all have had
    their work, a byte is kept: what they do and whether they had work. Work that comes as late as that is still paired,
    but without the time of its launch, and a second kernel of one launch is not noticed.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self._links = KeyIndex()  # the number of each launch
        self._columns = {"id": GrowingColumn(), "part": GrowingColumn(np.int8), "start": GrowingColumn(),
                         "hits": GrowingColumn(np.int32), "written": GrowingColumn(np.int8)}
        self._settled = IdBitmap()
        self._gone = 0  # launches settled: the number of the first one remembered
        self._running = np.zeros((2, 0), np.int64)  # ids and ends of launch calls that reach beyond their slice
        self._open: dict[int, bool] = {}

    def take(self, calls: Records, part: NDArray[np.int8]) -> None:
        """Take in the launching calls of a slice. A launch inside another launch call is the same launch."""
        recording = self._recording(calls, part)
        rows = np.flatnonzero((part > CallKind.OTHER) & (part <= CallKind.FILL) & (calls["correlation_id"] > 0))
        rows = rows[~self._inside_another(calls, rows)]
        first = self._gone + len(self._columns["id"])
        self._links.add(calls["correlation_id"][rows], np.arange(first, first + len(rows)))
        values: dict[str, Any] = {
            "id": calls["correlation_id"][rows], "part": part[rows], "start": calls["t_start_ns"][rows],
            "hits": np.zeros(len(rows), np.int32), "written": recording[rows].astype(np.int8)}
        for name, column in self._columns.items():
            column.append(values[name])
        if len(self._columns["id"]) > 2 * REMEMBERED:
            self._settle(len(self._columns["id"]) - REMEMBERED)

    def match(self, work: Records) -> tuple[NDArray[np.int8], Ints]:
        """Per row of device work what its launch does (0 where unknown) and when that call began (-1 where unknown)."""
        ids = work["correlation_id"]
        launch = self._links.find(ids)
        known = launch != NONE
        place = launch[known] - self._gone
        self._columns["hits"].all[:] += np.bincount(place, minlength=len(self._columns["hits"]))
        part, start = np.zeros(len(launch), np.int8), np.full(len(launch), -1, np.int64)
        part[known] = self._columns["part"].all[place]
        start[known] = self._columns["start"].all[place]
        part[~known] = self._late(ids[~known])
        return part, start

    def has(self, ids: Ints) -> NDArray[np.bool_]:
        """Return whether a launch with this id was ever taken in."""
        return (self._links.find(ids) != NONE) | (self._settled.of(ids) > 0)

    def close(self) -> Tally:
        """Return what became of all launches."""
        self._settle(len(self._columns["id"]))
        return self.tally

    def _late(self, ids: Ints) -> NDArray[np.int8]:
        """Return what the settled launches with these ids do; they have work after all."""
        flags = self._settled.of(ids)
        first = distinct.values(ids[(flags > 0) & (flags & USED == 0)])
        for part in (self._settled.of(first) & PART)[self._settled.of(first) & WRITTEN == 0].tolist():
            self.tally.lost[part] -= 1
        self._settled.mark(first, USED)
        return (flags & PART).astype(np.int8)

    def _settle(self, count: int) -> None:
        """Forget the first launches; what became of them goes into the tally."""
        ids, part, _, hits, written = (column.all[:count] for column in self._columns.values())
        tally, run = self.tally, written == 0
        tally.launches += count
        tally.wanted.update(distinct.counts(part[run]))
        tally.lost.update(distinct.counts(part[run & (hits == 0)]))
        tally.written += int((~run & (part <= CallKind.GRAPH)).sum())
        tally.twice += int(((hits > 1) & (part == CallKind.LAUNCH)).sum())
        tally.graphs.update(distinct.counts(hits[(part == CallKind.GRAPH) & (hits > 0)]))
        flags = part + np.where(run, 0, WRITTEN) + np.where(hits > 0, USED, 0)
        self._settled.mark(ids.copy(), flags.astype(np.uint8))
        self._gone += count
        self._links.forget(self._gone)
        for column in self._columns.values():
            column.drop(count)

    def _inside_another(self, calls: Records, rows: Ints) -> NDArray[np.bool_]:
        """Return whether each of these launch calls was made by another one, maybe of an earlier slice."""
        known = np.append(self._running, [calls["call_id"][rows], calls["t_end_ns"][rows]], axis=1)
        self._running = known[:, known[1] > int(calls["t_start_ns"].max(initial=0))]
        return np.isin(calls["parent_id"][rows], known[0])

    def _recording(self, calls: Records, part: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Per call whether its thread is recording a graph: such launches are written down, not run."""
        recording = np.zeros(len(part), bool)
        marks = np.flatnonzero((part == CallKind.BEGIN_CAPTURE) | (part == CallKind.END_CAPTURE))
        if not len(marks) and not any(self._open.values()):
            return recording
        threads = calls["thread_id"]
        for thread in np.unique(threads).tolist():
            rows = np.flatnonzero(threads == thread)
            begins = np.cumsum(part[rows] == CallKind.BEGIN_CAPTURE) - np.cumsum(part[rows] == CallKind.END_CAPTURE)
            recording[rows] = begins + self._open.get(thread, False) > 0
            self._open[thread] = bool(recording[rows[-1]])
        return recording


class LaunchCheck:
    """Launches without work, work without a launch, ids that are zero or used twice, graphs that hide kernels."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.kernels, self.kernel_ns = 0, 0
        self.linked, self.linked_ns = 0, 0
        self.no_id, self.no_id_ns = 0, 0
        self.loose_ids, self.loose_ns = GrowingColumn(), GrowingColumn()
        self.by_graph, self.by_graph_ns = 0, 0
        self.called = IdBitmap()  # ids of calls of any kind: those of a runtime not known here launch, too
        self.first_id, self.last_id = np.iinfo(np.int64).max, -1
        self.copies, self.named_copies = 0, 0
        self.launch_calls = 0  # with or without a correlation id

    def add(self, piece: Slice) -> None:
        """Count the kernels of the slice by what is known of their launch."""
        ids, took = piece.kernels["correlation_id"], piece.kernels["dur_ns"]
        no_id, linked = ids <= 0, (piece.launch_part != CallKind.OTHER) & (ids > 0)
        loose = ~no_id & ~linked
        graph = linked & (piece.launch_part == CallKind.GRAPH)
        self.kernels, self.kernel_ns = self.kernels + len(ids), self.kernel_ns + int(took.sum())
        self.linked, self.linked_ns = self.linked + int(linked.sum()), self.linked_ns + int(took[linked].sum())
        self.no_id, self.no_id_ns = self.no_id + int(no_id.sum()), self.no_id_ns + int(took[no_id].sum())
        self.by_graph, self.by_graph_ns = self.by_graph + int(graph.sum()), self.by_graph_ns + int(took[graph].sum())
        self.copies += len(piece.copies)
        self.launch_calls += int(np.isin(piece.call_part, (CallKind.LAUNCH, CallKind.GRAPH)).sum())
        self.named_copies += int((piece.copies["correlation_id"] > 0).sum())
        self.loose_ids.append(ids[loose])
        self.loose_ns.append(took[loose])
        called = piece.calls["correlation_id"]
        if (called > 0).any():
            self.called.mark(called[called > 0], 1)
            self.first_id = min(self.first_id, int(called[called > 0].min()))
            self.last_id = max(self.last_id, int(called.max()))

    def findings(self) -> Iterator[Finding]:
        """Yield what does not pair up, and what cannot be told."""
        tally = self.pairs.close()
        if not tally.launches and (self.last_id < 0 or self.called.of(self.loose_ids.all).any()):
            if self.launch_calls and not self.kernels:
                yield Finding("work_not_recorded", "lost", self.launch_calls, self.launch_calls,
                              f"{self.launch_calls} launches were recorded, but no kernel", TRACE_DEVICE)
            if self.kernels:
                yield Finding("launches_recorded", "note", self.kernels, self.kernels, "no launch calls were recorded: "
                              "so launches cannot show whether kernels are missing", RECORD_APIS, self.kernel_ns)
            return
        yield from self._lost(tally)
        yield from self._loose()
        yield from self._ids(tally)
        yield from self._graphs(tally)

    def _lost(self, tally: Tally) -> Iterator[Finding]:
        # A fill of a few bytes may leave no record on a healthy trace (49 of 51 on an H100), so fills prove nothing.
        kinds = ((CallKind.LAUNCH, "kernel launches", self.kernels), (CallKind.GRAPH, "graph launches", self.kernels),
                 (CallKind.COPY, "copies", self.copies))
        for does, what, there in kinds:
            wanted, lost = tally.wanted[does], tally.lost[does]
            if does == CallKind.COPY and there and not self.named_copies:
                continue  # what says of no copy which call it is of, does not say that one is missing
            if lost and not there:
                yield Finding("work_not_recorded", "note" if does == CallKind.COPY else "lost", lost, lost,
                              f"{lost} {ONE[what]} was recorded, but not its work: {UNTRACED}" if lost == 1 else
                              f"{lost:,} {what} were recorded, but none of their work: {UNTRACED}", TRACE_DEVICE)
            elif lost:
                yield Finding("launches_without_work", "lost", lost, wanted,
                              f"{lost:,} of {wanted:,} {what} have no record of their work on the device "
                              f"({in_percent(100 * lost / wanted, 3)})", AGAIN)
        if tally.written:
            yield Finding("launches_into_a_graph", "note", tally.written, tally.launches,
                          f"{tally.written:,} launches were recorded into a graph, not run: they have no work of their "
                          "own")

    def _loose(self) -> Iterator[Finding]:
        ids, ns = self.loose_ids.all, self.loose_ns.all
        late = self.pairs.has(ids)  # their launch came later in time: a matter of clocks
        outside = ((ids < self.first_id) | (ids > self.last_id)) & ~late
        inside = ~outside & ~late
        if outside.any():
            yield Finding("launched_outside_the_window", "note", int(outside.sum()), self.kernels,
                          f"{plural(int(outside.sum()), 'kernel')} launched before the recording of calls began or "
                          "after it ended: counted in every total, linked to no call", ns=int(ns[outside].sum()))
        if inside.any():
            yield Finding("work_without_launch", "lost", int(inside.sum()), self.kernels,
                          f"{plural(int(inside.sum()), 'kernel')} with a correlation id that no recorded call has: "
                          "calls are missing", AGAIN, int(ns[inside].sum()))

    def _ids(self, tally: Tally) -> Iterator[Finding]:
        if self.no_id:
            yield Finding("no_correlation_id", "wrong" if self.linked else "note", self.no_id, self.kernels,
                          f"{plural(self.no_id, 'kernel')} without a correlation id, linked to no call",
                          "update the profiler (roctracer wrote 0 for some libraries' kernels)", self.no_id_ns)
        if tally.twice:
            yield Finding("correlation_id_used_twice", "wrong", tally.twice, tally.launches,
                          f"{plural(tally.twice, 'id')} of a launch of one kernel stood for several: not unique",
                          "traces of several processes must be imported as separate files")

    def _graphs(self, tally: Tally) -> Iterator[Finding]:
        if not self.by_graph:
            return
        sizes, times = (np.array(column, np.int64) for column in zip(*sorted(tally.graphs.items()), strict=True))
        yield Finding("kernels_behind_graphs", "note", self.by_graph, self.kernels,
                      f"{plural(self.by_graph, 'kernel')} started by {plural(int(times.sum()), 'graph launch')}: one "
                      "id for many kernels, so a missing one is not seen by its launch", ns=self.by_graph_ns)
        usual = int(sizes[times.argmax()])
        near = (sizes != usual) & (np.abs(sizes - usual) <= max(1, usual // 10))
        if times.max() >= 3 and near.any():
            odd = int(times[near].sum())
            yield Finding("uneven_graphs", "lost" if odd <= times.max() else "doubt", odd, int(times.sum()),
                          f"{plural(odd, 'graph launch')} with a few kernels more or fewer than the usual {usual:,}",
                          AGAIN)
