"""The steps of a serving engine, with the device work that each launched, in one pass over a trace.

A step is what the engine annotates as one (annotations.py); ranges inside it on the same thread complement it. Where
it annotates none, the steps are those that another pass has found (repeated_steps.py). Work belongs to the step in
which the call was made that launched it: kernels of a replayed graph may start long after the annotation has ended. A
launch by a thread without steps belongs to the one step of its process that was open then.

Steps of another process, or annotated in another form, are of another engine. A device is idle before a step since the
engine's earlier work; where engines share a device that is not known.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from aaco.analytics.serving.annotations import CUT, StepAnnotation
from aaco.analytics.serving.cut_steps import cut_steps
from aaco.analytics.serving.launch_order import COLUMNS
from aaco.analytics.serving.ranges import read_once, step_of
from aaco.analytics.serving.repeated_steps import RepeatedStep
from aaco.analytics.serving.summary import ANNOTATION, REPETITION
from aaco.analytics.streaming.calls import ON_DEVICE, CallKind
from aaco.analytics.streaming.link_launches import CALL_COLUMNS, Callers, LaunchCalls, Linker
from aaco.analytics.streaming.stream_ids import NONE, ValueByName, integers, is_name, latest_end_before
from aaco.analytics.streaming.work import COPY, WorkReader
from aaco.core import distinct
from aaco.core.arrays import ArrayRows, Flags, Ints, joined, summed
from aaco.core.tables import API_CALLS, COPIES, KERNELS, SERVING_STEPS

MOST_STEPS = 1 << 20
SUMS = ("sq", "sk", "sqsq", "sqsk")
SHARED = "several engines share a device: since when it is idle before a step of one is not known"


class _Thread(Struct):
    """The steps of one thread in start order."""

    numbers: array[int] = field(default_factory=partial(array, "q"))
    starts: array[int] = field(default_factory=partial(array, "q"))
    ends: array[int] = field(default_factory=partial(array, "q"))

    def steps_at(self, times: Ints) -> Ints:
        """Return the number of the step that is open at each time, -1 for none."""
        if not self.starts:
            return np.full(len(times), -1)
        place = np.searchsorted(np.array(self.starts), times, side="right") - 1
        is_open = (place >= 0) & (times < np.array(self.ends)[np.maximum(place, 0)])
        return np.where(is_open, np.array(self.numbers)[np.maximum(place, 0)], -1)


class _Spans(Struct):
    """Spans of time by step, as they come."""

    parts: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)

    def add(self, step: Ints, start: Ints, end: Ints) -> None:
        """Add spans; those of no step (-1) are left out."""
        inside = step >= 0
        if inside.any():
            self.parts.append((step[inside], start[inside], end[inside]))

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Return step, start and end of all spans."""
        if len(self.parts) != 1:
            none = np.zeros(0, np.int64)
            step, start, end = (np.concatenate(column) for column in zip((none, none, none), *self.parts, strict=True))
            self.parts = [(step, start, end)]
        return self.parts[0]


class StepKernels(ArrayRows, frozen=True):
    """Kernels that steps launched, as columns; name: its number (NONE: unnamed)."""

    kernel_id: Ints
    step: Ints
    name: Ints
    start: Ints
    end: Ints
    capture: Ints


