"""Match the kernels of a replayed device graph to the launches recorded at its capture.

While a stream is captured, launches run nothing: they become nodes of a graph, in order. One call then replays all of
them. If the capture is in the trace, or in a reference trace, the n-th kernel of a replay is the n-th launch of the
capture, provided that their number and names agree: ROCm writes the kernel's name with a launch. CUDA does not, so
there each operator must be one that launches such kernels, and all kernels must run on one stream, because only there
time order is launch order.

Captures of different batch sizes often have the same launches. So shapes come from a capture only if its batch is that
of the replay, as the annotations of both say, or if all captures that match have the same shapes.

Where no capture fits, the same step without a graph may tell: the kernels of a piece follow each other there too, else
both are aligned (analytics/serving/alignment.py). A kernel that may be several of them gets no operator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from aaco.analytics.attribution.launchable import may_launch, usually_launches
from aaco.analytics.kernels.families import decode
from aaco.analytics.serving.alignment import align
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.link_launches import CaptureMark
from aaco.analytics.streaming.stream_ids import NONE
from aaco.core.arrays import Ints
from aaco.core.tables import EAGER_STEP

MOST = 1 << 18  # captured launches that are remembered
IN_TRACE = "graph capture in the trace"


class GraphBatch(Struct, frozen=True):
    """What is known of the batch that a graph was captured for: exactly, or that it serves this many requests."""

    exact: int | None = None
    requests: int | None = None

    def fits(self, batch: int | None) -> bool:
        """Return whether a graph of this batch is proved to be the one. A larger graph than the requests need may be
        padded, which only the annotation of the graph itself can prove."""
        return batch is not None and batch == (self.requests if self.exact is None else self.exact)


NO_BATCH = GraphBatch()


class Captured(Struct):
    """A captured graph. Per launch: the operator's row, the operator's call (-1: none), its name and its inputs'
    number (-1: none), and the kernel's name. batch: of the requests that it was captured for, None if it does not say.
    source: what tells of it, for the operators table. given: it comes from a reference trace.
    """

    capture: int
    rows: list[int] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    called: list[str | None] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    batch: int | None = None
    source: str = IN_TRACE
    given: bool = False
    families: list[str | None] = field(default_factory=list)  # of an eager step, which is no graph

    @property
    def is_eager(self) -> bool:
        """Whether these are the kernels of a step without a graph."""
        return bool(self.families)

    @property
    def named(self) -> bool:
        """Whether all launches name their kernel."""
        return bool(self.names) and None not in self.names

    def order_of(self, replay: ReplayedKernels) -> list[int] | None:
        """Return which launch each kernel of a replay is of; None if the replay is not of this graph."""
        names = replay.names
        if len(names) != len(self.names):
            return None
        if all(mine is None or mine == its for mine, its in zip(self.names, names, strict=True)):
            return list(range(len(names))) if self.named or self._may_be(replay) else None
        return self._by_name(names) if self.named else None

    def launches_of_piece(self, names: Sequence[str | None]) -> list[int]:
        """Return the launches that have these names one after the other; -1 where several that do are of different
        rows. Empty if there are none: pieces of a step occur once a layer, too short to be aligned separately.
        """
        starts = [start for start in range(len(self.names) - len(names) + 1)
                  if self.names[start:start + len(names)] == list(names)] if None not in names else []
        return [starts[0] + place if len({self.rows[start + place] for start in starts}) == 1 else -1
                for place in range(len(names))] if starts else []

    def _may_be(self, replay: ReplayedKernels) -> bool:
        """Return whether each launch may be of the kernel at its place, though it does not name it."""
        return replay.in_launch_order and all(map(may_launch, self.called, replay.families))

    def _by_name(self, names: Sequence[str | None]) -> list[int] | None:
        """Return the launches by name only, the n-th of a name for the n-th: streams run them in an order of their
        own. None unless every launch of a name is of the same operator with the same inputs."""
        launches = defaultdict[str | None, list[int]](list)
        for place, name in enumerate(self.names):
            launches[name].append(place)
        calls = ({(self.called[place], self.inputs[place]) for place in places} for places in launches.values())
        if Counter(names) != Counter(self.names) or any(len(different) > 1 for different in calls):
            return None
        turns = {name: iter(places) for name, places in launches.items()}
        return [next(turns[name]) for name in names]


class ReplayedKernels(Struct, frozen=True):
    """The kernels of one graph launch, in order: names and families. in_launch_order: whether their order is that of
    the graph's nodes. batch: what the annotation of the launch says of the graph's batch."""

    names: Sequence[str | None]
    families: Sequence[str | None]
    in_launch_order: bool = True
    batch: GraphBatch = NO_BATCH


class MatchedGraph(Struct, frozen=True):
    """The captured graph, or the eager step, of a replay. launches: of each kernel, -1 where none is certain.
    named: the names prove it. shaped: its shapes are those of the replay."""

    graph: Captured
    launches: list[int]
    named: bool
    shaped: bool


class Launched(Struct, frozen=True):
    """Launches of a slice in start order, as columns. name: of the kernel, if the trace has it. called, inputs: the
    operator's name, and the number of its inputs."""

    start: Ints
    thread: Ints
    capture: Ints
    row: Ints
    operator: Ints
    name: Sequence[str | None]
    called: Sequence[str | None]
    inputs: Ints


