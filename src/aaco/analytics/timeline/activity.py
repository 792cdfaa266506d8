"""How busy the kernels of a session were: from its measured inferences where it knows them, else from the whole trace.

One definition for both: the union of kernel intervals over a wall time. Of measured inferences the wall time is that of
the runs that hold them; of a trace it is each device's span, first start to last end of its work, summed over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.config import Analysis
from aaco.core.inputs import Window, union_ns
from aaco.core.readings import Absent

NO_HOST = "no launch call of the device's work is in the capture"


class Activity(Struct, frozen=True):
    """Some kernels: how many, the sum and the union of their times, the wall time, and those of them that are short."""

    kernels: int
    kernel_ns: int
    union_ns: int
    wall_ns: int
    short: int
    short_ns: int


def of_window(window: Window, settings: Analysis) -> Activity:
    """Return the kernels of the measured inferences, wherever they ran."""
    kernels = window.kernels.sort_by("t_start_ns")
    length = kernels["dur_ns"].to_numpy()
    short = length < 1000 * settings.microkernel_us
    union = union_ns(kernels["t_start_ns"].to_numpy(), kernels["t_end_ns"].to_numpy())
    return Activity(len(length), int(length.sum()), union, window.wall_ns, int(short.sum()), int(length[short].sum()))


def of_execution_window(execution_window: Window, settings: Analysis) -> Activity:
    """Return the same, where the times are those of the work itself."""
    return of_window(execution_window, settings)


def of_trace(trace: DeviceTrace) -> Activity:
    """Return every kernel that ran on a device."""
    wall, kernels = trace.sum("span_ns"), trace.sum("kernels")
    if not wall or not kernels:
        raise Absent("the devices' work spans no time" if kernels else
                     "the devices ran no kernels, only copies or fills")
    return Activity(kernels, trace.sum("kernel_ns"), trace.sum("kernel_union_ns"), wall, trace.short.count,
                    trace.short.ns)


# An input that may come from several places: the first that is there is taken, else the last one's reason given.
CHOICES: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "activity": (of_window, of_trace),
    "execution_activity": (of_execution_window, of_trace),
}