class ServingSteps:
    """One pass over a trace. `table` returns the steps; `of_kernels` the step of each kernel."""

    def __init__(self, with_launches: bool = False, repeated: Sequence[RepeatedStep] = ()) -> None:
        """with_launches: whether the work has launch_id. repeated: the steps of a trace that annotates none."""
        self._callers, self._repeated = Callers(with_launches), repeated
        self._linker = Linker(("part", "tag"))
        self._reader = WorkReader(with_launches=with_launches)
        self._is_step = ValueByName(self._callers.names, lambda name: read_once(name) is not None, False)
        self._threads: dict[int, _Thread] = {}  # by the number that the callers give
        self._ranges: list[list[str]] = []  # of each step, innermost first
        self._origin: list[tuple[int, int, int, int]] = []  # capture, thread's number, start and end of each step
        self._ends = array("q")
        self._kernels, self._copies, self._calls, self._waits, self._graphs = (_Spans() for _ in range(5))
        self._kernel_ids: list[Ints] = []
        self._kernel_names: list[Ints] = []
        self._kernel_devices: list[Ints] = []
        self._from_graph: list[Flags] = []  # whether a graph launched each kernel
        for step in repeated:
            key = (np.array([part]) for part in (step.capture, step.process, step.thread))
            self._note_step("", int(self._callers.threads.numbers(*key)[0]), step.capture, step.start, step.end)

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table, until: int | None) -> None:
        """Take in the rows that start next, in start order, with COLUMNS. until: later rows start at or after it."""
        self._note_steps(api_calls)
        calls = self._callers.launching(api_calls)
        step = self._steps_of(calls)
        self._note_calls(calls, step)
        linked = self._linker.feed(self._reader.work(kernels, copies), replace(calls, tag=step), until)
        if linked is None:
            return
        work, step = linked.work, np.where(linked.known, linked.call.tag, -1)
        is_kernel = work.kind < COPY
        self._kernels.add(np.where(is_kernel, step, -1), work.start, work.end)
        self._copies.add(np.where(is_kernel, -1, step), work.start, work.end)
        mine = np.flatnonzero(is_kernel & (step >= 0))
        self._kernel_ids.append(work.kernel_id[mine])
        self._kernel_names.append(work.name[mine])
        self._kernel_devices.append(work.device[mine])
        self._from_graph.append(linked.call.part[mine] == CallKind.GRAPH)

    def rest(self) -> None:
        """Settle what waits for later rows. Call it once, after the last `feed`."""
        kernels, copies, calls = (spec.build().select(list(COLUMNS[spec.name]))
                                  for spec in (KERNELS, COPIES, API_CALLS))
        self.feed(kernels, copies, calls, until=None)

    @cached_property
    def of_kernels(self) -> StepKernels:
        """The kernels that steps launched, in start order. Needs `rest` before."""
        step, start, end = self._kernels.columns()
        ids, names = (joined(parts) for parts in (
            self._kernel_ids, self._kernel_names))
        capture = np.array([capture for capture, *_ in self._origin] or [NONE], np.int64)[step]
        return StepKernels(ids, step, names, start, end, capture)

    @property
    def kernel_names(self) -> list[str]:
        """Return the names of kernels by number."""
        return self._reader.names.known

    @cached_property
    def annotations(self) -> list[StepAnnotation]:
        """What the ranges of each step say together, and whether it is cut. Needs `rest` before."""
        if self._repeated:
            return [step.annotation for step in self._repeated]
        annotated = [step_of(ranges) or StepAnnotation("") for ranges in self._ranges]
        kernels, thread = self.of_kernels, np.array([thread for _, thread, *_ in self._origin], np.int64)
        is_cut = cut_steps(thread, [(step.phase, step.decode_batch) for step in annotated], kernels.step, kernels.name)
        return [replace(step, warnings=(*step.warnings, CUT)) if cut else step
                for step, cut in zip(annotated, is_cut.tolist(), strict=True)]

    @cached_property
    def engines(self) -> Ints:
        """The number of the engine of each step. Needs `rest` before."""
        numbers: dict[tuple[tuple[int, ...], str], int] = {}
        return np.array([numbers.setdefault((self._callers.threads.known[thread][:2], form), len(numbers))
                         for (_, thread, *_), form in zip(self._origin, self._forms, strict=True)], np.int64)

    @cached_property
    def is_device_shared(self) -> bool:
        """Whether a device runs kernels of several engines. Needs `rest` before."""
        count = 1 + self.engines.max(initial=0)
        if count == 1:
            return False
        device = joined(self._kernel_devices)
        engine = self.engines[self._kernels.columns()[0]]
        pairs = distinct.values(device * count + engine)
        return len(distinct.values(pairs // count)) < len(pairs)

    @cached_property
    def most_engines(self) -> int:
        """How many engines the capture with most of them has. Needs `rest` before."""
        pairs = {(capture, engine) for (capture, *_), engine in zip(self._origin, self.engines.tolist(), strict=True)}
        return max(Counter(capture for capture, _ in pairs).values(), default=0)

    @cached_property
    def _forms(self) -> list[str]:
        """The engine that has the form of each step's outer annotation; "" for one without."""
        return [(read_once(ranges[0]) or StepAnnotation("")).engine for ranges in self._ranges]

    def table(self) -> pa.Table:
        """Return the serving_steps table."""
        count, steps = len(self._ranges), self.annotations
        capture, _, start, end = np.array(self._origin, np.int64).reshape(count, 4).T
        kernels = _sums(*self._kernels.columns(), count)
        copies = _sums(*self._copies.columns(), count)
        graphs = _sums(*self._graphs.columns(), count)
        from_graph = np.concatenate([np.zeros(0, bool), *self._from_graph])
        owner, began, ended = self._kernels.columns()
        replayed = _sums(owner[from_graph], began[from_graph], ended[from_graph], count)
        step, work_start, work_end = (np.concatenate(column) for column in zip(
            self._kernels.columns(), self._copies.columns(), strict=True))
        idle = (np.full(count, NONE) if self.is_device_shared else
                _idle_before(self.engines, kernels.first, kernels.last))
        return SERVING_STEPS.build(
            step=np.arange(count), source=[REPETITION if self._repeated else ANNOTATION] * count,
            engine=[form or None for form in self._forms], annotation=[ranges[-1] or None for ranges in self._ranges],
            why_absent=[step.why_absent for step in self._repeated] or pa.nulls(count, pa.string()), **_told(steps),
            t_start_ns=start, t_end_ns=end, device_start_ns=pa.array(kernels.first, mask=kernels.first == NONE),
            device_end_ns=pa.array(kernels.last, mask=kernels.last == NONE), kernels=kernels.count,
            kernel_ns=kernels.ns, busy_ns=_unions(step, work_start, work_end, count),
            copies=copies.count, copy_ns=copies.ns,
            graph_launches=graphs.count, graph_launch_ns=graphs.ns, graph_kernels=replayed.count,
            graph_ns=pa.array(replayed.last - replayed.first, mask=replayed.count == 0),
            call_ns=_unions(*self._calls.columns(), count), wait_ns=_unions(*self._waits.columns(), count),
            idle_before_ns=pa.array(idle, mask=idle == NONE), capture=pa.array(capture, mask=capture == NONE))

    def _note_steps(self, rows: pa.Table) -> None:
        """Remember the ranges that begin a step, and those inside one."""
        name = self._callers.names.numbers(rows["name"])
        at = np.flatnonzero(self._is_step.of(name))
        at = at[~is_name(rows["domain"].take(pa.array(at)), ON_DEVICE)] if len(at) else at
        if not len(at):
            return
        columns = {column: integers(rows[column])[at] for column in CALL_COLUMNS if column not in ("name", "domain")}
        thread = self._callers.threads.numbers(columns["capture"], columns["process_id"], columns["thread_id"])
        for number, of, capture, start, end in zip(name[at].tolist(), thread.tolist(), *(
                columns[column].tolist() for column in ("capture", "t_start_ns", "t_end_ns")), strict=True):
            if NONE not in (start, end) and end >= start:
                self._note_step(self._callers.names.known[number], of, capture, start, end)

    def _note_step(self, name: str, thread: int, capture: int, start: int, end: int) -> None:
        steps = self._threads.setdefault(thread, _Thread())
        if steps.ends and start < steps.ends[-1]:
            self._ranges[steps.numbers[-1]].insert(0, name)
        elif len(self._ranges) < MOST_STEPS:
            steps.numbers.append(len(self._ranges))
            steps.starts.append(start)
            steps.ends.append(end)
            self._ranges.append([name])
            self._origin.append((capture, thread, start, end))
            self._ends.append(end)

    def _steps_of(self, calls: LaunchCalls) -> Ints:
        """Return the step in which each call was made, -1 for none."""
        step = np.full(len(calls), -1)
        of_process: dict[tuple[int, ...], list[_Thread]] = {}
        for number, thread in self._threads.items():
            mine = calls.thread == number
            step[mine] = thread.steps_at(calls.start[mine])
            of_process.setdefault(self._callers.threads.known[number][:2], []).append(thread)
        others = np.flatnonzero(~np.isin(calls.thread, list(self._threads)))
        processes = [self._callers.threads.known[number][:2] for number in calls.thread[others].tolist()]
        for process in set(processes) & of_process.keys():
            rows = others[[owner == process for owner in processes]]
            step[rows] = _only_one([thread.steps_at(calls.start[rows]) for thread in of_process[process]])
        return step

    def _note_calls(self, calls: LaunchCalls, step: Ints) -> None:
        """Add the host's calls to the time of their steps, up to the ends of these."""
        until = np.append(self._ends, 0)[step]
        end = np.minimum(calls.end, until)
        for spans, flags in ((self._calls, np.ones(len(calls), bool)), (self._waits, calls.part >= CallKind.SYNC),
                             (self._graphs, calls.part == CallKind.GRAPH)):
            spans.add(np.where(flags, step, -1), calls.start, end)


def _only_one(open_steps: Sequence[Ints]) -> Ints:
    """Return the step where exactly one of several threads has one open, else -1."""
    stacked = np.stack(open_steps)
    return np.where((stacked >= 0).sum(axis=0) == 1, stacked.max(axis=0), -1)


class _StepSums(Struct, frozen=True):
    count: Ints
    ns: Ints
    first: Ints
    last: Ints


def _sums(step: Ints, start: Ints, end: Ints, count: int) -> _StepSums:
    """Return of each step how many spans it has, their sum, the first start and the last end (NONE without any)."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE)
    np.minimum.at(first, step, start)
    np.maximum.at(last, step, end)
    number = np.bincount(step, minlength=count)
    return _StepSums(number, summed(step, end - start, count), np.where(number > 0, first, NONE), last)


def _unions(step: Ints, start: Ints, end: Ints, count: int) -> Ints:
    """Return of each step the length of the union of its spans, ns."""
    order = np.lexsort((start, step))
    step, start, end = step[order], start[order], end[order]
    before = latest_end_before(step, end, np.full(count, NONE))
    return summed(step, np.maximum(0, end - np.maximum(start, before)), count)


def _idle_before(engine: Ints, first: Ints, last: Ints) -> Ints:
    """Return of each step the time from the end of its engine's earlier kernels to its first; NONE without any."""
    idle, reach = np.full(len(first), NONE), dict[int, int]()
    for step in sorted(np.flatnonzero(first != NONE).tolist(), key=lambda step: int(first[step])):
        owner = int(engine[step])
        if owner in reach:
            idle[step] = max(0, int(first[step]) - reach[owner])
        reach[owner] = max(reach.get(owner, NONE), int(last[step]))
    return idle


def _told(steps: Sequence[StepAnnotation]) -> dict[str, list[str | int | None]]:
    """Return the columns that annotations fill."""
    columns: dict[str, list[str | int | None]] = {
        name: [getattr(step, name) for step in steps]
        for name in ("phase", "scheduled_tokens", "context_requests", "generation_requests")}
    for kind in ("context", "generation"):
        for name in SUMS:
            columns[f"{kind}_{name}"] = [getattr(getattr(step, kind), name, None) for step in steps]
    columns["batch"] = [step.decode_batch or step.requests for step in steps]
    columns["speculative"] = [int(step.speculative) for step in steps]
    columns["left_out"] = [CUT if CUT in step.warnings else None for step in steps]
    columns["warning"] = ["; ".join(step.warnings) or None for step in steps]
    return columns

