"""What each thread of the host did for a device, in the order in which it did it, in one pass over a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.link_launches import CALL_COLUMNS, Callers, Linker
from aaco.analytics.streaming.work import COPY, COPY_COLUMNS, KERNEL_COLUMNS, WorkReader
from aaco.core import distinct
from aaco.core.arrays import Flags, Ints
from aaco.core.tables import API_CALLS, KERNELS

COLUMNS: Mapping[str, tuple[str, ...]] = {"kernels": KERNEL_COLUMNS, "copies": COPY_COLUMNS, "api_calls": CALL_COLUMNS}


class ThreadLaunches(Struct, frozen=True):
    """The calls of one thread in start order, and the kernels that they launched: by call, of one call by start.

    key: capture, process, thread. start, end: of each call. waits: which calls wait. name: number of each kernel's
    name, NONE without one. call: which call launched it. graph: whether that launched a device graph.
    """

    key: tuple[int, int, int]
    start: Ints
    end: Ints
    waits: Flags
    name: Ints
    call: Ints
    graph: Flags


class LaunchOrder:
    """One pass over a trace. `threads` returns those that launched kernels, `names` the names of these by number."""

    def __init__(self, with_launches: bool) -> None:
        """with_launches: whether the work has launch_id."""
        self._callers, self._linker = Callers(with_launches), Linker(("tag",))
        self._reader = WorkReader(with_launches=with_launches)
        self._calls: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._kernels: list[tuple[Ints, Ints, Ints]] = []
        self._count = 0

    def feed(self, kernels: pa.Table, api_calls: pa.Table, until: int | None) -> None:
        """Take in the rows that start next, in start order, with COLUMNS. until: later rows start at or after it."""
        calls = self._callers.launching(api_calls)
        calls = replace(calls, tag=np.arange(self._count, self._count + len(calls)))
        self._count += len(calls)
        self._calls.append((calls.thread, calls.start, calls.end, calls.part))
        linked = self._linker.feed(self._reader.work(kernels, None), calls, until)
        if linked is not None:
            mine = linked.known & (linked.work.kind < COPY)
            self._kernels.append((linked.call.tag[mine], linked.work.start[mine], linked.work.name[mine]))

    def rest(self) -> None:
        """Settle what waits for later rows. Call it once, after the last `feed`."""
        kernels, calls = (spec.build().select(list(COLUMNS[spec.name])) for spec in (KERNELS, API_CALLS))
        self.feed(kernels, calls, until=None)

    @property
    def names(self) -> list[str]:
        """Return the names of kernels by number."""
        return self._reader.names.known

    def threads(self) -> Iterator[ThreadLaunches]:
        """Yield the threads that launched kernels. Call it after `rest`."""
        thread, start, end, part = _columns(self._calls, 4)
        call, ran, name = _columns(self._kernels, 3)
        order = np.lexsort((ran, call))
        call, name = call[order], name[order]
        for number in distinct.values(thread[call]).tolist():
            rows, mine = np.flatnonzero(thread == number), thread[call] == number
            capture, process, identity = self._callers.threads.known[number]
            yield ThreadLaunches((capture, process, identity), start[rows], end[rows], part[rows] >= CallKind.SYNC,
                                 name[mine], np.searchsorted(rows, call[mine]), part[call[mine]] == CallKind.GRAPH)


def _columns(parts: Sequence[tuple[Ints, ...]], width: int) -> list[Ints]:
    """Return parts of columns as whole ones."""
    none = (np.zeros(0, np.int64),) * width
    return [np.concatenate(column) for column in zip(none, *parts, strict=True)]
