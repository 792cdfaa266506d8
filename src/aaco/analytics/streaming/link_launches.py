"""Device work and the call that launched it, joined by `link` while a trace streams by.

A link is the call's number as launch_id has it, from 1 on; in tables without launch_id it is the correlation id.

A launch is remembered until REMEMBERED later ones have begun: 105 bytes each, 27 MB in all for a trace of any length.
Work waits until every call is known that began up to SLACK_NS after it. Clocks of host and device that disagree by less
than that lose no link, and the answer does not depend on where the trace is sliced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.streaming import calls as api
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.stream_ids import (
    NONE,
    NameIds,
    TupleIds,
    ValueByName,
    first_rows,
    grow,
    integers,
    last_before,
    latest_end_before,
    rows_by_stream,
)
from aaco.analytics.streaming.work import WorkRows, join
from aaco.core import distinct
from aaco.core.arrays import ArrayRows, Flags, Ints

CALL_COLUMNS = ("call_id", "name", "domain", "process_id", "thread_id", "correlation_id", "t_start_ns", "t_end_ns",
                "capture")
SLACK_NS = 100_000_000
PAUSE_NS = 250_000  # from here on the host did something else than prepare its next call (analytics/timeline/idle.py)
REMEMBERED = 2**18
RUN = 8192  # launches that are searched together


class LaunchCalls(ArrayRows, frozen=True):
    """Calls into a GPU runtime in start order. part: of calls.CallKind. name and thread: numbers that Callers gave.

    For a launching call, synced_* is the latest wait that its thread made before it: the first start and the last end
    of consecutive synchronising calls with no launch between them, and in synced_ns the time that waiting took: those
    calls, the copies just before them, and what the thread did on its way to them, from the launch before. A way of
    PAUSE_NS or more is left out: the thread did something else. copied_* is the thread's last copy call before it. NONE
    where there was none. tag: what the asker gave with the row, else 0.
    """

    start: Ints
    end: Ints
    capture: Ints
    link: Ints
    part: Ints
    name: Ints
    thread: Ints
    synced_from: Ints
    synced_until: Ints
    synced_ns: Ints
    copied_from: Ints
    copied_until: Ints
    tag: Ints


CALL_FIELDS = LaunchCalls.__struct_fields__


class Linked(Struct, frozen=True):
    """Device work with its launch, row by row: `number` is the launch's, -1 if it is unknown; `call` holds its columns
    (NONE in such rows); first: whether it is the launch's first work."""

    work: WorkRows
    call: LaunchCalls
    number: Ints
    first: Flags

    def __len__(self) -> int:
        return len(self.work)

    @property
    def known(self) -> Flags:
        """Return whether the launch of each row is known."""
        return self.number >= 0


class CaptureMark(NamedTuple):
    """A call that begins or ends the capture of a device graph; row: of the table that was given."""

    start: int
    thread: int
    capture: int
    does: CallKind
    row: int


