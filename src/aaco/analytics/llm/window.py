"""The steady window of a load: without its ramp, in which fewer requests are under way, and without its drain."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.analytics.llm.points import NS_PER_MS, UNKNOWN, Points
from aaco.core.readings import Absent
from aaco.core.settling import settled_at

NO_CLOCK = "when requests were dispatched is not known"


class SteadyWindow(Struct, frozen=True):
    """From the end of the ramp to the last dispatch, with which the drain begins. why: how the ramp's end was found.

    Latencies are of the requests that were dispatched in it, rates of what came in it. Without a duration there are no
    rates, and latencies are of every request.
    """

    begin_ns: int
    end_ns: int
    why: str

    @property
    def seconds(self) -> float:
        """Return its length."""
        return (self.end_ns - self.begin_ns) / 1e9


def steady_window(points: Points, most_open: int | None, is_timed: bool) -> SteadyWindow:
    """Return the steady window of a load.

    most_open: requests that may be under way at once; is_timed: whether the load has times of its own. One that has not
    ramps up until so many are under way. The ramp lasts until the time to the first token has settled, too.
    """
    send = np.sort(points.send[points.send != UNKNOWN])
    if not points.has_clock:
        return SteadyWindow(0, 0, NO_CLOCK)
    if not len(send):
        return SteadyWindow(0, 0, "no request was dispatched")
    begin, end = int(send[0]), int(send[-1])
    if not is_timed and most_open:
        begin = int(send[min(most_open, len(send)) - 1])
    why = "the ramp ends when as many requests are under way as may be" if begin > send[0] else "no ramp"
    try:
        at = _settled_ns(points)
    except Absent as reason:
        return SteadyWindow(begin, end, f"{why}; whether the time to the first token settled is not known: {reason}")
    if at > begin:
        return SteadyWindow(at, end, "the ramp ends when the time to the first token has settled")
    return SteadyWindow(begin, end, why)


def _settled_ns(points: Points) -> int:
    """Return when the first request was dispatched from which on the time to the first token is steady. Raise Absent.
    """
    answered = np.flatnonzero(points.is_ok)
    ttft_ms = (points.first - points.send)[answered] / NS_PER_MS
    return int(points.send[answered[settled_at(ttft_ms)]])
