"""What bounded the wall time of devices' work. Of several paths, as of ranks without common operations, the sum."""

from __future__ import annotations

from aaco.analytics.critical_path.summary import CriticalPaths, PathSummary
from aaco.core.readings import Absent
from aaco.core.registry import metric

SOURCE = "docs/concepts/critical-path.md"


@metric(unit="ns", better="lower", formula="largest sum of kernel durations over any chain of work that had to follow "
        "each other", source=SOURCE)
def critical_path_ns(critical_paths: CriticalPaths) -> float:
    """The longest chain of kernels, and only of kernels: the wall time could not be shorter with these kernels, however
    fast the host and the launches."""
    return sum(course.critical_path_ns for course in _courses(critical_paths))


@metric(unit="pct", better="higher", formula="100 x time of kernels and copies on the critical path / wall time",
        source=SOURCE)
def critical_path_device_pct(critical_paths: CriticalPaths) -> float:
    """Share of the wall time that faster kernels and copies could shorten at all; the rest is the host's, launches',
    waits' or not known."""
    courses = _courses(critical_paths)
    window = sum(course.window_ns for course in courses)
    if not window:
        raise Absent("the devices' work spans no time")
    work = sum(course.bound_by_ns[kind] for course in courses for kind in ("compute", "communication", "copy"))
    return 100 * work / window


def _courses(found: CriticalPaths) -> tuple[PathSummary, ...]:
    if found.why_absent:
        raise Absent(found.why_absent)
    return found.paths
