"""How long a GPU ran kernels and waited for launches, in the part of a session that its class is of.

The measured inferences of a run; of a trace, the slowest rank's window, as the budget has it. So the headline figures
and the budget are of the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from aaco.analytics.bottleneck.budget import Budget, share_of
from aaco.analytics.bottleneck.ranks import Windows, judged_rank, judged_text
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.timeline.activity import NO_HOST, of_window
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.config import Analysis
from aaco.core.inputs import Window
from aaco.core.readings import Absent, Estimate


class GpuTime(Struct, frozen=True):
    """The sum and the union of the times of kernels on GPUs, the wall time, and of what part of the trace they are."""

    kernel_ns: int
    union_ns: int
    wall_ns: int
    judged: str = ""


def gpu_time_of_inferences(gpu_window: Window, settings: Analysis) -> GpuTime:
    """Return that of the measured inferences."""
    activity = of_window(gpu_window, settings)
    return GpuTime(activity.kernel_ns, activity.union_ns, activity.wall_ns)


def gpu_time_of_rank(windows: Windows, unprofiled: Unprofiled | None = None) -> GpuTime:
    """Return that of the rank and window that the budget judges. Raise Absent where it judges the whole trace."""
    rank = judged_rank(windows, unprofiled)
    if rank is None:
        raise Absent("the whole trace is judged")
    return _of_spans(rank.time.kernels, GpuTime(rank.time.kernel_ns, rank.time.kernel_union_ns, rank.time.span_ns,
                                                judged_text(windows, rank)))


def gpu_time_of_trace(trace: DeviceTrace) -> GpuTime:
    """Return that of the whole trace, summed over its devices."""
    return _of_spans(trace.sum("kernels"),
                     GpuTime(trace.sum("kernel_ns"), trace.sum("kernel_union_ns"), trace.sum("span_ns")))


def _of_spans(kernels: int, time: GpuTime) -> GpuTime:
    if not time.wall_ns or not kernels:
        raise Absent("the devices' work spans no time" if kernels else
                     "the devices ran no kernels, only copies or fills")
    return time


def launching_of_budget(budget: Budget, trace: DeviceTrace) -> Estimate:
    """Return the budget's share of launching, per cent of its wall."""
    if not trace.launches.linked:
        raise Absent(NO_HOST)
    return share_of(budget, "launch")


def launching_of_inferences(gpu_window: Window, machine: dict[str, float]) -> Estimate:
    """Return the share without a trace of the host: of each gap between kernels at most the calibrated latency."""
    if "launch_latency_ns" not in machine:
        raise Absent("this machine's launch latency has not been calibrated")
    kernels = gpu_window.kernels.sort_by("t_start_ns")
    start, reach = kernels["t_start_ns"].to_numpy(), np.maximum.accumulate(kernels["t_end_ns"].to_numpy())
    gaps = np.maximum(0, start[1:] - reach[:-1])
    launching_ns = float(np.minimum(gaps, machine["launch_latency_ns"]).sum())
    return Estimate(100 * launching_ns / gpu_window.wall_ns, method="calibrated launch latency, measured inferences")


CHOICES: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "gpu_time": (gpu_time_of_inferences, gpu_time_of_rank, gpu_time_of_trace),
    "launching": (launching_of_budget, launching_of_inferences, launching_of_budget),  # its reason is the one to give
}
