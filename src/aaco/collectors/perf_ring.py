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

from aaco.collectors.perf_event import MAJOR_FAULTS, MINOR_FAULTS_AND_SWITCHES, open_event

# What a record says. The order is part of the raw format: append only.
KINDS = ("in", "switch_voluntary", "switch_involuntary", "lost", "fault_minor", "fault_major", "watched", "cycles",
         "instructions", "llc_misses")
IN, VOLUNTARY, INVOLUNTARY, LOST, MINOR, MAJOR, WATCHED, COUNTED = range(8)  # from COUNTED on: hardware counters
# -1 stands for null in dur_ns and value.
RECORD = np.dtype([("t_ns", "<i8"), ("dur_ns", "<i8"), ("value", "<i8"), ("process_id", "<i4"), ("thread_id", "<i4"),
                   ("cpu", "<i4"), ("kind", "<u4")])
# 512 KiB and the control page are what a user may lock per CPU by default (kernel.perf_event_mlock_kb 516).
RING_BYTES, LEAST_RING_BYTES = 512 << 10, 32 << 10
Words = NDArray[np.uint64]
Records = NDArray[np.void]

_SET_OUTPUT, _ID = 0x2405, 0x80082407  # ioctl
_LOST, _SAMPLE, _SWITCH = 2, 9, 14  # PERF_RECORD_*
_OUT, _PREEMPTED = 1 << 13, 1 << 14  # PERF_RECORD_MISC_SWITCH_*
_HEAD, _TAIL = 1024 // 8, 1032 // 8  # words of struct perf_event_mmap_page
_USUAL = 5  # words of every record but LOST


class Ring:
    """The records of one CPU: the first event's buffer, into which all others of the CPU write too."""

    def __init__(self, cpu: int, ring_bytes: int = RING_BYTES) -> None:
        self.cpu, self.size = cpu, ring_bytes
        self.without_kernel = False
        self.handles: list[int] = []
        self._majors: list[int] = []  # identifiers
        self._map: mmap.mmap | None = None
        self._tail = self._told = 0

    def watch(self, thread_id: int) -> None:
        """Add a thread and all it will start. Raises OSError."""
        for event in (MINOR_FAULTS_AND_SWITCHES, MAJOR_FAULTS):
            handle, self.without_kernel = open_event(event, thread_id, self.cpu, self.size)
            self.handles.append(handle)
            if self._map is None:
                self._map = self._buffer(handle)
            else:
                ioctl(handle, _SET_OUTPUT, self.handles[0])
            if event is MAJOR_FAULTS:
                self._majors.append(_identifier(handle))

    def _buffer(self, handle: int) -> mmap.mmap:
        """As large as it may be. Raises OSError."""
        while True:
            try:
                found = mmap.mmap(handle, mmap.PAGESIZE + self.size)
            except PermissionError:
                if self.size <= LEAST_RING_BYTES:
                    raise
                self.size //= 2
            else:
                self._page = np.frombuffer(found, "<u8", mmap.PAGESIZE // 8)
                self._data = np.frombuffer(found, "<u8", self.size // 8, mmap.PAGESIZE)
                return found

    def take(self) -> Records:
        """What was recorded since the last call, in the order of this CPU; makes room for more."""
        if self._map is None:
            return np.empty(0, RECORD)
        head = int(self._page[_HEAD])
        begin, end = self._tail // 8 % len(self._data), self._tail // 8 % len(self._data) + (head - self._tail) // 8
        words = np.concatenate((self._data[begin:end], self._data[:max(0, end - len(self._data))]))
        self._page[_TAIL] = self._tail = head
        found = decode(words, self._majors)
        lost = found["kind"] == LOST
        found["cpu"][lost] = self.cpu
        self._told += int(found["value"][lost].sum())
        return found

    def untold(self) -> int:
        """Records lost since the last LOST record: the kernel tells of a loss only with the next one that fits."""
        counts = [os.read(handle, 16) for handle in self.handles]
        return max(0, sum(int.from_bytes(count[8:], "little") for count in counts) - self._told)

    def close(self) -> None:
        """Stop recording."""
        for handle in self.handles:
            os.close(handle)
        self.handles.clear()
        if self._map is not None:
            del self._page, self._data
            self._map.close()
            self._map = None


def _identifier(handle: int) -> int:
    found = bytearray(8)
    ioctl(handle, _ID, found)
    return int.from_bytes(found, "little")


def decode(words: Words, majors: Sequence[int] = ()) -> Records:
    """The kernel's records (their 64-bit words) as rows of the raw file, in their order.

    majors: identifiers of the events that sample major faults.
    """
    pieces, at = [np.empty(0, RECORD)], 0
    while at < len(words):
        alike = words[at:at + (len(words) - at) // _USUAL * _USUAL].reshape(-1, _USUAL)
        others = np.flatnonzero(alike[:, 0] >> np.uint64(48) != 8 * _USUAL)
        count = int(others[0]) if len(others) else len(alike)
        pieces.append(_usual(alike[:count], majors))
        at += count * _USUAL
        if at < len(words):
            size = max(1, int(words[at]) >> 48 >> 3)
            pieces.append(_unusual(words[at:at + size]))
            at += size
    return np.concatenate(pieces)


def _usual(words: Words, majors: Sequence[int]) -> Records:
    """SWITCH: header, thread, time, cpu, identifier. SAMPLE: header, identifier, thread, time, cpu."""
    kind, misc = words[:, 0] & np.uint64(0xFFFFFFFF), words[:, 0] >> np.uint64(32)
    sampled, switched = kind == _SAMPLE, kind == _SWITCH
    left = np.where(misc & np.uint64(_PREEMPTED), INVOLUNTARY, VOLUNTARY)
    switch = np.where(misc & np.uint64(_OUT), left, IN)
    fault = np.where(np.isin(words[:, 1], np.array(majors, np.uint64)), MAJOR, MINOR)
    body = np.where(sampled[:, None], words[:, 2:5], words[:, 1:4])
    return _rows(body, np.where(sampled, fault, switch))[sampled | switched]


def _unusual(words: Words) -> Records:
    """LOST: header, identifier, count, thread, time, cpu, identifier. Nothing else of another size is asked for."""
    if len(words) < 6 or int(words[0]) & 0xFFFFFFFF != _LOST:
        return np.empty(0, RECORD)
    found = _rows(words[None, 3:6], np.array([LOST]))
    found["value"] = words[2]
    return found


def _rows(body: Words, kind: NDArray[np.int64]) -> Records:
    """body: process and thread (32 bits each), time, cpu."""
    found = np.empty(len(body), RECORD)
    halves = np.ascontiguousarray(body[:, 0]).view("<i4").reshape(-1, 2)
    found["process_id"], found["thread_id"] = halves[:, 0], halves[:, 1]
    found["t_ns"], found["cpu"], found["kind"] = body[:, 1], body[:, 2] & np.uint64(0x7FFFFFFF), kind
    found["dur_ns"] = found["value"] = -1
    return found
