"""Map kernels to the operator, module and annotation that launched them, in one pass over a framework's trace.

A kernel belongs to its launch by correlation id, and a launch to the innermost operator around it on its thread. Both
are facts of the trace, so the method is `exact_span`. One call that replays a device graph launches many kernels;
graphs.py joins these to the capture if it was traced. The other kernels, and those whose launch is not in the trace,
have no operator and a reason for it. Every kernel with a duration is in the map once, so time is conserved to the ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco.analytics.attribution.call_context import CALL_COLUMNS, CallContext, CallContexts, CallLine, Is
from aaco.analytics.attribution.graphs import (
    NO_BATCH,
    Captured,
    GraphBatch,
    Graphs,
    Launched,
    MatchedGraph,
    Replay,
    ReplayedKernels,
    ReplayKernels,
    captured_graphs,
    kernel_of,
)
from aaco.analytics.attribution.nodes import EXACT
from aaco.analytics.attribution.operators import Operators, Signatures, Why
from aaco.analytics.attribution.phases import Numbers, Phase, Phases, joined, kept, meaning, numbers_of
from aaco.analytics.serving.ranges import captured_batch, replayed_batch
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.link_launches import CALL_COLUMNS as LINK_COLUMNS
from aaco.analytics.streaming.link_launches import Callers, LaunchCalls, Linked, Linker
from aaco.analytics.streaming.stream_ids import NONE, NameIds, integers
from aaco.analytics.streaming.work import WorkRows, links
from aaco.core.arrays import Ints, find_sorted
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, KERNELS, OP_TO_KERNEL_MAP, REFERENCE_LAUNCHES

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_id", "kernel_name", "family", "correlation_id", "launch_id", "t_start_ns", "dur_ns",
                "graph_node_id", "capture", "stream_id"),
    "api_calls": tuple(dict.fromkeys((*CALL_COLUMNS, *LINK_COLUMNS)))}
ARGUMENT_COLUMNS = ("call_id", "arguments")
UNDECIDED = -1


class Attribution:
    """One pass over a trace. `feed` returns the map of the kernels that it settles, `operators` the sums at the end."""

    def __init__(self, references: pa.Table | None = None, with_launches: bool = False) -> None:
        """references: rows of REFERENCE_LAUNCHES, which tell of the graphs that the trace replays. with_launches:
        whether the kernels have launch_id.
        """
        self._with_launches = with_launches
        self._callers, self._linker = Callers(with_launches), Linker(("part", "tag"))
        self._contexts, self._signatures = CallContexts(), Signatures()
        self._operators = Operators()
        self._kernels, self._families = NameIds(), NameIds()
        self._family_of: Ints = np.zeros(0, np.int64)
        self._texts: dict[int, str] = {}  # arguments of operators that are still open
        self._phases, self._phase_of_name = Phases(), np.zeros(0, np.int64)
        self._numbers = Numbers(*(np.zeros(0, np.int64) for _ in range(3)))  # of calls that are still open
        self._graphs = Graphs()
        self._replays: dict[int, Replay] = {}  # by graph launch; held only where a capture is known
        self._batches: dict[tuple[int, int], GraphBatch] = {}  # by capture and link of a graph launch
        self._matches: dict[tuple[int, GraphBatch, bool, bytes], MatchedGraph | None] = {}
        if references is not None:
            self._graphs.captured += self._given(references)

    def feed(self, kernels: pa.Table, api_calls: pa.Table, arguments: pa.Table, until: int | None) -> pa.Table:
        """Return the op_to_kernel_map rows of the kernels that can be settled now.

        kernels, api_calls: the rows that start next, in start order, with COLUMNS. arguments: the call_arguments rows
        of these calls, by call_id. until: later rows start at or after it; None: there are none.
        """
        line = self._contexts.line(api_calls)
        around = self._place(line, self._contexts.around(line), arguments)
        calls = self._callers.launching(api_calls, line.carried + np.arange(api_calls.num_rows))
        launches = calls.part <= CallKind.FILL
        tag = calls.tag.copy()
        tag[launches] = self._launching(line, around, calls.tag[launches], calls.part[launches], arguments)
        self._note_captured(api_calls, line, around, calls, tag, arguments)
        self._note_batches(line, calls)
        self._close(line, around, arguments, until)
        linked = self._linker.feed(self._work(kernels), replace(calls, tag=tag), until)
        return self._settle(linked) if linked else OP_TO_KERNEL_MAP.build()

    def _place(self, line: CallLine, around: CallContext, arguments: pa.Table) -> CallContext:
        """Return the context of the calls, with phases if the trace has a backward pass."""
        names = self._contexts.names.known
        phases = [meaning(name) for name in names[len(self._phase_of_name):]]
        self._phase_of_name = np.concatenate([self._phase_of_name, np.array(phases, np.int64)])
        if not (self._phase_of_name == Phase.BACKWARD).any():
            return around
        self._numbers = joined(self._numbers, numbers_of(arguments))
        return self._phases.placed(line, around, self._phase_of_name, self._numbers)

    def untimed(self, kernels: pa.Table) -> pa.Table:
        """Return the map of kernels without a start, which are in no slice."""
        work = self._work(kernels)
        return self._mapped(work, self._operators.nowhere(work.capture, Why.NO_START))

    def rest(self) -> pa.Table:
        """Return the map rows that need the whole trace. Call it once, after the last `feed` and before `operators`."""
        empty = {spec.name: spec.build().select(COLUMNS[spec.name]) for spec in (KERNELS, API_CALLS)}
        last = self.feed(empty["kernels"], empty["api_calls"], CALL_ARGUMENTS.build(), None)
        replays = [self._replayed(replay) for replay in self._replays.values()]
        if not replays:
            return last
        return pa.concat_tables([last, self._rows(*map(np.concatenate, zip(*replays, strict=True)))])

    def operators(self) -> pa.Table:
        """Return the operators table, the longest on the device first."""
        return self._operators.table(self._contexts.names.known, self._contexts.path, self._signatures.known,
                                     self._families.known)

    def captured(self) -> pa.Table:
        """Return the graphs that were captured in the trace, as rows of REFERENCE_LAUNCHES without kind and source."""
        graphs = self._graphs.captured
        rows = [row for graph in graphs for row in graph.rows]
        calls = [call if call >= 0 else None for graph in graphs for call in graph.operators]
        described = self._operators.described(rows, self._contexts.names.known, self._contexts.path,
                                              self._signatures.known)
        return REFERENCE_LAUNCHES.build(
            graph=[number for number, graph in enumerate(graphs) for _ in graph.rows],
            batch=[graph.batch for graph in graphs for _ in graph.rows],
            kernel_name=[name for graph in graphs for name in graph.names], call=calls, **described)

    def _launching(self, line: CallLine, around: CallContext, places: Ints, part: Ints, arguments: pa.Table) -> Ints:
        """Return the operator's row of each launching call, by its place in the line."""
        operator = around.operator[places]
        owners = np.unique(operator[operator >= 0])
        fresh = owners[line.row[owners] == UNDECIDED]
        signature = self._signatures.numbers(self._arguments(line.id[fresh], arguments))
        line.row[fresh] = self._operators.rows(line, around, fresh, signature)
        reasons = np.where(part == CallKind.GRAPH, Why.REPLAYED, Why.NO_OPERATOR)
        of_none = self._operators.outside(line, around, places, reasons)
        return np.where((operator >= 0) & (part != CallKind.GRAPH), np.append(line.row, -1)[operator], of_none)

    def _arguments(self, ids: Ints, arguments: pa.Table) -> list[str | None]:
        """Return the arguments of calls as text, from this slice or from the calls that are still open."""
        places = find_sorted(integers(arguments["call_id"]), ids)
        is_there = places >= 0
        texts = iter(arguments["arguments"].take(pa.array(places[is_there])).to_pylist())
        return [next(texts) if is_here else self._texts.get(key)
                for key, is_here in zip(ids.tolist(), is_there, strict=True)]

    def _close(self, line: CallLine, around: CallContext, arguments: pa.Table, until: int | None) -> None:
        """Settle the operators that have ended: their calls and their host time."""
        operators = np.flatnonzero((line.kind == Is.OPERATOR) & (np.arange(len(line)) >= line.carried))
        inside = operators[around.above[operators] >= 0]
        np.add.at(line.inner, around.above[inside], line.end[inside] - line.start[inside])
        closed = self._contexts.keep(line, until) & (line.kind == Is.OPERATOR)
        self._numbers = kept(self._numbers, self._contexts.open_ids)
        silent = np.flatnonzero(closed & (line.row == UNDECIDED))
        line.row[silent] = self._operators.rows(line, around, silent, np.full(len(silent), -1))
        ended = np.flatnonzero(closed)
        self._operators.count_calls(line.row[ended], line.end[ended] - line.start[ended] - line.inner[ended])
        waiting = line.id[(line.kind == Is.OPERATOR) & ~closed & (line.row == UNDECIDED)]
        texts = self._arguments(waiting, arguments)
        self._texts = {key: text for key, text in zip(waiting.tolist(), texts, strict=True) if text is not None}

    def _work(self, kernels: pa.Table) -> WorkRows:
        """Return the kernels with a duration, as the linker takes them."""
        self._learn(kernels)
        timed = kernels.filter(kernels["dur_ns"].is_valid())
        start, length = integers(timed["t_start_ns"]), integers(timed["dur_ns"])
        zero = np.zeros(len(start), np.int64)
        return WorkRows(start, start + length, zero, zero, integers(timed["stream_id"]), integers(timed["capture"]),
                        links(timed, self._with_launches), self._kernels.numbers(timed["kernel_name"]),
                        integers(timed["kernel_id"]), integers(timed["graph_node_id"]))  # carried as the iteration

    def _learn(self, kernels: pa.Table) -> None:
        """Remember the family of each kernel name."""
        name, family = self._kernels.numbers(kernels["kernel_name"]), self._families.numbers(kernels["family"])
        self._family_of = np.concatenate([self._family_of, np.full(len(self._kernels) - len(self._family_of), -1)])
        is_named = (name >= 0) & (family >= 0)
        self._family_of[name[is_named]] = family[is_named]

    def _settle(self, linked: Linked) -> pa.Table:
        row = linked.call.tag.copy()
        lost = linked.number < 0
        row[lost] = self._operators.nowhere(linked.work.capture[lost], Why.NO_LAUNCH)
        replayed = ~lost & (linked.call.part == CallKind.GRAPH) & bool(self._graphs)
        self._hold(linked, np.flatnonzero(replayed))
        return self._mapped(linked.work.take(~replayed), row[~replayed])

    def _mapped(self, work: WorkRows, row: Ints) -> pa.Table:
        return self._rows(work.kernel_id, work.name, work.end - work.start, row)

    def _rows(self, kernel_id: Ints, name: Ints, length: Ints, row: Ints) -> pa.Table:
        family = np.append(self._family_of, -1)[np.maximum(name, -1)]
        self._operators.count_kernels(row, length, family)
        method = self._operators.methods(row)
        exact = pc.is_in(method, pa.array(EXACT))
        return OP_TO_KERNEL_MAP.build(kernel_id=kernel_id, method=method.dictionary_encode(), share_ns=length,
                                      operator_id=row, confidence=pc.if_else(exact, 1.0, pa.scalar(None, pa.float64())))

    def _note_captured(self, api_calls: pa.Table, line: CallLine, around: CallContext, calls: LaunchCalls, tag: Ints,
                       arguments: pa.Table) -> None:
        """Remember the launches made while a stream was captured."""
        marks = self._callers.marks(api_calls)
        launches = np.flatnonzero(calls.part == CallKind.LAUNCH)
        captured = launches[self._graphs.inside(calls.thread[launches], calls.start[launches], marks)]
        if not len(captured) and not marks:
            return
        places = calls.tag[captured]
        owner = np.where(around.operator[places] >= 0, line.id[around.operator[places]], -1)
        texts = self._arguments(line.id[places], arguments)
        called, inputs = self._operators.called(tag[captured])
        names = [self._contexts.names.text(number) or None for number in called.tolist()]
        marked = line.carried + np.array([mark.row for mark in marks], np.int64)
        batches = [captured_batch(ranges) for ranges in self._contexts.ranges_around(line, marked)]
        self._graphs.feed(Launched(calls.start[captured], calls.thread[captured], calls.capture[captured],
                                   tag[captured], owner, [kernel_of(text) for text in texts], names, inputs),
                          marks, batches)

    def _note_batches(self, line: CallLine, calls: LaunchCalls) -> None:
        """Remember what the ranges around each launch of a graph say of its batch."""
        graphs = calls.take(calls.part == CallKind.GRAPH)
        for capture, link, ranges in zip(graphs.capture.tolist(), graphs.link.tolist(),
                                         self._contexts.ranges_around(line, graphs.tag), strict=True):
            self._batches[capture, link] = GraphBatch(*replayed_batch(ranges))

    def _given(self, references: pa.Table) -> list[Captured]:
        """Return the graphs that reference traces tell of."""
        names = {column: self._contexts.names.numbers(references[column]) for column in
                 ("operator", "outermost", "module", "annotation", "frame")}
        none = np.full(references.num_rows, -1)
        path = self._contexts.path_numbers(names["module"])
        operator, outermost, annotation, frame = (np.where(names[column] == NONE, none, names[column]) for column in
                                                  ("operator", "outermost", "annotation", "frame"))
        signature = self._signatures.of_texts(*(references[column].to_pylist()
                                                for column in ("shapes", "dtypes", "inputs")))
        row = self._operators.given(operator, outermost, path, annotation, signature, frame)
        return captured_graphs(references, row, signature)

    def _hold(self, linked: Linked, rows: Ints) -> None:
        """Keep replayed kernels until their whole replay has come."""
        rows = rows[np.argsort(linked.number[rows], kind="stable")]
        work, number = linked.work, linked.number[rows]
        columns = np.stack([work.kernel_id, work.name, work.end - work.start, work.iteration, work.stream])[:, rows]
        bounds = [*np.flatnonzero(np.r_[True, number[1:] != number[:-1]]).tolist(), len(rows)] if len(rows) else []
        for low, high in pairwise(bounds):
            launch, at = int(number[low]), int(rows[low])
            if launch not in self._replays:
                capture, link = int(work.capture[at]), int(work.link[at])
                batch = self._batches.get((capture, link), NO_BATCH)
                self._replays[launch] = Replay(capture, int(linked.call.tag[at]), batch)
            self._replays[launch].parts.append(columns[:, low:high])

    def _replayed(self, replay: Replay) -> tuple[Ints, Ints, Ints, Ints]:
        """Return id, number of the name, length and operator's row of one replay's kernels."""
        kernels = replay.kernels()
        match = self._match(replay, kernels)
        row = np.full(len(kernels.ids), self._operators.unlike(replay.alone)) if match is None else (
            self._operators.replayed(replay.capture, match, replay.alone))
        return kernels.ids, kernels.names, kernels.lengths, row

    def _match(self, replay: Replay, kernels: ReplayKernels) -> MatchedGraph | None:
        """Return the graph of a replay; of the next replays of the same kernels at once."""
        names, key = kernels.names, (replay.capture, replay.batch, kernels.in_launch_order, kernels.names.tobytes())
        if key not in self._matches:
            families = np.append(self._family_of, -1)[np.maximum(names, -1)].tolist()
            self._matches[key] = self._graphs.of_replay(replay.capture, ReplayedKernels(
                [self._kernels.text(name) or None for name in names.tolist()],
                [self._families.text(family) or None for family in families], kernels.in_launch_order, replay.batch))
        return self._matches[key]
