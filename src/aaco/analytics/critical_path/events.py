"""What the graph is made of: the work of devices and the calls of hosts, as columns, taken in a slice at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics import calls as api
from aaco.analytics import clockfit, communication
from aaco.analytics.calls import Does
from aaco.analytics.lanes import NONE, Flags, Ints, Names, integers
from aaco.analytics.linking import DOMAINS, SLACK_NS
from aaco.analytics.work import COMMUNICATION, COMPUTE, COPY, FARTHEST_NS
from aaco.core.distinct import coded

_WHERE = ("process_id", "device_id", "queue_id", "stream_id", "correlation_id", "t_start_ns", "t_end_ns", "capture")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_id", "kernel_name", *_WHERE),
    "copies": ("copy_id", *_WHERE),
    "api_calls": ("call_id", "name", "domain", "process_id", "thread_id", "correlation_id", "t_start_ns", "t_end_ns",
                  "capture"),
}
LAUNCHES = (Does.LAUNCH, Does.GRAPH, Does.COPY, Does.FILL)
PARTS = (*LAUNCHES, Does.SYNC, Does.WAIT, Does.RECORD, Does.STREAM_WAIT)


class _Columns:
    """Columns of one length that rows can be taken from."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, rows: Ints | Flags) -> Any:
        """These rows."""
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Work(_Columns):
    """Device work in start order. kind: of work.COMPUTE and its neighbours. device: number of (capture, device). lane:
    number of (capture, process, device, stream, or queue where no stream is known). key: kernel_id, or copy_id of a
    copy. name: number of the kernel's name. launch: row of Calls, -1 where none is known."""

    start: Ints
    end: Ints
    kind: Ints
    capture: Ints
    process: Ints
    device: Ints
    lane: Ints
    name: Ints
    key: Ints
    launch: Ints


@dataclass(frozen=True)
class Calls(_Columns):
    """Calls into a GPU runtime that launch, wait or order, in start order. part: of calls.Does. thread: number of
    (capture, process, thread). asynchronous: whether its name says that it returns before what it started has ended."""

    start: Ints
    end: Ints
    capture: Ints
    process: Ints
    thread: Ints
    part: Ints
    asynchronous: Flags
    key: Ints


@dataclass(frozen=True)
class Events:
    """A trace's work and calls; names of kernels by number."""

    work: Work
    calls: Calls
    names: Sequence[str]

    def of(self, captures: Ints) -> Events:
        """Those of some captures."""
        mine = np.isin(self.calls.capture, captures)
        number = np.append(np.where(mine, np.cumsum(mine) - 1, -1), -1)
        work: Work = self.work.take(np.isin(self.work.capture, captures))
        return Events(replace(work, launch=number[work.launch]), self.calls.take(mine), self.names)


