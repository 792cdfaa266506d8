"""Collect what the graph is made of: the work of devices and the calls of hosts, as columns, slice by slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.streaming import calls as api
from aaco.analytics.streaming import clockfit, communication
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.link_launches import SLACK_NS
from aaco.analytics.streaming.stream_ids import NONE, NameIds, ValueByName, integers
from aaco.analytics.streaming.work import COMMUNICATION, COMPUTE, COPY, FARTHEST_NS, links
from aaco.core.arrays import ArrayRows, Flags, Ints
from aaco.core.distinct import coded

_WHERE = ("process_id", "device_id", "queue_id", "stream_id", "correlation_id", "launch_id", "t_start_ns", "t_end_ns",
          "capture")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_id", "kernel_name", *_WHERE),
    "copies": ("copy_id", *_WHERE),
    "api_calls": ("call_id", "name", "domain", "process_id", "thread_id", "correlation_id", "t_start_ns", "t_end_ns",
                  "capture"),
}
LAUNCHES = (CallKind.LAUNCH, CallKind.GRAPH, CallKind.COPY, CallKind.FILL)
PARTS = (*LAUNCHES, CallKind.SYNC, CallKind.WAIT, CallKind.RECORD, CallKind.STREAM_WAIT)


class PathWork(ArrayRows, frozen=True):
    """Device work in start order.

    kind: work.COMPUTE, COMMUNICATION or COPY. device: number of (capture, device). lane: number of (capture, process,
    device, stream, or queue if no stream is known). key: kernel_id, or copy_id of a copy. name: number of the kernel's
    name. launch: row of PathCalls, -1 if unknown.
    """

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


class PathCalls(ArrayRows, frozen=True):
    """Calls into a GPU runtime that launch, wait or order, in start order.

    part: of calls.CallKind. thread: number of (capture, process, thread). asynchronous: whether its name says that it
    returns before what it started has ended.
    """

    start: Ints
    end: Ints
    capture: Ints
    process: Ints
    thread: Ints
    part: Ints
    asynchronous: Flags
    key: Ints


class PathEvents(Struct, frozen=True):
    """A trace's work and calls; names of kernels by number."""

    work: PathWork
    calls: PathCalls
    names: Sequence[str]

    def of(self, captures: Ints) -> PathEvents:
        """Return the events of some captures."""
        is_member = np.isin(self.calls.capture, captures)
        number = np.append(np.where(is_member, np.cumsum(is_member) - 1, -1), -1)
        work: PathWork = self.work.take(np.isin(self.work.capture, captures))
        return PathEvents(replace(work, launch=number[work.launch]), self.calls.take(is_member), self.names)


