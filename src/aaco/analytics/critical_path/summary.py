"""The document of critical paths: what bounded the wall time; describe.py makes it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core import documents
from aaco.core.readings import Absent
from aaco.tracelake import layout

# What each ns of the window was spent on.
KINDS = ("compute", "communication", "copy", "launch", "host", "sync", "kernel_wait", "unknown")
NOT_LOOKED_FOR = "the critical path was not looked for when the session was made: aaco analyze SESSION"


class PathContribution(Struct, frozen=True):
    """What the dispatches of one kernel add to the path.

    fraction: path_ns of the window. ceiling: how many times faster the window would be at most without them (Amdahl).
    slack: of its dispatches, the least and the median. headroom: share of its time that its roofline allows to gain;
    priority: headroom x fraction; None if no counters place it.
    """

    kernel_name: str
    calls: int
    total_ns: int
    path_calls: int
    path_ns: int
    fraction: float
    ceiling: float | None
    slack_min_ns: int
    slack_p50_ns: int
    headroom: float | None = None
    priority: float | None = None


class PathSummary(Struct, frozen=True):
    """The path of captures on one clock. bound_by_ns sums to window_ns.

    edges: of each kind how many were observed and how many inferred. inferred_ns: delays on the path that rest on an
    inferred edge.
    """

    captures: tuple[int | None, ...]
    t_start_ns: int
    t_end_ns: int
    window_ns: int
    critical_path_ns: int
    bound_by_ns: Mapping[str, int]
    segments: int
    inferred_ns: int
    dispatches: int
    without_slack: int
    dominant_symbol: str | None
    fraction: float | None
    contributions: tuple[PathContribution, ...]
    more_kernels: int
    edges: Mapping[str, tuple[int, int]]
    launch_latency_ns: int | None


@documents.document(layout.finding("critical_path"), version=1)
class CriticalPaths(Struct, frozen=True):
    """The paths of a session, one for each set of captures on one clock; or why they were not computed."""

    paths: tuple[PathSummary, ...]
    why_absent: str | None = None

    def __post_init__(self) -> None:
        if any(course.bound_by_ns.keys() != set(KINDS) for course in self.paths):
            raise ValueError("bound_by_ns")


def critical_paths(trace: DeviceTrace) -> CriticalPaths:
    """Raise Absent: no device did anything, or the paths were not computed. For readings without given paths."""
    raise Absent(NOT_LOOKED_FOR)
