"""How much launched work waits on each stream: the queue length, launches minus completions, over time.

A launch joins its stream's queue when its call begins and leaves when its last work on that stream has ended and that
of every launch before it: streams run in order. A graph launch counts once per stream. The length a launch finds,
itself included, is known when its work starts, because everything before it on the stream has started by then:

    length of k = 1 + launches before k on the stream that have not left when k's call begins

Memory: the MOST last departures of each stream, 8 bytes each, so a length above MOST + 1 is counted as that. The mean
is exact: by Little's law the time integral of the length is the sum of all launches' times in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from aaco.analytics.streaming.link_launches import Linked
from aaco.analytics.streaming.stream_ids import NONE, first_rows, rows_by_stream
from aaco.core.arrays import Ints

MOST = 4096
CAP = 1024  # launches that the CUDA runtime lets wait on a stream before a launch call blocks; HIP's is set likewise


class Queue(Struct, frozen=True):
    """The queue of one stream. t_start_ns, t_end_ns: the first launch call's start, the last work's end.

    longest: largest length. mean: over that time. at_cap_ns: time in which at least CAP launches waited.
    """

    capture: int | None
    device_id: int
    queue_id: int | None
    stream_id: int | None
    launches: int
    longest: int
    mean: float
    at_cap_ns: int
    t_start_ns: int
    t_end_ns: int


class _Stream:
    """One stream's queue: departures so far, and the entry that may still grow."""

    def __init__(self) -> None:
        self.departures = np.zeros(0, np.int64)  # the last MOST, in order
        self.gone = 0  # departures forgotten
        self.last = -1  # number of the last launch
        self.longest, self.waited, self.at_cap, self.capped_until = 0, 0, 0, NONE
        self.first, self.joined = np.iinfo(np.int64).max, 0

    def add(self, number: Ints, joined: Ints, end: Ints) -> None:
        """Add work in start order: its launch's number, when that call began, and when the work ended."""
        new = np.r_[number[0] != self.last, number[1:] != number[:-1]]
        reach = np.maximum.accumulate(np.r_[self.departures[-1:], end])[len(self.departures[-1:]):]
        entry = np.flatnonzero(new)
        lasts = np.r_[entry[1:], len(end)] - 1 if len(entry) else np.zeros(0, np.int64)
        if not new[0]:
            grown = reach[entry[0] - 1] if len(entry) else reach[-1]
            self.waited += int(grown - self.departures[-1])
            self.departures[-1] = grown
        self._join(joined[entry], reach[lasts])
        self.last = int(number[-1])

    def _join(self, joined: Ints, departs: Ints) -> None:
        """Add new launches: when they joined, and when they depart (in order)."""
        if not len(joined):
            return
        departures = np.concatenate([self.departures, departs])
        before = self.gone + len(self.departures) + np.arange(len(joined))
        gone = np.minimum(self.gone + np.searchsorted(departures, joined, side="right"), before)
        length = 1 + np.minimum(before - gone, MOST)
        self.longest = max(self.longest, int(length.max()))
        self.waited += int((departs - joined).sum())
        self._cap(joined, length, departures, before)
        self.first, self.joined = min(self.first, int(joined.min())), self.joined + len(joined)
        self.gone += max(0, len(departures) - MOST)
        self.departures = departures[-MOST:]

    def _cap(self, joined: Ints, length: Ints, departures: Ints, before: Ints) -> None:
        """Add the time from each launch that finds the queue at its cap to the departure that brings it below."""
        full = np.flatnonzero(length >= CAP)
        if not len(full):
            return
        until = departures[before[full] - self.gone - (CAP - 1)]
        reach = np.maximum.accumulate(np.r_[self.capped_until, until])
        self.at_cap += int(np.maximum(0, until - np.maximum(joined[full], reach[:-1])).sum())
        self.capped_until = int(reach[-1])


def _sort_key(queue: Queue) -> tuple[int, ...]:
    parts = (queue.capture, queue.device_id, queue.queue_id, queue.stream_id)
    return tuple(-1 if part is None else part for part in parts)


class Queues:
    """Takes in linked work in start order."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}

    def feed(self, linked: Linked) -> None:
        """Add rows of device work with their launches; work without a known launch is in no queue."""
        rows = np.flatnonzero(linked.known)
        order = rows[rows_by_stream(linked.work.stream[rows])]
        stream = linked.work.stream[order]
        for low, high in pairwise([*first_rows(stream).tolist(), len(stream)]):
            mine = order[low:high]
            self._streams.setdefault(int(stream[low]), _Stream()).add(
                linked.number[mine], linked.call.start[mine], linked.work.end[mine])

    def result(self, keys: Sequence[tuple[int, ...]]) -> tuple[Queue, ...]:
        """Return the queue of every stream with linked work. keys: (capture, device, queue, stream) by number."""
        return tuple(sorted(self._queues(keys), key=_sort_key))

    def _queues(self, keys: Sequence[tuple[int, ...]]) -> Iterator[Queue]:
        for number, state in sorted(self._streams.items()):
            capture, device, queue, stream = (None if part == NONE else part for part in keys[number])
            end = int(state.departures[-1])
            mean = state.waited / (end - state.first) if end > state.first else 0.0
            yield Queue(capture, device or 0, queue, stream, state.joined, state.longest, mean, state.at_cap,
                        state.first, end)
