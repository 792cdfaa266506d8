"""What launching costs: statistics of the calls that start device work, joined by (capture, correlation id).

One row of the answer is one API function of any runtime (cudaLaunchKernel, hipGraphLaunch, hsa_amd_memory_async_copy,
...). A call that starts many pieces of work, as a graph launch does, is one launch; its delay is that of the first
piece. Durations go into bins (see distribution.py), so memory does not grow with the trace: 190 kB per function.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.streaming.distribution import Distribution, DurationSummary
from aaco.analytics.streaming.link_launches import Linked
from aaco.analytics.streaming.stream_ids import NONE, largest, or_none
from aaco.analytics.streaming.work import COPY
from aaco.core import distinct, documents
from aaco.core.arrays import Ints
from aaco.tracelake import layout

MOST_FUNCTIONS = 64  # the others are summed under OTHERS; a hostile capture may name each call differently
OTHERS = "(other functions)"
SLOWEST = 10


class LaunchFunction(Struct, frozen=True):
    """The launches by one API function that have work in the capture.

    host: how long the call took. delay: from the start of the call to the start of its first work. device: how long
    each piece of work took. outlived: launches that took the host longer than their work took the device.
    """

    name: str
    launches: int
    work: int
    outlived: int
    host: DurationSummary | None
    delay: DurationSummary | None
    device: DurationSummary | None


class Slow(Struct, frozen=True):
    """One of the calls that took the host longest, and the first kernel it launched (None: a copy or fill)."""

    capture: int | None
    name: str
    t_start_ns: int
    host_ns: int
    delay_ns: int
    kernel: str | None


@documents.document(layout.TRACE["launches"], version=1)
class LaunchStatistics(Struct, frozen=True):
    """Launch statistics of a capture set. work = linked + unlinked, in rows of kernels and copies."""

    work: int
    linked: int
    launches: int
    functions: tuple[LaunchFunction, ...]
    slowest: tuple[Slow, ...]
    host: DurationSummary | None  # of all functions together, as are the next two
    delay: DurationSummary | None
    device: DurationSummary | None


class _Tally:
    """The distributions of one function."""

    def __init__(self) -> None:
        self.launches, self.work, self.outlived = 0, 0, 0
        self.host, self.delay, self.device = Distribution(), Distribution(), Distribution()
        self.all = self.host, self.delay, self.device


class LaunchCounter:
    """Takes in linked work in start order."""

    def __init__(self) -> None:
        self._work, self._linked = 0, 0
        self._functions: dict[int, _Tally] = {}
        self._slowest: list[tuple[int, ...]] = []

    def feed(self, linked: Linked) -> None:
        """Count rows of device work with their launches."""
        self._work += len(linked)
        rows = np.flatnonzero(linked.known)
        self._linked += len(rows)
        names = linked.call.name[rows]
        for name in distinct.values(names).tolist():
            self._add(name, linked, rows[names == name])

    def _add(self, name: int, linked: Linked, rows: Ints) -> None:
        if name not in self._functions and len(self._functions) >= MOST_FUNCTIONS:
            name = NONE
        tally = self._functions.setdefault(name, _Tally())
        first = rows[linked.first[rows]]
        call, work = linked.call, linked.work
        host, delay = call.end[first] - call.start[first], work.start[first] - call.start[first]
        device = work.end - work.start
        tally.launches += len(first)
        tally.work += len(rows)
        tally.outlived += int((host > device[first]).sum())
        tally.host.add(host)
        tally.delay.add(delay)
        tally.device.add(device[rows])
        top = largest(host, SLOWEST)
        columns = (host, call.start[first], delay, work.capture[first], call.name[first],
                   np.where(work.kind[first] >= COPY, NONE, work.name[first]))
        rows_ = zip(*(column[top].tolist() for column in columns), strict=True)
        self._slowest = sorted([*self._slowest, *rows_], key=lambda row: (-row[0], row[1]))[:SLOWEST]

    def result(self, functions: Sequence[str], kernels: Sequence[str]) -> LaunchStatistics:
        """Return the answer, the function with most launches first. functions, kernels: names by number."""
        rows = [LaunchFunction(OTHERS if number == NONE else functions[number], tally.launches, tally.work,
                               tally.outlived,
                               tally.host.summary(), tally.delay.summary(), tally.device.summary())
                for number, tally in self._functions.items()]
        slowest = [Slow(or_none(capture), functions[name], start, host, delay, None if kernel == NONE else
                        kernels[kernel]) for host, start, delay, capture, name, kernel in self._slowest]
        whole = _Tally()
        for tally in self._functions.values():
            for mine, its in zip(whole.all, tally.all, strict=True):
                mine.absorb(its)
        return LaunchStatistics(self._work, self._linked, sum(row.launches for row in rows),
                                tuple(sorted(rows, key=lambda row: (-row.launches, row.name))), tuple(slowest),
                                *(distribution.summary() for distribution in whole.all))
