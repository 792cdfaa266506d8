"""The host's calls into a device's runtime: how often it waits in a window, and how long it launches the work there;
how long it waits for the processes of a PyTorch DataLoader, and works on tensors of its own.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.work import CALL_NS
from aaco.analytics.streaming.calls import CallKind, call_kinds, waits_for_the_device
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.analytics.timeline.timeline import covered_until
from aaco.analytics.workload.program import LOADER
from aaco.core.arrays import Flags, Ints
from aaco.core.session import Session
from aaco.core.tables import API_CALLS
from aaco.steps.findings.own_operators import OwnOperators
from aaco.tracelake import queries

WORK = (CallKind.LAUNCH, CallKind.GRAPH, CallKind.COPY, CallKind.FILL)  # what calls give a device
OF_LOADERS = f"{LOADER}_MultiProcessing"  # of the name of a range around a batch that other processes make
NEVER = np.zeros(0, np.int64)
COLUMNS = ("name", "t_start_ns", "t_end_ns", "correlation_id", "capture")


class HostCalls(Struct, frozen=True):
    """Calls into the runtime. asked: when each began that gives the device work, in the order of the capture. launches:
    which of them are of kernels.

    start, end: of each time in which the host waits for the device; synchronises: whether that is a whole call, else
    what a call takes beyond CALL_NS, as for room in a queue. begin, until: the start of the call for the first work
    that is looked at, and the end of that for the last; equal where one of them was not recorded. fetches: start and
    end of each time in which the host takes a batch that other processes make. own_start, own_end: of each time in
    which it works on tensors of its own.
    """

    asked: Ints
    launches: Flags
    start: Ints
    end: Ints
    synchronises: Flags
    begin: int = 0
    until: int = 0
    fetches: tuple[tuple[int, int], ...] = ()
    own_start: Ints = NEVER
    own_end: Ints = NEVER

    def waits_between(self, begin: int, until: int) -> int:
        """Return in how many calls the host waits between two moments."""
        return int(np.count_nonzero(self.synchronises & (self.end > begin) & (self.start < until)))

    def fetching_between(self, begin: int, until: int) -> int:
        """Return how long the host takes batches that other processes make between two moments, ns."""
        return sum(max(0, min(end, until) - max(start, begin)) for start, end in self.fetches)

    def of_work(self, kernels_only: bool = False) -> Ints:
        """Return when the host asked for each piece of the work that is looked at, in order."""
        meant = (self.asked >= self.begin) & (self.asked < self.until)
        asked = self.asked[meant & self.launches if kernels_only else meant]
        if (asked[1:] < asked[:-1]).any():  # most often they are in order, and to sort those takes long
            asked.sort()
        return asked

    @property
    def since(self) -> int:
        """When the host last asked for work before that which is looked at, else the first moment."""
        return int(self.asked[self.asked < self.begin].max(initial=0))

    def own_ns(self) -> int:
        """Return how long the host works on tensors of its own in the whole capture."""
        return int((self.own_end - self.own_start).sum())

    def own_between(self, begin: int, until: int) -> int:
        """Return how long the host works on tensors of its own between two moments, ns."""
        return int(np.maximum(0, np.minimum(self.own_end, until) - np.maximum(self.own_start, begin)).sum())

    def launching_ns(self, steps: int) -> float:
        """Return how long the host launches the work of a step, without the time in which it waits for the device; 0
        where that was not recorded.

        Where all steps have as many calls, each part between two of them is the median of its steps: a host that had
        something else to do in one of them counts in no other.
        """
        if self.until <= self.begin:
            return 0.0
        asked = self.of_work()
        times = np.append(asked, self.until)
        del asked  # as long as the trace, and so is what comes
        parts = np.diff(self._without_waits(times))
        if len(parts) % steps:
            return float(parts.sum()) / steps
        return float(np.median(parts.reshape(steps, -1), axis=0).sum())

    def _without_waits(self, times: Ints) -> Ints:
        """Return the times less how long the host has waited before each of them."""
        if not len(self.start):
            return times
        order = np.argsort(self.start, kind="stable")
        start, end = self.start[order], np.maximum.accumulate(self.end[order])
        begin = np.maximum(start, np.r_[start[:1], end[:-1]])
        waited = covered_until(times, begin, np.maximum(0, end - begin))
        return np.subtract(times, waited, out=waited)


def read(session: Session, capture: int | None, first: int | None, last: int | None) -> HostCalls:
    """Return the host's calls of a capture, of all where it is None. first, last: links of the work that is looked at.

    Raise BadBundle.
    """
    names = queries.names(session, API_CALLS, "name")
    kinds, waits = call_kinds([*names, ""]), np.array([*map(waits_for_the_device, names), False])
    asks, begins, ends = np.isin(kinds, WORK), list[int](), list[int]()
    fetching, fetches = np.array([*(name.startswith(OF_LOADERS) for name in names), False]), list[tuple[int, int]]()
    columns: list[tuple[Ints, ...]] = [(NEVER,) * 5]
    own = OwnOperators([*names, ""])
    meant = (kinds != CallKind.OTHER) | own.meant
    for batch in queries.batches(session, API_CALLS, COLUMNS):
        name = integers(batch["name"].indices.fill_null(-1))  # the last entry of what is known by name
        start, end, link, where = (integers(batch[column]) for column in COLUMNS[1:])
        of_capture = (where == capture) | (capture is None)
        taken = fetching[name] & of_capture
        fetches += zip(start[taken].tolist(), end[taken].tolist(), strict=True)
        rows = np.flatnonzero(meant[name] & (start != NONE) & (end >= start) & of_capture)
        name, start, end, link = name[rows], start[rows], end[rows], link[rows]
        own.add(name, start, end, start[asks[name] | waits[name]])
        rows = np.flatnonzero(kinds[name] != CallKind.OTHER)
        name, start, end, link = name[rows], start[rows], end[rows], link[rows]
        begins += start[link == first].tolist() if first is not None else []
        ends += end[link == last].tolist() if last is not None else []
        late = np.where(waits[name], start, start + round(CALL_NS))
        waited = waits[name] | (late < end)
        asking = asks[name]
        columns.append((start[asking], kinds[name][asking] == CallKind.LAUNCH, late[waited], end[waited],
                        waits[name][waited]))
    asked, launches, start, end, synchronises = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    launches, synchronises = launches.astype(bool), synchronises.astype(bool)
    begin, until = (min(begins), max(ends)) if begins and ends else (0, 0)
    return HostCalls(asked, launches, start, end, synchronises, begin, until, tuple(fetches),
                     *own.spans(np.concatenate((asked, start[synchronises]))))
