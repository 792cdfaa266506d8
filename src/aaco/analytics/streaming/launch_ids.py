"""The call that launched each kernel and copy, for the column launch_id: found once, when a capture is imported."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.link_launches import SLACK_NS, Callers, LaunchCalls, Linker
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.analytics.streaming.work import WorkRows
from aaco.core.arrays import joined

LAUNCH_COLUMNS = ("t_start_ns", "capture", "correlation_id", "call_id")


class LaunchFinder:
    """Finds launches as a capture is written: all calls first, then the kernels, and the copies, in start order."""

    def __init__(self) -> None:
        self._callers = Callers()

    def launching(self, calls: pa.Table) -> pa.Table:
        """Return LAUNCH_COLUMNS of the calls that launch. calls: rows of api_calls, in start order; NONE means null."""
        runtime = self._callers.launching(calls, integers(calls["call_id"]))
        launches = runtime.take((runtime.part <= CallKind.FILL) & (runtime.link > 0))
        columns = launches.start, launches.capture, launches.link, launches.tag
        return pa.table(dict(zip(LAUNCH_COLUMNS, columns, strict=True)))

    def ids(self, launches: Iterator[pa.Table], work: Iterator[pa.Table]) -> Iterator[pa.Array]:
        """Yield for each piece of a table of work its launch_id, null where no launch is known.

        launches: what `launching` returned, in start order; only what a piece needs is read ahead.
        """
        linker, ahead = Linker(("tag",)), next(launches, None)
        for rows in work:
            parts, until = list[pa.Table](), int(integers(rows["t_start_ns"]).max(initial=NONE)) + SLACK_NS
            while ahead is not None and ahead["t_start_ns"][0].as_py() < until:
                parts.append(ahead)
                ahead = next(launches, None)
            calls = _calls(parts)
            parts.clear()  # of few copies all launches are there at once
            linked = linker.feed(_work(rows), calls, None)
            del calls
            tags = np.where(linked.known, linked.call.tag, NONE) if linked else np.zeros(0, np.int64)
            yield pa.array(tags, mask=tags == NONE)


def _calls(launches: list[pa.Table]) -> LaunchCalls:
    start, capture, correlation, call_id = (
        joined(integers(part[name]) for part in launches)
        for name in LAUNCH_COLUMNS)
    none, launch = (np.broadcast_to(np.int64(number), len(start)) for number in (0, CallKind.LAUNCH))
    return LaunchCalls(start, start, capture, correlation, launch, none, none, none, none, none, none, none, call_id)


def _work(rows: pa.Table) -> WorkRows:
    start, capture, correlation = (integers(rows[name]) for name in LAUNCH_COLUMNS[:3])
    none = np.broadcast_to(np.int64(0), len(start))
    return WorkRows(start, start, none, none, none, capture, correlation, none, none, none)
