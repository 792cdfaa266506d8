"""Rings of perf_event_open(2): the kernel's records of a thread and all that it starts, one ring for each CPU.

Layouts are those of include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from fcntl import ioctl

import numpy as np
from numpy.typing import NDArray

from aaco.collectors.host.perf_event import MAJOR_FAULTS, MINOR_FAULTS_AND_SWITCHES, open_event
from aaco.core.arrays import Structs, UInts64

# What a record says. The order is part of the raw format: append only.
KINDS = ("in", "switch_voluntary", "switch_involuntary", "lost", "fault_minor", "fault_major", "watched", "cycles",
         "instructions", "llc_misses")
IN, VOLUNTARY, INVOLUNTARY, LOST, MINOR, MAJOR, WATCHED, COUNTED = range(8)  # from COUNTED on: hardware counters
# -1 is null in dur_ns and value.
RECORD = np.dtype([("t_ns", "<i8"), ("dur_ns", "<i8"), ("value", "<i8"), ("process_id", "<i4"), ("thread_id", "<i4"),
                   ("cpu", "<i4"), ("kind", "<u4")])
# 512 KiB and the control page are what a user may lock per CPU by default (kernel.perf_event_mlock_kb 516).
RING_BYTES, LEAST_RING_BYTES = 512 << 10, 32 << 10

_SET_OUTPUT, _ID = 0x2405, 0x80082407  # ioctl
_LOST, _SAMPLE, _SWITCH = 2, 9, 14  # PERF_RECORD_*
_OUT, _PREEMPTED = 1 << 13, 1 << 14  # PERF_RECORD_MISC_SWITCH_*
_HEAD, _TAIL = 1024 // 8, 1032 // 8  # words of struct perf_event_mmap_page
_USUAL = 5  # words of every record but LOST


class PerfRing:
    """The records of one CPU: the first event's buffer, into which all others of the CPU write too."""

    def __init__(self, cpu: int, ring_bytes: int = RING_BYTES) -> None:
        self.cpu, self.size = cpu, ring_bytes
        self.without_kernel = False
        self.handles: list[int] = []
        self._majors: list[int] = []  # identifiers
        self._map: mmap.mmap | None = None
        self._tail = self._reported = 0

    def watch(self, thread_id: int) -> None:
        """Add a thread and all it will start. Raise OSError."""
        for event in (MINOR_FAULTS_AND_SWITCHES, MAJOR_FAULTS):
            handle, self.without_kernel = open_event(event, thread_id, self.cpu, self.size)
            self.handles.append(handle)
            if self._map is None:
                self._map = self._map_buffer(handle)
            else:
                ioctl(handle, _SET_OUTPUT, self.handles[0])
            if event is MAJOR_FAULTS:
                self._majors.append(_read_identifier(handle))

    def _map_buffer(self, handle: int) -> mmap.mmap:
        """Return a buffer as large as the kernel allows. Raise OSError."""
        while True:
            try:
                buffer = mmap.mmap(handle, mmap.PAGESIZE + self.size)
            except PermissionError:
                if self.size <= LEAST_RING_BYTES:
                    raise
                self.size //= 2
            else:
                self._page = np.frombuffer(buffer, "<u8", mmap.PAGESIZE // 8)
                self._data = np.frombuffer(buffer, "<u8", self.size // 8, mmap.PAGESIZE)
                return buffer

    def take(self) -> Structs:
        """Return the records since the last call, in the order of this CPU; make room for more."""
        if self._map is None:
            return np.empty(0, RECORD)
        head = int(self._page[_HEAD])
        begin, end = self._tail // 8 % len(self._data), self._tail // 8 % len(self._data) + (head - self._tail) // 8
        words = np.concatenate((self._data[begin:end], self._data[:max(0, end - len(self._data))]))
        self._page[_TAIL] = self._tail = head
        records = decode(words, self._majors)
        lost = records["kind"] == LOST
        records["cpu"][lost] = self.cpu
        self._reported += int(records["value"][lost].sum())
        return records

    def untold(self) -> int:
        """Return the number of records lost since the last LOST record: the kernel reports a loss only with the next
        record that fits.
        """
        counts = [os.read(handle, 16) for handle in self.handles]
        return max(0, sum(int.from_bytes(count[8:], "little") for count in counts) - self._reported)

    def close(self) -> None:
        """Stop recording."""
        for handle in self.handles:
            os.close(handle)
        self.handles.clear()
        if self._map is not None:
            del self._page, self._data
            self._map.close()
            self._map = None


def _read_identifier(handle: int) -> int:
    buffer = bytearray(8)
    ioctl(handle, _ID, buffer)
    return int.from_bytes(buffer, "little")


def decode(words: UInts64, majors: Sequence[int] = ()) -> Structs:
    """Return the kernel's records (their 64-bit words) as rows of the raw file, in their order.

    majors: identifiers of the events that sample major faults.
    """
    pieces, at = [np.empty(0, RECORD)], 0
    while at < len(words):
        alike = words[at:at + (len(words) - at) // _USUAL * _USUAL].reshape(-1, _USUAL)
        others = np.flatnonzero(alike[:, 0] >> np.uint64(48) != 8 * _USUAL)
        count = int(others[0]) if len(others) else len(alike)
        pieces.append(_decode_usual(alike[:count], majors))
        at += count * _USUAL
        if at < len(words):
            size = max(1, int(words[at]) >> 48 >> 3)
            pieces.append(_decode_lost(words[at:at + size]))
            at += size
    return np.concatenate(pieces)


def _decode_usual(words: UInts64, majors: Sequence[int]) -> Structs:
    """Return rows. SWITCH: header, thread, time, cpu, identifier. SAMPLE: header, identifier, thread, time, cpu."""
    kind, misc = words[:, 0] & np.uint64(0xFFFFFFFF), words[:, 0] >> np.uint64(32)
    sampled, switched = kind == _SAMPLE, kind == _SWITCH
    left = np.where(misc & np.uint64(_PREEMPTED), INVOLUNTARY, VOLUNTARY)
    switch = np.where(misc & np.uint64(_OUT), left, IN)
    fault = np.where(np.isin(words[:, 1], np.array(majors, np.uint64)), MAJOR, MINOR)
    body = np.where(sampled[:, None], words[:, 2:5], words[:, 1:4])
    return _rows(body, np.where(sampled, fault, switch))[sampled | switched]


def _decode_lost(words: UInts64) -> Structs:
    """Return a row. LOST: header, identifier, count, thread, time, cpu, identifier.

    No other record has another size.
    """
    if len(words) < 6 or int(words[0]) & 0xFFFFFFFF != _LOST:
        return np.empty(0, RECORD)
    records = _rows(words[None, 3:6], np.array([LOST]))
    records["value"] = words[2]
    return records


def _rows(body: UInts64, kind: NDArray[np.int64]) -> Structs:
    """Return rows of a body: process and thread (32 bits each), time, cpu."""
    records = np.empty(len(body), RECORD)
    halves = np.ascontiguousarray(body[:, 0]).view("<i4").reshape(-1, 2)
    records["process_id"], records["thread_id"] = halves[:, 0], halves[:, 1]
    records["t_ns"], records["cpu"], records["kind"] = body[:, 1], body[:, 2] & np.uint64(0x7FFFFFFF), kind
    records["dur_ns"] = records["value"] = -1
    return records