def _likeliest(fitting: list[tuple[Captured, list[int]]], replay: ReplayedKernels
               ) -> list[tuple[Captured, list[int]]]:
    """Return those of several graphs whose operators most often launch such kernels."""
    usual = [sum(map(usually_launches, graph.called, replay.families)) for graph, _ in fitting]
    return [pair for pair, count in zip(fitting, usual, strict=True) if count == max(usual)]


class Graphs:
    """The captured graphs of a trace that streams by."""

    def __init__(self) -> None:
        self.captured: list[Captured] = []
        self._open: dict[int, Captured] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.captured)

    def inside(self, thread: Ints, start: Ints, marks: Sequence[CaptureMark]) -> np.ndarray:
        """Return which launches of a slice are in a capture."""
        is_inside = np.zeros(len(start), bool)
        opened = dict.fromkeys(self._open, -(2**62))
        for at, marked_thread, _, does, _ in marks:
            if does == CallKind.BEGIN_CAPTURE:
                opened[marked_thread] = at
            elif marked_thread in opened:
                is_inside |= (thread == marked_thread) & (start >= opened.pop(marked_thread)) & (start < at)
        for marked_thread, since in opened.items():
            is_inside |= (thread == marked_thread) & (start >= since)
        return is_inside

    def feed(self, launched: Launched, marks: Sequence[CaptureMark], batches: Sequence[int | None]) -> None:
        """Take the launches of a slice that are in captures, and the begins and ends of captures. batches: of each mark
        the batch that the ranges around it name."""
        events = [(int(at), 1, place) for place, at in enumerate(launched.start)]
        events += [(mark.start, 0, place) for place, mark in enumerate(marks)]
        for _, is_launch, place in sorted(events):
            if is_launch:
                self._launch(launched, place)
            else:
                self._mark(marks[place], batches[place])

    def of_replay(self, capture: int, replay: ReplayedKernels) -> MatchedGraph | None:
        """Return the graph of a replay; None if no graph fits, or several that differ in their operators.

        A graph of the replay's own capture goes before others, one whose names prove it before one that fits by
        position, the latest first, because graphs can be captured again.
        """
        fitting = [(graph, launches) for graph in reversed(self.captured)
                   if not graph.is_eager and (launches := graph.order_of(replay)) is not None]
        fitting = [pair for pair in fitting if pair[0].named] or fitting
        fitting.sort(key=lambda pair: pair[0].capture != capture)
        of_batch = [pair for pair in fitting if replay.batch.fits(pair[0].batch)]
        best = of_batch or fitting
        if not best:
            return self._of_eager(replay)
        if not best[0][0].named:
            best = _likeliest(best, replay)
        if len({tuple(graph.called) for graph, _ in best}) > 1 and not best[0][0].named:
            return None
        graph, launches = best[0]
        same = all(other.inputs == graph.inputs for other, _ in fitting)
        return MatchedGraph(graph, launches, graph.named, bool(of_batch) or (same and not graph.given))

    def _of_eager(self, replay: ReplayedKernels) -> MatchedGraph | None:
        """Return the eager step that tells most of a replay's kernels; one of the same batch before others."""
        best: tuple[tuple[bool, int], MatchedGraph] | None = None
        for step in (step for step in self.captured if step.is_eager):
            launches = step.launches_of_piece(replay.names) or align(
                *(["" if text is None else text for text in column] for column in
                  (replay.names, step.names, replay.families, step.families))).index.tolist()
            shaped, told = replay.batch.fits(step.batch), sum(launch >= 0 for launch in launches)
            if told and (best is None or (shaped, told) > best[0]):
                best = (shaped, told), MatchedGraph(step, launches, False, shaped)
        return best[1] if best else None

    def _mark(self, mark: CaptureMark, batch: int | None) -> None:
        if mark.does == CallKind.BEGIN_CAPTURE:
            self._open[mark.thread] = Captured(mark.capture, batch=batch)
        elif (done := self._open.pop(mark.thread, None)) is not None and done.rows:
            self.captured.append(done)

    def _launch(self, launched: Launched, place: int) -> None:
        graph = self._open.get(int(launched.thread[place]))
        if graph is None or self._count >= MOST:
            return
        self._count += 1
        graph.rows.append(int(launched.row[place]))
        graph.operators.append(int(launched.operator[place]))
        graph.names.append(launched.name[place])
        graph.called.append(launched.called[place])
        graph.inputs.append(int(launched.inputs[place]))