class Callers:
    """Makes Calls of slices of the api_calls table, and remembers names and threads: (capture, process, thread)."""

    def __init__(self, with_launches: bool = False) -> None:
        """with_launches: whether the work has launch_id (work.has_launches)."""
        self.with_launches = with_launches
        self.names, self.threads, self._domains = NameIds(), TupleIds(), NameIds()
        self._part = ValueByName(self.names, api.call_kind, CallKind.OTHER)
        self._into_runtime = ValueByName(self._domains, api.is_runtime, True)
        self._sync = np.full((0, 2), NONE)
        self._sync_open = np.zeros(0, np.bool_)  # no launch since the thread's last wait
        self._copy = np.full((0, 2), NONE)
        self._reach, self._trip, self._took = (np.zeros(0, np.int64) for _ in range(3))
        self._latest = np.zeros(0, np.int64)

    def calls(self, rows: pa.Table | pa.RecordBatch, tag: Ints | None = None) -> LaunchCalls:
        """Return the rows that call into a GPU runtime to launch or to wait. Rows in start order; needs CALL_COLUMNS.

        tag: a number for each row, which is returned with the work that it launched.
        """
        return self._after_waits(self.launching(rows, tag))

    def launching(self, rows: pa.Table | pa.RecordBatch, tag: Ints | None = None) -> LaunchCalls:
        """Return the same without the waits and copies before each call."""
        name, domain = self.names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        part, is_kept = self._part.of(name), self._into_runtime.of(domain)
        is_kept &= (part > CallKind.OTHER) & (part <= CallKind.WAIT) & (start != NONE) & (end >= start)
        at = np.flatnonzero(is_kept)
        column = {field: integers(rows[field])[at]
                  for field in ("capture", "process_id", "thread_id")}
        link = integers(rows["call_id"])[at] + 1 if self.with_launches else integers(rows["correlation_id"])[at]
        thread = self.threads.numbers(column["capture"], column["process_id"], column["thread_id"])
        none = np.full(len(at), NONE)
        return LaunchCalls(start[at], end[at], column["capture"], link, part[at], name[at], thread, none, none, none,
                           none, none, np.zeros(len(at), np.int64) if tag is None else tag[at])

    def marks(self, rows: pa.Table | pa.RecordBatch) -> list[CaptureMark]:
        """Return the rows that begin or end the capture of a device graph."""
        part = self._part.of(self.names.numbers(rows["name"]))
        at = np.flatnonzero((part == CallKind.BEGIN_CAPTURE) | (part == CallKind.END_CAPTURE))
        if not len(at):
            return []
        column = {field: integers(rows[field])[at] for field in ("capture", "process_id", "thread_id", "t_start_ns")}
        thread = self.threads.numbers(column["capture"], column["process_id"], column["thread_id"])
        return [CaptureMark(int(start), int(of), int(capture), CallKind(int(does)), int(row))
                for start, of, capture, does, row in zip(
                    column["t_start_ns"], thread, column["capture"], part[at], at, strict=True)]

    def _after_waits(self, calls: LaunchCalls) -> LaunchCalls:
        """Return the calls with the waits and copies before them filled in. Each thread carries its last ones along."""
        threads = len(self.threads)
        self._sync, self._copy = grow(self._sync, threads, NONE), grow(self._copy, threads, NONE)
        self._sync_open = grow(self._sync_open, threads, False)
        self._reach, self._took = grow(self._reach, threads, NONE), grow(self._took, threads, NONE)
        self._trip, self._latest = grow(self._trip, threads, 0), grow(self._latest, threads, CallKind.OTHER)
        if not len(calls):
            return calls
        order = rows_by_stream(calls.thread)
        lane, part = calls.thread[order], calls.part[order]
        times = np.stack([calls.start[order], calls.end[order]], axis=1)
        synced = self._runs(lane, part >= CallKind.SYNC, times)
        took = self._waiting(lane, part, times)
        copied = self._last(lane, part == CallKind.COPY, times)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        synced, took, copied = synced[back], took[back], copied[back]
        return LaunchCalls(calls.start, calls.end, calls.capture, calls.link, calls.part, calls.name,
                           calls.thread,
                           synced[:, 0], synced[:, 1], took, copied[:, 0], copied[:, 1], calls.tag)

    def _last(self, lane: Ints, copying: Flags, times: Ints) -> Ints:
        """Return (start, end) of the last copy call before each call of its thread."""
        before = last_before(lane, copying)
        last_copies = np.where((before >= 0)[:, None], times[before], self._copy[lane])
        tail = np.r_[first_rows(lane)[1:], len(lane)] - 1
        self._copy[lane[tail]] = np.where(copying[tail, None], times[tail], last_copies[tail])
        return last_copies

    def _waiting(self, lane: Ints, part: Ints, times: Ints) -> Ints:
        """Return what the latest run of waits before each call of its thread took, with the way to it, as Calls defines
        it.

        Sums over stretches of calls: one begins after a launch, and with a copy that follows a wait.
        """
        first = first_rows(lane)
        threads, tail = lane[first], np.r_[first[1:], len(lane)] - 1
        start, end = times[:, 0], times[:, 1]
        before = latest_end_before(lane, end, self._reach)
        before = np.where(before == NONE, start, before)
        spent = np.maximum(0, end - np.where(start - before < PAUSE_NS, before, start))
        previous = np.r_[CallKind.OTHER, part[:-1]]
        previous[first] = self._latest[threads]
        launched = (previous < CallKind.COPY) | (previous == CallKind.FILL)
        begins = launched | (part == CallKind.COPY) & (previous >= CallKind.SYNC)
        spent[first] += np.where(begins[first], 0, self._trip[threads])
        begins[first] = True
        rows, total = np.flatnonzero(begins), np.cumsum(spent)
        trip = total - np.repeat((total - spent)[rows], np.diff(np.r_[rows, len(lane)]))
        waits = part >= CallKind.SYNC
        last = last_before(lane, waits)
        durations = np.where(last >= 0, trip[last], self._took[lane])
        self._trip[threads], self._latest[threads] = trip[tail], part[tail]
        self._took[threads] = np.where(waits[tail], trip[tail], durations[tail])
        return durations

    def _runs(self, lane: Ints, waiting: Flags, times: Ints) -> Ints:
        """Return (first start, last end) of the latest run of waits before each call of its thread.

        The run that a thread carries from the slice before becomes a wait at its head, followed by a launch unless it
        may go on.
        """
        first = first_rows(lane)
        threads = lane[first]
        closed = ~self._sync_open[threads]
        lanes = np.concatenate([threads, threads[closed], lane])
        order = rows_by_stream(lanes)
        lanes = lanes[order]
        waits = np.concatenate([np.ones(len(threads), bool), np.zeros(int(closed.sum()), bool), waiting])[order]
        spans = np.concatenate([self._sync[threads], np.full((int(closed.sum()), 2), NONE), times])[order]
        begins = waits & ~np.r_[False, waits[:-1] & (lanes[1:] == lanes[:-1])]
        run = np.cumsum(begins) - 1
        rows = np.flatnonzero(begins)
        span = np.stack([_least_of_runs(spans[:, 0], waits, run, len(rows)),
                         _most_of_runs(spans[:, 1], waits, run, len(rows))], axis=1)
        before = last_before(lanes, waits)
        latest_waits = np.where((before >= 0)[:, None], span[run[before]], NONE)
        tail = np.r_[first_rows(lanes)[1:], len(lanes)] - 1
        self._sync[threads] = np.where(waits[tail, None], span[run[tail]], latest_waits[tail])
        self._sync_open[threads] = waits[tail]
        result = np.empty((len(order), 2), np.int64)
        result[order] = latest_waits
        return result[len(threads) + int(closed.sum()):]


