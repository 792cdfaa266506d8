"""Where the wall time went by what limited it, and its evidence: what bottleneck rules read of a trace.

Shares are of the budget's wall (analytics/bottleneck/budget.py): the devices' spans, or the latency of a step that was
timed without a profiler, where one was given.
"""

from __future__ import annotations

from msgspec.structs import replace

from aaco.analytics.bottleneck.budget import (
    HOST,
    KERNELS,
    SHARES,
    Budget,
    count_steps,
    share_of,
)
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.bottleneck.work import TRANSFERS, DeviceWork
from aaco.analytics.kernels.families import POINTWISE
from aaco.analytics.timeline.activity import NO_HOST
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

SOURCE = "docs/concepts/diagnosis.md"
NOT_TIMED = "no latency without a profiler was given (aaco import TRACE --latency FILE|MS)"


@metric(unit="pct", better="none", formula="100 x time in which kernels on the compute side run / wall", source=SOURCE)
def compute_limited_pct(budget: Budget, device_work: DeviceWork) -> Estimate:
    """Share of the wall in kernels that their arithmetic limits: by counters or shapes where known, else by family."""
    return _told(budget, device_work, "compute_limited_pct")


@metric(unit="pct", better="none", source=SOURCE,
        formula="100 x time in which only kernels on the memory side, copies within the device and fills run / wall")
def memory_limited_pct(budget: Budget, device_work: DeviceWork) -> Estimate:
    """Share of the wall in work that memory bandwidth limits."""
    return _told(budget, device_work, "memory_limited_pct")


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x (time of kernels that only pass over memory + time of copies within the device) / wall")
def pointwise_pct(budget: Budget, device_work: DeviceWork) -> float:
    """Share of the wall in work that could be part of other kernels: elementwise, norms, reductions, copies, fills."""
    ns = sum(device_work.family_ns.get(family, 0) for family in POINTWISE)
    of_all = ns / max(1, device_work.kernel_ns - device_work.family_ns.get("collective", 0))
    return budget.pct("local_copy") + of_all * budget.pct("compute", "memory", "memory_latency", "kernel")


@metric(unit="pct", better="none", source=SOURCE,
        formula="100 x time in which only kernels that wait for dependent or scattered reads run / wall")
def memory_latency_limited_pct(budget: Budget, device_work: DeviceWork) -> Estimate:
    """Share of the wall in kernels that memory's latency limits: too few reads in flight to fill its bandwidth."""
    return _told(budget, device_work, "memory_latency_limited_pct")


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x time in which only kernels run of which nothing tells what limits them / wall")
def unplaced_kernel_pct(budget: Budget) -> Estimate:
    """Share of the wall in kernels of which neither name, nor shapes, nor counters say what limits them."""
    return share_of(budget, *SHARES["unplaced_kernel_pct"])


@metric(unit="pct", better="none", formula="100 x time in which the device runs kernels, or copies within it / wall",
        source=SOURCE)
def device_limited_pct(budget: Budget) -> Estimate:
    """Share of the wall in which the device itself is at work, transfers to and from the host not counted."""
    return share_of(budget, *KERNELS)


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x (time in which only copies between host and device run + idle time in their calls) / wall")
def transfer_limited_pct(budget: Budget) -> Estimate:
    """Share of the wall that goes to moving bytes between host and device while nothing computes."""
    return share_of(budget, *SHARES["transfer_limited_pct"])


@metric(unit="pct", better="lower", formula="100 x idle time for the host's launching, pauses and waits / wall",
        source=SOURCE)
def host_limited_pct(budget: Budget, trace: DeviceTrace) -> Estimate:
    """Share of the wall in which a device has nothing to do because the host came late."""
    _linked(trace)
    return share_of(budget, *HOST)


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x idle time in gaps in which the host took 250 us or more / wall")
def host_pause_pct(budget: Budget, trace: DeviceTrace) -> Estimate:
    """Share of the wall in which a device waits for a host that does something else than launch."""
    _linked(trace)
    return share_of(budget, *SHARES["host_pause_pct"])


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x idle time after the host's waits, those in copies of a few bytes included / wall")
def sync_limited_pct(budget: Budget, trace: DeviceTrace) -> Estimate:
    """Share of the wall in which a device waits because the host had been waiting for it."""
    _linked(trace)
    return share_of(budget, *SHARES["sync_limited_pct"])


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x idle time after the host's waits, as far as the waits and the way to them took / wall")
def removable_wait_pct(budget: Budget, trace: DeviceTrace) -> Estimate:
    """Share of the wall that taking the host's waits out saves; launching again after each is not in it."""
    _linked(trace)
    return share_of(budget, "sync")


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x idle time in which launched work did not begin for 250 us or more, if another process explains "
        "that / wall")