class Replay(Struct):
    """The kernels of one graph launch as they come: columns of id, name, length, node of the graph (NONE: not
    recorded) and stream. alone: the row of its kernels if no captured graph matches."""

    capture: int
    alone: int
    batch: GraphBatch = NO_BATCH
    parts: list[Ints] = field(default_factory=list)

    def kernels(self) -> ReplayKernels:
        """Return its kernels in the order of the graph's nodes, or of their starts."""
        columns = self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts, axis=1)
        nodes, streams = columns[3], columns[4]
        is_numbered = bool((nodes != NONE).all()) and len(np.unique(nodes)) == len(nodes)
        if is_numbered:
            columns = columns[:, np.argsort(nodes, kind="stable")]
        return ReplayKernels(columns[0], columns[1], columns[2], is_numbered or bool((streams == streams[0]).all()))


class ReplayKernels(Struct, frozen=True):
    """The kernels of one graph launch: ids, numbers of names, lengths. in_launch_order: whether so the graph has them.
    """

    ids: Ints
    names: Ints
    lengths: Ints
    in_launch_order: bool


def captured_graphs(references: pa.Table, row: Ints, inputs: Ints) -> list[Captured]:
    """Return the graphs of reference launches. row, inputs: numbers of their operators' rows and inputs."""
    columns = (references[name].to_pylist() for name in (
        "graph", "kind", "source", "batch", "kernel_name", "operator", "call"))
    graphs = dict[int, Captured]()
    for graph, kind, source, batch, kernel, operator, call, its_row, its_inputs in zip(
            *columns, row.tolist(), inputs.tolist(), strict=True):
        captured = graphs.setdefault(graph, Captured(NONE, batch=batch, source=source, given=True))
        captured.rows.append(its_row)
        captured.operators.append(-1 if call is None else call)
        captured.names.append(kernel)
        captured.called.append(operator)
        captured.inputs.append(its_inputs)
        if kind == EAGER_STEP:
            captured.families.append(decode(kernel or "").family)
    return list(graphs.values())


class _LaunchArguments(msgspec.Struct, gc=False):
    kernel: str | None = None


_KERNEL = msgspec.json.Decoder(_LaunchArguments)


def kernel_of(arguments: str | None) -> str | None:
    """Return the kernel that a launch's arguments name; None if they name none."""
    try:
        return _KERNEL.decode(arguments or "{}").kernel
    except msgspec.DecodeError:
        return None
