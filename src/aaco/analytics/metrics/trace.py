"""What the devices did over the whole trace: readings over its timeline, idle time, launches, queues and steps.

Shares are of the devices' spans, first start to last end of their work, summed over devices.
"""

from __future__ import annotations

from statistics import median

from aaco.analytics.timeline.activity import NO_HOST
from aaco.analytics.timeline.idle import OFF_CPU
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

SOURCE = "docs/concepts/timeline.md"
NO_STEPS = "the capture has no markers of steps, and no sequence of kernels repeats over half of it"
IDLE = "docs/concepts/timeline.md: idle time by cause"


@metric(unit="pct", better="lower", formula="100 x time in which a device only copies / span", source=SOURCE)
def exposed_copy_pct(trace: DeviceTrace) -> float:
    """Share of the devices' spans in which copies run and no kernel does."""
    return _share(trace, trace.sum("exposed_copy_ns"))


@metric(unit="pct", better="lower", formula="100 x time in which a device only fills memory / span", source=SOURCE)
def exposed_fill_pct(trace: DeviceTrace) -> float:
    """Share of the devices' spans in which fills (memset) run, and neither a kernel nor a copy does."""
    return _share(trace, trace.sum("exposed_fill_ns"))


@metric(unit="pct", better="lower", formula="100 x time in which a device does nothing / span", source=SOURCE)
def device_idle_pct(trace: DeviceTrace) -> float:
    """Share of the devices' spans in which no kernel, copy or fill runs."""
    return _share(trace, trace.sum("idle_ns"))


@metric(unit="pct", better="lower", formula="100 x idle time because the host came late / span", source=IDLE)
def idle_host_wait_pct(trace: DeviceTrace) -> float:
    """Share of the spans in which a device waits for a host that is busy with something other than waiting."""
    return _caused(trace, "host_wait")


@metric(unit="pct", better="lower", formula="100 x idle time because the host had been synchronising / span",
        source=IDLE)
def idle_sync_wait_pct(trace: DeviceTrace) -> float:
    """Share of the spans in which a device waits because the host had been waiting for it in a synchronising call."""
    return _caused(trace, "sync_wait")


@metric(unit="pct", better="lower", formula="100 x idle time because of a copy / span", source=IDLE)
def idle_copy_wait_pct(trace: DeviceTrace) -> float:
    """Share of the spans in which a device waits because the host waited in a copy call."""
    return _caused(trace, "copy_wait")


@metric(unit="pct", better="lower", formula="100 x idle time from one kernel to the next / span", source=IDLE)
def idle_kernel_wait_pct(trace: DeviceTrace) -> float:
    """Share of the spans that passes between kernels that were launched in time, in gaps up to kernel_wait_us."""
    return _share(trace, _idle(trace, "kernel_wait"))


@metric(unit="pct", better="lower", formula="100 x idle time within the launch latency / span", source=IDLE)
def idle_launch_pct(trace: DeviceTrace) -> float:
    """Share of the spans in which the next work had been launched, but too late for its launch latency."""
    return _caused(trace, "launch")


@metric(unit="pct", better="lower", formula="100 x idle time in which OS events kept the launching thread off its CPU "
        "/ span", source=IDLE)
def idle_noise_pct(trace: DeviceTrace) -> float:
    """Share of the spans in which a device waits for a thread that the operating system did not let run."""
    if not trace.idle.cpu_watched:
        raise Absent(f"no operating-system events ({', '.join(OFF_CPU[:2])}, ...) were recorded")
    return _caused(trace, "noise")


@metric(unit="pct", better="lower", formula="100 x idle time while the clock was held down / span", source=IDLE)
def idle_throttled_pct(trace: DeviceTrace) -> float:
    """Share of the spans in unexplained gaps during which telemetry says that the device's clock was lowered."""
    if not trace.idle.clock_watched:
        raise Absent("no telemetry with times and throttle reasons was recorded")
    return _caused(trace, "throttled")