class Linker:
    """Takes in work and calls slice by slice, and gives the work back with its launches, in start order."""

    def __init__(self, columns: Sequence[str] = CALL_FIELDS) -> None:
        """columns: of LaunchCalls, to be given back with the work; the others are NONE there."""
        self._columns = tuple(dict.fromkeys(("link", "start", *columns)))
        self._launches: dict[int, list[_LaunchRun]] = {}
        self._held: WorkRows | None = None
        self._count = 0

    def feed(self, work: WorkRows, calls: LaunchCalls, until: int | None) -> Linked | None:
        """Return the work that can be linked now. until: every call that began before it has been given; None: all
        have."""
        for capture, launches in _by_capture(calls.take(calls.part <= CallKind.FILL)):
            self._remember(capture, launches)
        held = work if self._held is None or not len(self._held) else join([self._held, work])
        ready = len(held) if until is None else int(np.searchsorted(held.start, until - SLACK_NS))
        self._held = held.take(slice(ready, None))
        return self._link(held.take(slice(0, ready))) if ready else None

    def _remember(self, capture: int, launches: LaunchCalls) -> None:
        launches = launches.take(launches.link > 0)
        runs = self._launches.setdefault(capture, [])
        numbers = np.arange(self._count, self._count + len(launches))
        self._count += len(launches)
        if runs and len(runs[-1]) < RUN:
            runs[-1] = runs[-1].joined(launches, numbers, self._columns)
        elif len(launches):
            runs.append(_LaunchRun.of(launches, numbers, self._columns))
        for kept in self._launches.values():
            while len(kept) > 1 and kept[0].last < self._count - REMEMBERED:
                kept.pop(0)

    def _link(self, work: WorkRows) -> Linked:
        columns = np.full((len(self._columns), len(work)), NONE)
        number = np.full(len(work), -1, np.int64)
        first = np.zeros(len(work), bool)
        for capture in _distinct(work.capture):
            rows = np.flatnonzero((work.capture == capture) & (work.link > 0))
            runs = self._launches.get(capture, [])
            which, place = np.full(len(rows), -1), np.zeros(len(rows), np.int64)
            for index in range(len(runs) - 1, -1, -1):  # of several with one id the earliest counts
                hit, at = runs[index].find(work.link[rows], work.start[rows])
                which[hit], place[hit] = index, at
            for index in _distinct(which):
                if index >= 0:
                    in_run = which == index
                    runs[index].give(place[in_run], rows[in_run], columns, number, first)
        not_asked = np.broadcast_to(np.int64(NONE), len(work))
        given = dict.fromkeys(CALL_FIELDS, not_asked) | dict(zip(self._columns, columns, strict=True))
        return Linked(work, LaunchCalls(**given), number, first)


