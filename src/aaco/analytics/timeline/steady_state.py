"""The steady state of a trace: the steps it repeats, by its own markers or by the kernels it launches.

By markers: ranges on the host such as ProfilerStep#7, or the iteration that the capture itself gives each kernel. A
kernel belongs to the step in which it was launched, so the number of kernels per step is exact.

By repetition: the sequence of kernel names on the busiest stream of each device, as numbers (repetition.py says what
counts as the block, and which of nested blocks). Blocks begin where the stream pauses longest on average, since the
host's work separates the steps. The steady window is the longest run of consecutive similar blocks; if it has SMALLEST
of them or more, those before the durations have settled (core.settling) are warm-up and left out. Inside the block the
search is made once more: a decode loop in a request, the layers in a step.

Memory: 20 bytes for each of the first KEPT kernels; a longer trace is examined that far, and says so.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.serving.annotations import step_family
from aaco.analytics.streaming import repetition
from aaco.analytics.streaming.link_launches import Linked
from aaco.analytics.streaming.repetition import Repetition
from aaco.analytics.streaming.stream_ids import NONE, NameIds, grow, integers
from aaco.analytics.streaming.work import COPY, WorkRows
from aaco.core import distinct, documents
from aaco.core.arrays import Ints
from aaco.core.readings import Absent
from aaco.core.settling import SMALLEST, settled_at
from aaco.tracelake import layout

KEPT = 2**19
MOST_STEPS = 100_000
SHOWN = 400  # durations and steps that are listed one by one
MARKER = re.compile(r"(ProfilerStep#|(?:step|iter|iteration)[ _:#=-]{0,2})(\d{1,15})", re.IGNORECASE)
GIVEN = "iterations of the capture"  # the family of steps that the capture itself gives its kernels
MARKER_COLUMNS = ("name", "domain", "t_start_ns", "t_end_ns", "capture")
HOST_DOMAINS = ("marker", "cpu_op", "python", "ort")
# An idle device starts what is launched within microseconds. Where nothing starts before the last of several steps has
# ended, which took longer than this, the device's times were written down late: no step has a time.
LATE_NS, LATE_STEPS = 1_000_000, 3


class DurationSpread(Struct, frozen=True):
    """Durations in ns: how many, their median, smallest and largest, and standard deviation / mean in percent."""

    count: int
    median_ns: float
    min_ns: int
    max_ns: int
    cov_pct: float | None


class Block(Struct, frozen=True):
    """The repeated block of one device's busiest stream.

    kernels: in the modal block. repeats: blocks found; identical: those that hold exactly the modal block's kernels.
    window: the steady blocks, from the first one's first start to the last one's last end. duration: from the start of
    a steady block to that of the next. first_kernel: with which the block begins. inner: (kernels, repeats) of the
    block that this block repeats inside. examined: kernels looked at, of all the stream's.
    """

    capture: int | None
    device_id: int
    queue_id: int | None
    stream_id: int | None
    kernels: int
    repeats: int
    identical: int
    coverage: float
    steady: int
    warmup: int
    t_start_ns: int
    t_end_ns: int
    duration: DurationSpread | None
    durations_ns: tuple[int, ...]
    first_kernel: str
    inner: tuple[int, int] | None
    examined: int
    of: int


class MarkedStep(Struct, frozen=True):
    """One step that a marker names: its range on the host, and the device work launched in it (copies with fills)."""

    number: int
    t_start_ns: int | None
    t_end_ns: int | None
    kernels: int
    kernel_ns: int
    copies: int
    device_start_ns: int | None
    device_end_ns: int | None


class Steps(Struct, frozen=True):
    """The steps of one family of markers in one capture.

    outside: kernels launched in none of them, or unlinked. host: of the marked ranges. interval: from the first start
    of a step's device work to that of the next. device_end_ns: last end of the device work of any step. idle_from_ns:
    when all device work that began before the first step's had ended; None where none began before.
    """

    capture: int | None
    family: str
    count: int
    kernels_median: float
    kernels_min: int
    kernels_max: int
    outside: int
    host: DurationSpread | None
    interval: DurationSpread | None
    steps: tuple[MarkedStep, ...]
    device_end_ns: int | None = None
    idle_from_ns: int | None = None


@documents.document(layout.TRACE["steady_state"], version=1)
class SteadyState(Struct, frozen=True):
    """What repeats, by markers and by the sequence of kernels. why_none: of devices without a block, the reason."""

    steps: tuple[Steps, ...]
    blocks: tuple[Block, ...]
    why_none: Mapping[str, str]


class Sequences:
    """Keeps the order of kernels on each stream, and finds what repeats in it."""

    def __init__(self) -> None:
        self._parts: dict[int, list[tuple[NDArray[np.int32], Ints, Ints]]] = {}
        self._count = np.zeros(0, np.int64)
        self._kept = 0

    def feed(self, work: WorkRows) -> None:
        """Add rows of device work in start order."""
        kernels = work.take(work.kind < COPY)
        if not len(kernels):
            return
        self._count = grow(self._count, int(kernels.stream.max()) + 1, 0)
        self._count += np.bincount(kernels.stream, minlength=len(self._count))
        kept = kernels.take(slice(0, max(0, KEPT - self._kept)))
        self._kept += len(kept)
        for stream in distinct.values(kept.stream).tolist():
            mine = kept.take(kept.stream == stream)
            name = np.where(mine.name == NONE, -1, mine.name).astype(np.int32)
            self._parts.setdefault(stream, []).append((name, mine.start, mine.end))

    def result(self, streams: Sequence[tuple[int, ...]], names: Sequence[str]) -> tuple[list[Block], dict[str, str]]:
        """Return the block of each device, and why others have none. streams: their keys; names: of the kernels."""
        device_blocks, why = list[Block](), dict[str, str]()
        for device, stream in self._busiest(streams).items():
            name, start, end = (np.concatenate(column) for column in zip(*self._parts[stream], strict=True))
            block = _find_block(name.astype(np.int64), start, end, streams[stream], int(self._count[stream]), names)
            if block is None:
                why[_label(device)] = f"no sequence of kernels repeats over half of the {len(name)} looked at"
            else:
                device_blocks.append(block)
        return device_blocks, why

    def _busiest(self, streams: Sequence[tuple[int, ...]]) -> dict[tuple[int, int], int]:
        """Return the stream with most kernels per (capture, device)."""
        best: dict[tuple[int, int], int] = {}
        for stream in sorted(self._parts):
            device = streams[stream][0], streams[stream][1]
            if device not in best or self._count[stream] > self._count[best[device]]:
                best[device] = stream
        return best


class Marked:
    """Finds markers of steps among the calls, and counts the work launched in each step.

    names: of calls, to share with who else numbers them.
    """

    def __init__(self, names: NameIds | None = None) -> None:
        self._names, self._domains = names or NameIds(), NameIds()
        self._marks: list[tuple[str, int | None] | None] = []
        self._families: dict[tuple[int, str], _Family] = {}
        self._kernels: dict[int, int] = {}
        self._first_work_ns: dict[int, int] = {}  # of each capture, launched in a step or not
        self._busy_until_ns: dict[int, int] = {}  # of each capture, by all work fed so far

    def markers(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take in rows of api_calls, in start order; needs MARKER_COLUMNS."""
        name, domain = self._names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        self._marks += [_mark(text) for text in self._names.known[len(self._marks):]]
        marks = np.array([mark is not None for mark in self._marks] + [False])[np.where(name == NONE, -1, name)]
        host = np.array([domain_name in HOST_DOMAINS for domain_name in self._domains.known] + [True])
        at = np.flatnonzero(marks & host[np.where(domain == NONE, -1, domain)])
        columns = [integers(rows[column])[at].tolist() for column in ("capture", "t_start_ns", "t_end_ns")]
        for number, capture, start, end in zip(name[at].tolist(), *columns, strict=True):
            mark = self._marks[number]
            if mark and start != NONE and end != NONE:
                self._families.setdefault((capture, mark[0]), _Family()).begin(mark[1], start, end)

    def feed(self, linked: Linked) -> None:
        """Add device work with its launches, in start order."""
        work = linked.work
        for capture in distinct.values(work.capture).tolist():
            mine = work.capture == capture
            self._first_work_ns.setdefault(capture, int(work.start[mine].min()))
            self._kernels[capture] = self._kernels.get(capture, 0) + int((mine & (work.kind < COPY)).sum())
            is_numbered = mine & (work.iteration != NONE)
            if is_numbered.any():
                self._families.setdefault((capture, GIVEN), _Family()).numbered(work.take(is_numbered))
            rows = mine & linked.known
            for (owner, family), steps in self._families.items():
                if owner == capture and family != GIVEN:
                    steps.launched(work.take(rows), linked.call.start[rows])
            self._note_busy(capture, work.take(mine))

    def _note_busy(self, capture: int, work: WorkRows) -> None:
        """Note until when the device was busy before the first work of each family, which these rows may hold."""
        until = np.maximum.accumulate(np.r_[self._busy_until_ns.get(capture, NONE), work.end])
        for (owner, _), steps in self._families.items():
            if owner == capture:
                steps.begins_after(work.start, until)
        self._busy_until_ns[capture] = int(until[-1])

    def steps_before(self, time_ns: int) -> int:
        """Return how many steps of one family ended before a time that came late for them; 0 if that is so for none."""
        return max((len(family.end) for family in self._families.values() if family.is_before(time_ns)), default=0)

    def result(self) -> tuple[Steps, ...]:
        """Return the steps of each capture: those given by the capture itself, else of the family of markers that holds
        most kernels."""
        best_families: dict[int, tuple[str, _Family]] = {}
        for (capture, name), family in self._families.items():
            best = best_families.get(capture)
            is_timed = family.kernels and not family.is_before(self._first_work_ns[capture])
            if is_timed and (best is None or (name == GIVEN, family.kernels) > (best[0] == GIVEN, best[1].kernels)):
                best_families[capture] = name, family
        return tuple(family.steps(None if capture == NONE else capture, name, self._kernels.get(capture, 0))
                     for capture, (name, family) in sorted(best_families.items()))