@metric(unit="pct", better="lower", formula="100 x idle time without a known cause / span", source=IDLE)
def idle_unknown_pct(trace: DeviceTrace) -> float:
    """Share of the spans in gaps that nothing recorded explains, or before work without a launch in the capture."""
    return _share(trace, _idle(trace, "unknown"))


@metric(unit="us", better="lower", formula="median over launches of (start of the first work - start of the call)",
        source=SOURCE)
def launch_delay_us(trace: DeviceTrace) -> Estimate:
    """From a launch call to the start of its work: the launch latency plus the time in the queue."""
    return _median(trace.launches.delay, trace)


@metric(unit="us", better="lower", formula="median over launches of the call's duration", source=SOURCE)
def launch_call_us(trace: DeviceTrace) -> Estimate:
    """How long a launch call keeps the host."""
    return _median(trace.launches.host, trace)


@metric(unit="1", better="higher", formula="mean over streams of launches waiting or running, weighted by time",
        source=SOURCE)
def queue_length_mean(trace: DeviceTrace) -> float:
    """Launched work that waits or runs, per stream: below 1 the device runs dry, far above 1 the host is well ahead."""
    wall = sum(queue.t_end_ns - queue.t_start_ns for queue in trace.queues)
    if not wall:
        raise Absent(NO_HOST)
    return sum(queue.mean * (queue.t_end_ns - queue.t_start_ns) for queue in trace.queues) / wall


@metric(unit="1", better="none", formula="largest number of launches waiting or running on one stream", source=SOURCE)
def queue_length_max(trace: DeviceTrace) -> float:
    """The longest queue of any stream; CUDA lets 1,024 launches wait before a launch call blocks."""
    if not trace.queues:
        raise Absent(NO_HOST)
    return max(queue.longest for queue in trace.queues)


@metric(unit="1", better="lower", formula="median over steps of the kernels launched in a step",
        source="the capture's own markers, else the repeated block of kernels (docs/concepts/timeline.md)")
def kernels_per_step(trace: DeviceTrace) -> float:
    """Kernels that one step of the trace takes on a device."""
    if trace.blocks.steps:
        return median(steps.kernels_median for steps in trace.blocks.steps)
    if trace.blocks.blocks:
        return median(block.kernels for block in trace.blocks.blocks)
    raise Absent(NO_STEPS)


@metric(unit="ms", better="lower", formula="median time from the first start of a step to that of the next",
        source="the capture's own markers, else the repeated block of kernels (docs/concepts/timeline.md)")
def step_ms(trace: DeviceTrace) -> float:
    """Time of one step on a device in the steady part of the trace, the profiler's own cost included."""
    if trace.blocks.steps:
        known = [steps.interval.median_ns for steps in trace.blocks.steps if steps.interval]
        why = "the capture's markers name one step, which has no next"
    else:
        known = [block.duration.median_ns for block in trace.blocks.blocks if block.duration]
        why = NO_STEPS
    if not known:
        raise Absent(why)
    return median(known) / 1e6


def _median(summary: object, trace: DeviceTrace) -> Estimate:
    found = getattr(summary, "p50", None)
    if found is None:
        raise Absent(NO_HOST if not trace.launches.linked else "one launch has no median")
    low, high = (None if end is None else end / 1000 for end in (found.ci_low_ns, found.ci_high_ns))
    return Estimate(found.value_ns / 1000, low, high)


def _idle(trace: DeviceTrace, cause: str) -> int:
    return sum(lane.causes[cause].ns for lane in trace.idle.devices)


def _caused(trace: DeviceTrace, cause: str) -> float:
    """Return the share of a cause that only a launch call tells."""
    if not trace.launches.linked:
        raise Absent(NO_HOST)
    return _share(trace, _idle(trace, cause))


def _share(trace: DeviceTrace, ns: int) -> float:
    wall = trace.sum("span_ns")
    if not wall:
        raise Absent("the devices' work spans no time")
    return 100 * ns / wall