class _LaunchRun:
    """Some launches of a capture, sorted by link. columns: their links and starts, then what the linker gives back."""

    def __init__(self, columns: Ints, numbers: Ints, used: Flags) -> None:
        self.columns, self.numbers, self.used = columns, numbers, used
        self.ids, self.starts = columns[:2]
        self.last = int(numbers.max())

    @classmethod
    def of(cls, launches: LaunchCalls, numbers: Ints, names: Sequence[str]) -> _LaunchRun:
        """Return a run of launches in start order, with the columns of these names."""
        columns = np.stack([getattr(launches, name) for name in names])
        return cls._sorted(columns, numbers, np.zeros(len(numbers), bool))

    def joined(self, launches: LaunchCalls, numbers: Ints, names: Sequence[str]) -> _LaunchRun:
        """Return this run and later launches as one run."""
        if not len(launches):
            return self
        later = _LaunchRun.of(launches, numbers, names)
        return self._sorted(np.concatenate([self.columns, later.columns], axis=1),
                            np.concatenate([self.numbers, later.numbers]), np.concatenate([self.used, later.used]))

    @classmethod
    def _sorted(cls, columns: Ints, numbers: Ints, used: Flags) -> _LaunchRun:
        ids = columns[0]
        if (ids[1:] >= ids[:-1]).all():
            return cls(columns, numbers, used)
        order = np.argsort(ids, kind="stable")
        return cls(columns[:, order], numbers[order], used[order])

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: Ints, start: Ints) -> tuple[Ints, Ints]:
        """Return which of the rows have their launch here, and at which place. A call that begins SLACK_NS after the
        work is not its launch."""
        if not len(ids) or ids.max() < self.ids[0] or ids.min() > self.ids[-1]:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        hit = np.flatnonzero((self.ids[at] == ids) & (self.starts[at] < start + SLACK_NS))
        return hit, at[hit]

    def give(self, place: Ints, rows: Ints, columns: Ints, number: Ints, first: Flags) -> None:
        """Fill in these rows from the launches at these places, and mark the first work of each launch."""
        columns[:, rows] = self.columns[:, place]
        number[rows] = self.numbers[place]
        turn = np.arange(len(place))
        earliest = np.empty(len(self), np.int64)
        earliest[place[::-1]] = turn[::-1]  # of several rows at one place the last written stays: the first of them
        first[rows[(earliest[place] == turn) & ~self.used[place]]] = True
        self.used[place] = True


def _by_capture(calls: LaunchCalls) -> Iterator[tuple[int, LaunchCalls]]:
    captures = _distinct(calls.capture)
    for capture in captures:
        yield capture, calls if len(captures) == 1 else calls.take(calls.capture == capture)


def _distinct(values: Ints) -> list[int]:
    distinct_values: list[int] = distinct.values(values).tolist()
    return distinct_values


def _least_of_runs(values: Ints, mask: Flags, run: Ints, count: int) -> Ints:
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, run[mask], values[mask])
    return least


def _most_of_runs(values: Ints, mask: Flags, run: Ints, count: int) -> Ints:
    most = np.full(count, NONE)
    np.maximum.at(most, run[mask], values[mask])
    return most
