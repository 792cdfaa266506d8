"""The host's calls into a device's runtime: how often it waits in a window, and how long it launches the work there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aaco.analytics.advice.work import CALL_NS
from aaco.analytics.streaming.calls import CallKind, call_kinds, waits_for_the_device
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.analytics.timeline.timeline import covered_until
from aaco.core.arrays import Flags, Ints
from aaco.core.session import Session
from aaco.core.tables import API_CALLS
from aaco.tracelake import queries

WORK = (CallKind.LAUNCH, CallKind.GRAPH, CallKind.COPY, CallKind.FILL)  # what calls give a device


@dataclass(frozen=True)
class HostCalls:
    """Calls of one process that launch, copy or wait. link: to the work that a call asked for, NONE without.

    waits: whether the host waits for the device in the whole call; a longer call of another kind waits, too, as
    for room in a queue. asks: whether it gives the device work.
    """

    start: Ints
    end: Ints
    link: Ints
    waits: Flags
    asks: Flags

    def waits_between(self, begin: int, until: int) -> int:
        """Return in how many calls the host waits between two moments."""
        return int(np.count_nonzero(self.waits & (self.end > begin) & (self.start < until)))

    def launching_ns(self, first: int, last: int, steps: int) -> float:
        """Return how long the host launches the work of a step, from the start of one linked call of all steps to the
        end of another, without the time in which it waits for the device; 0 where one of them was not recorded.

        Where all steps have as many calls, each part between two of them is the median of its steps: a host that had
        something else to do in one of them counts in no other.
        """
        begins, ends = self.start[self.link == first], self.end[self.link == last]
        if not len(begins) or not len(ends) or int(ends.max()) <= int(begins.min()):
            return 0.0
        begin, until = int(begins.min()), int(ends.max())
        asks = np.sort(self.start[self.asks & (self.start >= begin) & (self.start < until)])
        parts = np.diff(self._without_waits(np.r_[asks, until]))
        if len(parts) % steps:
            return float(parts.sum()) / steps
        return float(np.median(parts.reshape(steps, -1), axis=0).sum())

    def _without_waits(self, times: Ints) -> Ints:
        """Return the times less how long the host has waited before each of them."""
        start = np.where(self.waits, self.start, self.start + round(CALL_NS))
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(self.end[order])
        begin = np.maximum(start, np.r_[start[:1], end[:-1]])
        return times - covered_until(times, begin, np.maximum(0, end - begin))


def read(session: Session, capture: int | None) -> HostCalls:
    """Return the host's calls of a capture, of all where it is None. Raise BadBundle."""
    names = queries.names(session, API_CALLS, "name")
    kinds, waits = call_kinds([*names, ""]), np.array([*map(waits_for_the_device, names), False])
    asks = np.isin(kinds, WORK)
    nothing, none = np.zeros(0, np.int64), np.zeros(0, bool)
    columns: list[tuple[Ints, Ints, Ints, Flags, Flags]] = [(nothing, nothing, nothing, none, none)]
    for batch in queries.batches(session, API_CALLS, ("name", "t_start_ns", "t_end_ns", "correlation_id", "capture")):
        name = integers(batch["name"].indices)
        start, end, link, where = (integers(batch[column]) for column in batch.schema.names[1:])
        mine = (kinds[name] != CallKind.OTHER) & (start != NONE) & (end >= start)
        if capture is not None:
            mine &= where == capture
        columns.append((start[mine], end[mine], link[mine], waits[name[mine]], asks[name[mine]]))
    return HostCalls(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
