"""Hold the time budget and the critical path of a trace against each other: two views that must agree (METHODS 7).

The path calls a ns compute only while a kernel runs, so its compute is at most the time in which the devices are busy.
While every device is idle no work is on the path, so the idle time is at most what the path gives to other things.
Both hold for one device; of several, one may idle while another works on the path.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.timeline.trace import DeviceTrace

WORK = ("compute", "communication", "copy")


def disagreements(trace: DeviceTrace, paths: CriticalPaths) -> Iterator[str]:
    """Yield what contradicts: one sentence each, in ns. None for a trace without paths, or of several devices a path.
    """
    if paths.why_absent or len(paths.paths) != len(trace.devices):
        return
    on_path = {kind: sum(path.bound_by_ns[kind] for path in paths.paths) for kind in paths.paths[0].bound_by_ns}
    busy, idle = trace.sum("busy_ns"), trace.sum("idle_ns")
    if on_path["compute"] > busy:
        yield f"compute on the critical path is {on_path['compute']:,} ns, more than the {busy:,} ns of busy devices"
    rest = sum(ns for kind, ns in on_path.items() if kind not in WORK)
    if idle > rest:
        yield (f"the devices are idle for {idle:,} ns, more than the {rest:,} ns that the critical path gives to host, "
               "launches, waits and what is not known")