class Recording:
    """Takes in slices of the tables; 88 bytes a piece of work and 80 a call are kept."""

    def __init__(self) -> None:
        self._kernel_names, self._call_names, self._domains = Names(), Names(), Names()
        self._part: Ints = np.zeros(0, np.int64)
        self._asynchronous: Flags = np.zeros(0, bool)
        self._work: list[Ints] = []
        self._calls: list[Ints] = []

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table) -> None:
        """Rows with COLUMNS, in any order."""
        self._work += [self._placed(kernels, "kernel_id", self._kernel_names.numbers(kernels["kernel_name"])),
                       self._placed(copies, "copy_id", np.full(copies.num_rows, NONE))]
        self._calls.append(self._called(api_calls))

    @property
    def rows(self) -> int:
        """Pieces of work taken in so far."""
        return sum(part.shape[1] for part in self._work)

    def result(self, shifts: Sequence[Mapping[str, Any]] = (), collective: Ints | None = None) -> Events:
        """The events on one clock, given once. shifts: as metrics/collectives.json has them. collective: ids of kernels
        that are collective operations whatever their names."""
        work, calls = (_joined(parts, count) for parts, count in ((self._work, 11), (self._calls, 10)))
        self._work, self._calls = [], []
        for shift in shifts:
            moved = NONE if shift["capture"] is None else shift["capture"]
            for rows in (work, calls):
                mine = rows[2] == moved
                rows[:2, mine] = clockfit.moved(rows[:2, mine], shift["origin_ns"], shift["offset_ns"],
                                                shift["drift_ppm"])
        work = work[:, np.argsort(work[0], kind="stable")]
        calls = calls[:, np.argsort(calls[0], kind="stable")]
        thread = coded(calls[2], calls[3], calls[4])[0]
        made = Calls(calls[0], calls[1], calls[2], calls[3], thread, calls[5], calls[6].astype(bool), calls[7])
        launch = _launches(work, calls)
        return Events(self._made(work, launch, made, collective), made, self._kernel_names.known)

    def _made(self, work: Ints, launch: Ints, calls: Calls, collective: Ints | None) -> Work:
        start, end, capture, process, device, queue, stream, _, name, key, copied = work
        by_call = calls.process[np.maximum(launch, 0)] if len(calls) else process
        process = np.where((process == NONE) & (launch >= 0), by_call, process)
        lane = coded(capture, process, device, np.where(stream != NONE, NONE, queue), stream)[0]
        flags = np.append(communication.flags(self._kernel_names.known), False)
        communicates = flags[np.where(name == NONE, -1, name)]
        if collective is not None:
            communicates |= np.isin(key, collective)
        kind = np.where(copied == 1, COPY, np.where(communicates, COMMUNICATION, COMPUTE))
        return Work(start, end, kind, capture, process, coded(capture, device)[0], lane, name, key, launch)

    def _placed(self, rows: pa.Table, key: str, name: Ints) -> Ints:
        """Rows that ran on a device and have times that can be: start, end, capture, process, device, queue, stream,
        correlation, name, key, whether a copy."""
        wanted = ("t_start_ns", "t_end_ns", "capture", "process_id", "device_id", "queue_id", "stream_id",
                  "correlation_id")
        column = [integers(rows[each]) for each in wanted]
        copied = np.full(rows.num_rows, int(key == "copy_id"))
        start, end = column[0], column[1]
        chosen = (column[4] != NONE) & (start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS)
        return np.stack([*column, name, integers(rows[key]), copied])[:, chosen]

    def _called(self, rows: pa.Table) -> Ints:
        """Calls of PARTS: start, end, capture, process, thread, part, asynchronous, key, correlation, row."""
        name, domain = self._call_names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        new = self._call_names.known[len(self._part):]
        self._part = np.concatenate([self._part, api.parts(new).astype(np.int64)])
        self._asynchronous = np.concatenate([self._asynchronous, np.array(["Async" in one for one in new], bool)])
        part = np.append(self._part, Does.OTHER)[np.where(name == NONE, -1, name)]
        into = np.array([*(one in DOMAINS for one in self._domains.known), True])[np.where(domain == NONE, -1, domain)]
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        at = np.flatnonzero(into & np.isin(part, PARTS) & (start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS))
        column = {each: integers(rows[each])[at]
                  for each in ("capture", "process_id", "thread_id", "call_id", "correlation_id")}
        asynchronous = np.append(self._asynchronous, False)[np.where(name == NONE, -1, name)][at]
        return np.stack([start[at], end[at], column["capture"], column["process_id"], column["thread_id"], part[at],
                         asynchronous.astype(np.int64), column["call_id"], column["correlation_id"], at])


def _joined(parts: Sequence[Ints], count: int) -> Ints:
    return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0), np.int64)


def _launches(work: Ints, calls: Ints) -> Ints:
    """Per piece of work the row of its launch, by capture and correlation id: of several the earliest, and none that
    begins SLACK_NS after the work."""
    rows = np.flatnonzero(np.isin(calls[5], LAUNCHES) & (calls[8] > 0))
    code = coded(np.concatenate([work[2], calls[2, rows]]), np.concatenate([work[7], calls[8, rows]]))[0]
    of_work, of_calls = code[:work.shape[1]], code[work.shape[1]:]
    earliest = np.full(int(code.max(initial=-1)) + 1, -1)
    earliest[of_calls[::-1]] = rows[::-1]
    found = np.where(work[7] > 0, earliest[of_work], -1)
    late = calls[0, np.maximum(found, 0)] >= work[0] + SLACK_NS if calls.shape[1] else np.zeros(len(found), bool)
    return np.where(late, -1, found)