class _Family:
    """The steps of one family: columns that grow as steps begin."""

    def __init__(self) -> None:
        self.number, self.start, self.end = list[int](), array("q"), array("q")
        self._sums = np.zeros((0, 5), np.int64)  # kernels, their ns, copies, first start, last end
        self._idle_from: int | None = None  # NONE: no work began before the first step's

    @property
    def kernels(self) -> int:
        """Return the kernels in any step."""
        return int(self._sums[:, 0].sum())

    def is_before(self, time_ns: int) -> bool:
        """Return whether all steps ended on the host before a time, LATE_NS and more after the first began."""
        return len(self.end) >= LATE_STEPS and self.start[0] + LATE_NS < self.end[-1] <= time_ns

    def begin(self, number: int | None, start: int, end: int) -> None:
        """Begin a step; one inside the step before it is ignored. number: None counts the steps from 0."""
        if len(self.number) < MOST_STEPS and (not self.end or start >= self.end[-1]):
            self.number.append(len(self.number) if number is None else number)
            self.start.append(start)
            self.end.append(end)

    def begins_after(self, starts: Ints, busy_until: Ints) -> None:
        """Take until when the device was busy before the first step's work, once that has begun.

        starts: of work in order. busy_until: by the work before each of these, and at last by all of them.
        """
        if self._idle_from is None and len(self._sums):
            self._idle_from = int(busy_until[np.searchsorted(starts, self._sums[:, 3].min())])

    def launched(self, work: WorkRows, launched: Ints) -> None:
        """Add work with the time of its launch."""
        at = np.searchsorted(np.array(self.start), launched, side="right") - 1
        inside = (at >= 0) & (launched < np.array(self.end)[np.maximum(at, 0)])
        self._add(at[inside], work.take(inside))

    def numbered(self, work: WorkRows) -> None:
        """Add work with the number of its step."""
        place_by_number = {number: place for place, number in enumerate(self.number)}
        for number in distinct.values(work.iteration).tolist():
            if number not in place_by_number and len(self.number) < MOST_STEPS:
                place_by_number[number] = len(self.number)
                self.number.append(number)
        places = np.array([place_by_number.get(number, -1) for number in work.iteration.tolist()], np.int64)
        self._add(places[places >= 0], work.take(places >= 0))

    def _add(self, place: Ints, work: WorkRows) -> None:
        if not len(place):
            return
        fresh = np.zeros((len(self.number) - len(self._sums), 5), np.int64)
        fresh[:, 3], fresh[:, 4] = np.iinfo(np.int64).max, NONE
        self._sums = np.concatenate([self._sums, fresh])
        is_kernel = (work.kind < COPY).astype(np.int64)  # adding flags at places takes thirty times as long
        np.add.at(self._sums[:, 0], place, is_kernel)
        np.add.at(self._sums[:, 1], place, is_kernel * (work.end - work.start))
        np.add.at(self._sums[:, 2], place, 1 - is_kernel)
        np.minimum.at(self._sums[:, 3], place, work.start)
        np.maximum.at(self._sums[:, 4], place, work.end)

    def steps(self, capture: int | None, family: str, kernels: int) -> Steps:
        """Return the answer. kernels: of the capture in all."""
        used = [row for row in range(len(self._sums)) if self._sums[row, 0] or self._sums[row, 2]]
        counts = self._sums[used, 0]
        host = np.array([self.end[row] - self.start[row] for row in used]) if self.start else np.zeros(0, np.int64)
        shown = tuple(self._step(row) for row in used[:SHOWN])
        interval = spread(np.diff(self._sums[used, 3]))
        return Steps(capture, family, len(used), float(np.median(counts)), int(counts.min()), int(counts.max()),
                     kernels - self.kernels, spread(host), interval, shown, int(self._sums[used, 4].max()),
                     None if self._idle_from == NONE else self._idle_from)

    def _step(self, row: int) -> MarkedStep:
        count, ns, copies, first, last = self._sums[row].tolist()
        start, end = (self.start[row], self.end[row]) if self.start else (None, None)
        return MarkedStep(self.number[row], start, end, count, ns, copies, first, last)


