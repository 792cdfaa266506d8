"""Whether a server keeps up with a load: how fast it answers, and whether requests pile up.

Both are means over blocks of equal length of the time in which requests fall due. In a load with times of its own, the
requests that are due and have not ended are its backlog: its mean growth per second is that of its increments over the
blocks. They are independent where a queue grows, so that Student's t holds; where it does not grow they cancel out,
which makes the interval too wide, never too narrow (batch means of a process with negative correlation).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.points import UNKNOWN, Points
from aaco.analytics.llm.window import NO_CLOCK
from aaco.core import documents, statistics
from aaco.core.arrays import Ints, Reals
from aaco.core.readings import Absent, Estimate
from aaco.tracelake import layout

NAME = "backlog"
BLOCKS = 16
LEAST = 4 * BLOCKS  # requests that fall due meanwhile
CLOSED = "requests wait for answers in a load without times: it has no backlog"
NO_ANSWER = "no request had ended before the last was due: a longer load (-n) says it"


@documents.document(layout.finding(NAME))
class Backlog(Struct, frozen=True):
    """metrics/backlog.json: whether a server keeps up with a load.

    seconds: from the end of the first request until the last is due (without times: is dispatched). answered: requests
    that were answered in it, per second. growth: of the requests that are due and have not ended, per second. Intervals
    are of 95 %.
    """

    seconds: float | None
    answered_per_s: float | None
    answered_low: float | None
    answered_high: float | None
    growth_per_s: float | None
    growth_low: float | None
    growth_high: float | None
    why_no_rate: str
    why_no_growth: str

    @property
    def is_over_saturated(self) -> bool | None:
        """Return whether the backlog surely grows; None: not known."""
        return None if self.growth_low is None else self.growth_low > 0


def backlog_of(points: Points, load: EndpointLoad) -> Backlog:
    """Return how fast a load was answered, and how its backlog grew."""
    timed = load.arrivals != "closed"
    due = np.sort((points.intended if timed else points.send)[points.send != UNKNOWN])
    ended = np.sort(points.end[points.end != UNKNOWN])
    try:
        edges = _edges(due, ended, points.has_clock)
    except Absent as reason:
        return Backlog(None, None, None, None, None, None, None, str(reason), str(reason))
    length = float(edges[1] - edges[0]) / 1e9
    rate = statistics.mean_interval(_arrived(np.sort(points.end[points.is_ok]), edges) / length)
    if not timed:
        return Backlog(BLOCKS * length, rate.value, rate.low, rate.high, None, None, None, "", CLOSED)
    growth = _growth((_arrived(due, edges) - _arrived(ended, edges)) / length)
    return Backlog(BLOCKS * length, rate.value, rate.low, rate.high, growth.value, growth.low, growth.high, "", "")


def _edges(due: Ints, ended: Ints, has_clock: bool) -> Reals:
    """Return the ends of the blocks, ns: from the end of the first request until the last is due. Raise Absent."""
    if not has_clock:
        raise Absent(NO_CLOCK)
    if not len(ended) or not len(due) or ended[0] >= due[-1]:
        raise Absent(NO_ANSWER)
    meanwhile = int((due > ended[0]).sum())
    if meanwhile < LEAST:
        raise Absent(f"too few requests: {meanwhile} were due after the first had ended, at least {LEAST} (-n)")
    return np.linspace(ended[0], due[-1], BLOCKS + 1)


def _arrived(times: Ints, edges: Reals) -> Reals:
    """Return how many of the sorted times are in each block, its end included."""
    return np.diff(np.searchsorted(times, edges, side="right")).astype(np.float64)


def _growth(increments: Reals) -> Estimate:
    """Return the mean with its interval, which may reach below zero."""
    mean = float(increments.mean())
    half = statistics.t_quantile(0.975, BLOCKS - 1) * float(increments.std(ddof=1)) / BLOCKS ** 0.5
    return Estimate(mean, mean - half, mean + half)
