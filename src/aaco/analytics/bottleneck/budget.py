"""Where the wall time went, by what limited it: the devices' work, and the idle time by what the host was doing.

Parts sum to the wall exactly, in whole ns. The wall is that of the trace, the devices' spans summed; or, where the step
was timed without a profiler, that latency times the steps of the trace: a profiler stretches what the host does and
leaves kernels as they are, so the devices' parts stay and the idle time shrinks, all of its parts alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aaco.analytics.bottleneck.work import TRANSFERS, DeviceWork
from aaco.analytics.trace import Trace
from aaco.core.readings import Absent

HOST = ("launch", "pause", "sync")
UNCHANGED = ("kernel_wait", "noise", "throttled", "unknown")  # causes of idle time that are parts as they are
# A copy of fewer bytes takes the bus less time than its call takes the host (64 KiB at 55 GB/s is 1.2 us): a host that
# waits in such copies reads single values, and waits for the device, not for the bytes.
SMALL_COPY_BYTES = 65_536
OUTSIDE_MOST = 0.1  # of kernels in no step; with more, a step's time says little of the trace's


@dataclass(frozen=True)
class Unprofiled:
    """Latencies of the same steps without a profiler: how many, their median, and where they come from."""

    count: int
    median_ms: float
    source: str


@dataclass(frozen=True)
class Budget:
    """parts_ns: by limiter or cause, summing to wall_ns. unprofiled: whether the wall is a latency without profiler."""

    wall_ns: int
    busy_ns: int
    parts_ns: Mapping[str, int]
    unprofiled: bool

    def pct(self, *parts: str) -> float:
        """Share of the wall that these parts take together. Raises Absent where no time passed."""
        if not self.wall_ns:
            raise Absent("the devices' work spans no time")
        return 100 * sum(self.parts_ns[part] for part in parts) / self.wall_ns


KERNELS = ("compute", "memory", "memory_latency", "kernel", "communication", "local_copy")


def budget(trace: Trace, device_work: DeviceWork, unprofiled: Unprofiled | None = None) -> Budget:
    """The budget of a trace. Raises Absent where it has none."""
    busy = dict(device_work.parts_ns)
    idle = _idle(trace, device_work)
    wall = trace.sum("span_ns")
    if unprofiled is not None and (steps := _steps(trace)):
        wall = max(sum(busy.values()), round(steps * unprofiled.median_ms * 1e6))
        idle = _scaled(idle, wall - sum(busy.values()))
        return Budget(wall, sum(busy.values()), busy | idle, True)
    return Budget(sum(busy.values()) + sum(idle.values()), sum(busy.values()), busy | idle, False)


def _idle(trace: Trace, work: DeviceWork) -> dict[str, int]:
    """Idle time by cause. A wait in a copy call counts as waiting for the device where the copies are small."""
    causes = {name: sum(lane.causes[name].ns for lane in trace.idle.devices)
              for name in ("host_wait", "launch", "sync_wait", "copy_wait", *UNCHANGED)}
    paused = sum(lane.paused_ns for lane in trace.idle.devices)
    paused = max(paused, min(causes["host_wait"], work.call_ns.get("allocate", 0)))  # allocating is no launching
    moved = [copied for copied in work.copies if copied.kind in TRANSFERS]
    mean = sum(each.bytes for each in moved) / max(1, sum(each.count for each in moved))
    small = mean < SMALL_COPY_BYTES
    return {"launch": causes["host_wait"] - paused + causes["launch"], "pause": paused,
            "sync": causes["sync_wait"] + (causes["copy_wait"] if small else 0),
            "copy_wait": 0 if small else causes["copy_wait"],
            **{name: causes[name] for name in UNCHANGED}}


def _scaled(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """The parts in the same proportions with another sum, in whole ns; what rounding leaves goes to the largest."""
    before = sum(parts.values())
    found = {name: part * total // before if before else 0 for name, part in parts.items()}
    largest = max(parts, key=lambda name: parts[name])
    found[largest] += total - sum(found.values())
    return found


def _steps(trace: Trace) -> int:
    """Steps of all devices that ran the whole trace; 0 where neither markers nor repetition count them."""
    marked = [each for each in trace.blocks.steps if each.count and each.outside <= OUTSIDE_MOST * trace.sum("kernels")]
    if marked:
        devices = {capture: sum(1 for device in trace.devices if device.capture == capture)
                   for capture in {device.capture for device in trace.devices}}
        return sum(max(each.count for each in marked if each.capture == capture) * devices[capture]
                   for capture in {each.capture for each in marked})
    whole = [block for block in trace.blocks.blocks if block.kernels * block.repeats >= 0.9 * block.of]
    return sum(block.repeats for block in whole) if len(whole) == len(trace.devices) else 0


def steps(trace: Trace) -> int:
    """Steps in the trace, devices counted apart. Raises Absent where nothing counts them."""
    found = _steps(trace)
    if not found:
        raise Absent("the capture has no markers of steps, and no sequence of kernels repeats over most of it")
    return found