def shared_device_limited_pct(budget: Budget, trace: DeviceTrace) -> Estimate:
    """Share of the wall in which the device had work of this program and did another process's."""
    _linked(trace)
    share = share_of(budget, *SHARES["shared_device_limited_pct"])
    return replace(share, method=f"{share.method}; {budget.shared_by}") if budget.shared_by else share


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x time in which the device only communicates, waiting for a late rank left out / wall")
def exposed_communication_pct(budget: Budget) -> Estimate:
    """Share of the wall in which communication kernels run and nothing computes."""
    return share_of(budget, *SHARES["exposed_communication_pct"])


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x time in which the device waits in a collective for the rank that is late throughout / wall")
def straggler_limited_pct(budget: Budget) -> Estimate:
    """Share of the judged rank's wall that a later rank takes; `straggler_wait_pct` is of the rank that waits most."""
    return share_of(budget, *SHARES["straggler_limited_pct"])


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x idle time from kernel to kernel, for noise and throttling, or of no known cause / wall")
def other_idle_pct(budget: Budget) -> Estimate:
    """Share of the wall in which a device is idle for neither the host, nor copies, nor another process."""
    return share_of(budget, *SHARES["other_idle_pct"])


@metric(unit="ratio", better="higher", source="GPU.md: busy time is to be set against the latency without a profiler",
        formula="(time in which the devices do anything / steps) / latency of a step without a profiler",
        bands=(">=0.9 device-bound", ">=0.7 host overhead visible", "<0.7 host-limited"))
def unprofiled_busy_ratio(budget: Budget) -> float:
    """Share of an unprofiled step in which the device is busy: a profiler can double a host-bound step."""
    if not budget.unprofiled:
        raise Absent(budget.why_profiled or NOT_TIMED)
    return budget.busy_ns / budget.wall_ns


@metric(unit="pct", better="lower", formula="100 x (time of a step in the trace / latency without a profiler - 1)",
        source=SOURCE)
def profiler_stretch_pct(trace: DeviceTrace, unprofiled: Unprofiled) -> float:
    """How much longer a step takes under the profiler."""
    return 100 * (trace.sum("span_ns") / count_steps(trace, unprofiled) / (1e6 * unprofiled.median_ms) - 1)


@metric(unit="GB/s", better="higher", formula="bytes / time of copies from host to device", source=SOURCE)
def h2d_gbytes_per_s(device_work: DeviceWork) -> float:
    """Rate of copies to the device; pinned memory reaches 55 GB/s on an H200's PCIe 5 x16, pageable 9."""
    return _rate(device_work, "h2d")


@metric(unit="GB/s", better="higher", formula="bytes / time of copies from device to host", source=SOURCE)
def d2h_gbytes_per_s(device_work: DeviceWork) -> float:
    """Rate of copies to the host."""
    return _rate(device_work, "d2h")


@metric(unit="pct", better="lower", source=SOURCE,
        formula="100 x bytes of copies from or to pageable memory / bytes of copies whose memory is known")
def pageable_copy_pct(device_work: DeviceWork) -> float:
    """Share of the moved bytes in pageable host memory: those copies block the host and are slower."""
    known = [each for each in device_work.copies if each.kind in TRANSFERS and each.pinned is not None]
    total = sum(each.bytes for each in known)
    if not total:
        raise Absent("no copy says whether its host memory is page-locked")
    return 100 * sum(each.bytes for each in known if not each.pinned) / total


@metric(unit="pct", better="lower", formula="100 x time in which a thread is in a synchronising call / host's span",
        source=SOURCE)
def synchronise_call_pct(device_work: DeviceWork) -> float:
    """Share of the host's time in calls that wait for the device; with a busy device it costs nothing."""
    return _call(device_work, "synchronise")


@metric(unit="pct", better="lower", formula="100 x time in which a thread is in an allocating call / host's span",
        source=SOURCE)
def allocation_call_pct(device_work: DeviceWork) -> float:
    """Share of the host's time in calls that ask the driver for device memory or give it back."""
    return _call(device_work, "allocate")


def _told(budget: Budget, work: DeviceWork, metric_name: str) -> Estimate:
    """Return a share of kernels by their limiter, with its source: the more by names, the less it is worth."""
    found, total = share_of(budget, *SHARES[metric_name]), sum(work.told_by_ns.values())
    told = [f"{name} {100 * ns / total:.0f} %" for name, ns in work.told_by_ns.items() if ns]
    return replace(found, method=f"{found.method}; limits by {', '.join(told)}") if told else found


def _linked(trace: DeviceTrace) -> None:
    if not trace.launches.linked:
        raise Absent(NO_HOST)


def _rate(work: DeviceWork, kind: str) -> float:
    found = [each for each in work.copies if each.kind == kind and each.bytes]
    if not found:
        raise Absent(f"no {kind} copy with a size was recorded")
    return sum(each.bytes for each in found) / sum(each.ns for each in found)


def _call(work: DeviceWork, part: str) -> float:
    if part not in work.call_ns:
        raise Absent("the capture has no calls of the host")
    return 100 * work.call_ns[part] / work.host_ns