class PathRecording:
    """Takes in slices of the tables and keeps 88 bytes per piece of work and 80 per call."""

    def __init__(self, with_launches: bool = False) -> None:
        """with_launches: whether the work has launch_id."""
        self._with_launches = with_launches
        self._kernel_names, self._call_names, self._domains = NameIds(), NameIds(), NameIds()
        self._part = ValueByName(self._call_names, api.call_kind, CallKind.OTHER)
        self._asynchronous = ValueByName(self._call_names, lambda name: "Async" in name, False)
        self._into_runtime = ValueByName(self._domains, api.is_runtime, True)
        self._work: list[Ints] = []
        self._calls: list[Ints] = []

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table) -> None:
        """Take rows with COLUMNS, in any order."""
        self._work += [self._placed(kernels, "kernel_id", self._kernel_names.numbers(kernels["kernel_name"])),
                       self._placed(copies, "copy_id", np.full(copies.num_rows, NONE))]
        self._calls.append(self._called(api_calls))

    @property
    def rows(self) -> int:
        """The number of pieces of work taken in so far."""
        return sum(part.shape[1] for part in self._work)

    def result(self, shifts: Sequence[Mapping[str, Any]] = (), collective: Ints | None = None) -> PathEvents:
        """Return the events on one clock. Call it once.

        shifts: as in metrics/collectives.json. collective: ids of kernels that are collective operations despite their
        names.
        """
        work, calls = (_joined(parts, count) for parts, count in ((self._work, 11), (self._calls, 10)))
        self._work, self._calls = [], []
        for shift in shifts:
            shifted_capture = NONE if shift["capture"] is None else shift["capture"]
            for rows in (work, calls):
                is_member = rows[2] == shifted_capture
                rows[:2, is_member] = clockfit.moved(rows[:2, is_member], shift["origin_ns"], shift["offset_ns"],
                                                     shift["drift_ppm"])
        work = work[:, np.argsort(work[0], kind="stable")]
        calls = calls[:, np.argsort(calls[0], kind="stable")]
        thread = coded(calls[2], calls[3], calls[4])[0]
        path_calls = PathCalls(calls[0], calls[1], calls[2], calls[3], thread, calls[5], calls[6].astype(bool),
                               calls[7])
        launch = _launches(work, calls)
        return PathEvents(self._make_work(work, launch, path_calls, collective), path_calls, self._kernel_names.known)

    def _make_work(self, work: Ints, launch: Ints, calls: PathCalls, collective: Ints | None) -> PathWork:
        start, end, capture, process, device, queue, stream, _, name, key, copied = work
        by_call = calls.process[np.maximum(launch, 0)] if len(calls) else process
        process = np.where((process == NONE) & (launch >= 0), by_call, process)
        lane = coded(capture, process, device, np.where(stream != NONE, NONE, queue), stream)[0]
        flags = np.append(communication.flags(self._kernel_names.known), False)
        communicates = flags[np.where(name == NONE, -1, name)]
        if collective is not None:
            communicates |= np.isin(key, collective)
        kind = np.where(copied == 1, COPY, np.where(communicates, COMMUNICATION, COMPUTE))
        return PathWork(start, end, kind, capture, process, coded(capture, device)[0], lane, name, key, launch)

    def _placed(self, rows: pa.Table, key: str, name: Ints) -> Ints:
        """Return the rows that ran on a device and have valid times: start, end, capture, process, device, queue,
        stream, link, name, key, whether a copy.
        """
        names = ("t_start_ns", "t_end_ns", "capture", "process_id", "device_id", "queue_id", "stream_id")
        column = [*(integers(rows[column_name]) for column_name in names), links(rows, self._with_launches)]
        copied = np.full(rows.num_rows, int(key == "copy_id"))
        start, end = column[0], column[1]
        is_valid = (column[4] != NONE) & (start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS)
        return np.stack([*column, name, integers(rows[key]), copied])[:, is_valid]

    def _called(self, rows: pa.Table) -> Ints:
        """Return the calls of PARTS: start, end, capture, process, thread, part, asynchronous, key, link, row.
        """
        name, domain = self._call_names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        part, into = self._part.of(name), self._into_runtime.of(domain)
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        at = np.flatnonzero(into & np.isin(part, PARTS) & (start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS))
        column = {key: integers(rows[key])[at] for key in ("capture", "process_id", "thread_id", "call_id")}
        link = column["call_id"] + 1 if self._with_launches else integers(rows["correlation_id"])[at]
        asynchronous = self._asynchronous.of(name)[at]
        return np.stack([start[at], end[at], column["capture"], column["process_id"], column["thread_id"], part[at],
                         asynchronous.astype(np.int64), column["call_id"], link, at])


def _joined(parts: Sequence[Ints], count: int) -> Ints:
    return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0), np.int64)


def _launches(work: Ints, calls: Ints) -> Ints:
    """Return per piece of work the row of its launch, by capture and link (link_launches.py), else -1.

    Of several it is the earliest; one that begins SLACK_NS after the work does not count.
    """
    rows = np.flatnonzero(np.isin(calls[5], LAUNCHES) & (calls[8] > 0))
    code = coded(np.concatenate([work[2], calls[2, rows]]), np.concatenate([work[7], calls[8, rows]]))[0]
    of_work, of_calls = code[:work.shape[1]], code[work.shape[1]:]
    earliest = np.full(int(code.max(initial=-1)) + 1, -1)
    earliest[of_calls[::-1]] = rows[::-1]
    launch_row = np.where(work[7] > 0, earliest[of_work], -1)
    no_call = np.zeros(len(launch_row), bool)
    late = calls[0, np.maximum(launch_row, 0)] >= work[0] + SLACK_NS if calls.shape[1] else no_call
    return np.where(late, -1, launch_row)