def spread(durations: Ints) -> DurationSpread | None:
    """Return what durations in ns spread over; None without any."""
    if not len(durations):
        return None
    mean = float(durations.mean())
    cov = 100 * float(durations.std(ddof=1)) / mean if len(durations) > 1 and mean else None
    return DurationSpread(len(durations), float(np.median(durations)), int(durations.min()), int(durations.max()), cov)


def _mark(name: str) -> tuple[str, int | None] | None:
    """Return the family and number of a step's marker, number None where it has none; None of another range."""
    if match := MARKER.fullmatch(name[:64]):
        return match[1].rstrip(" _:=-"), int(match[2])
    engine = step_family(name)  # its steps have no number
    return (engine, None) if engine else None


def _find_block(names: Ints, start: Ints, end: Ints, key: tuple[int, ...], of: int,
                texts: Sequence[str]) -> Block | None:
    names, start, end = names[:repetition.LONGEST], start[:repetition.LONGEST], end[:repetition.LONGEST]
    repeated = repetition.find(names)
    if repeated is None:
        return None
    repeated = repetition.aligned(repeated, names, _longest_pause(repeated, start, end))
    first, last = _longest_run(repeated)
    began = start[repeated.starts]
    durations = np.diff(began[first:last + 1])
    warm = _warmup(durations)
    lead = repeated.starts[first + warm]
    close = int(min(repeated.ends[last], len(end))) - 1
    inner = repetition.find(names[repeated.starts[first]:repeated.ends[first]])
    capture, device, queue, stream = (None if part == NONE else part for part in key)
    return Block(
        capture, device or 0, queue, stream, repeated.length, len(repeated.starts), int(repeated.identical.sum()),
        repeated.coverage, last + 1 - first - warm, first + warm, int(start[lead]), int(end[close]),
        spread(durations[warm:]), tuple(durations[warm:][:SHOWN].tolist()),
        texts[int(names[lead])] if names[lead] >= 0 else "", (inner.length, len(inner.starts)) if inner else None,
        len(names), of)


def _longest_pause(repeated: Repetition, start: Ints, end: Ints) -> int:
    """Return the place in the block before which the stream pauses longest, on average over identical blocks."""
    blocks = repeated.starts[repeated.identical]
    blocks = blocks[blocks > 0][:max(2, 1_000_000 // repeated.length)]
    if not len(blocks):
        return 0
    rows = blocks[:, None] + np.arange(repeated.length)
    return int(np.maximum(0, start[rows] - end[rows - 1]).mean(axis=0).argmax())


def _longest_run(repeated: Repetition) -> tuple[int, int]:
    """Return the first and last of the longest run of consecutive similar blocks."""
    alike = np.r_[False, repeated.alike, False]
    begins, finishes = np.flatnonzero(~alike[:-1] & alike[1:]), np.flatnonzero(alike[:-1] & ~alike[1:]) - 1
    if not len(begins):
        return 0, len(repeated.starts) - 1
    best = int(np.argmax(finishes - begins))
    return int(begins[best]), int(finishes[best])


def _warmup(durations: Ints) -> int:
    """Return the blocks before the durations have settled; 0 if there are too few to judge, or if they never settle."""
    if len(durations) < SMALLEST:
        return 0
    try:
        return settled_at(durations.astype(np.float64))
    except Absent:
        return 0


def _label(device: tuple[int, int]) -> str:
    capture, number = device
    return f"device {number}" if capture == NONE else f"capture {capture}, device {number}"


def steady_state(sequences: Sequences, marked: Marked, streams: Sequence[tuple[int, ...]],
                 names: Sequence[str]) -> SteadyState:
    """Return both answers together."""
    device_blocks, why = sequences.result(streams, names)
    return SteadyState(marked.result(), tuple(_in_order(device_blocks)), why)


def _in_order(unordered: Sequence[Block]) -> Iterator[Block]:
    yield from sorted(unordered, key=lambda block: (block.capture or 0, block.device_id))
