"""Split the wall time by what limited it: the devices' work, and the idle time by what the host was doing.

Parts sum to the wall exactly, in whole ns. The wall is that of the trace, the devices' spans summed. If the step was
timed without a profiler, it is that latency times the steps of the trace: a profiler stretches the host's work and
leaves kernels as they are, so the devices' parts stay and all parts of the idle time shrink by the same factor.

Steps are counted by marks, or given. A repeated block of kernels may be a layer: it counts as a step only where the
latency bears that out, see count_steps.

Idle time after a drain is `sync` as far as the wait took, which is what it saves to take the wait out, and `relaunch`
as far as the host then launched again, which it would have to do anyway. No device graph holds a wait, so as long as
the waits are there neither is `launch`.

Launched work that the device did not begin is `shared_device` where another process explains it: telemetry saw others
compute on the device, or, without telemetry, it happened FEWEST_UNSTARTED times. Fewer may be anything: `unknown`. So
is the time that kernels took longer than the same launch in other steps (timeline/preempted.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.bottleneck.work import TRANSFERS, DeviceWork
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.readings import Absent, Estimate

HOST = ("launch", "pause", "sync", "relaunch")
PROFILED, UNPROFILED = "profiled trace", "unprofiled latency"  # whose wall it is: the method of every share begins so
UNCHANGED = ("kernel_wait", "noise", "throttled", "unknown")  # causes of idle time that are parts as they are
IDLE = ("shared_device", *HOST, "copy_wait", *UNCHANGED)  # the parts of the idle time
# A copy of fewer bytes takes the bus less time than its call takes the host (64 KiB at 55 GB/s is 1.2 us): a host that
# waits in such copies reads single values, and waits for the device, not for the bytes.
SMALL_COPY_BYTES = 65_536
OTHERS_PCT = 5.0  # of the device's time that other processes had by telemetry, as rules/quality.py
FEWEST_UNSTARTED = 3  # recordings without a co-tenant have at most one such gap
STRETCH = (0.9, 6.5)  # time of a traced step / without the profiler: 1.5 to 6.5 were seen; 0.9 for noise
GIVE = "give the number (--steps N), or mark the steps (prof.step(), record_function(\"step 1\"))"
OUTSIDE_MOST = 0.1  # of kernels in no step; with more, a step's time says little of the trace's


class Budget(Struct, frozen=True):
    """parts_ns: by limiter or cause, summing to wall_ns. unprofiled: whether the wall is a latency without profiler.

    why_profiled: why it is not, where a latency was given. shared_by: what shows that another process had the device.
    judged: which rank and steps it is of, empty for the whole of the only one.
    """

    wall_ns: int
    busy_ns: int
    parts_ns: Mapping[str, int]
    unprofiled: bool
    why_profiled: str = ""
    shared_by: str = ""
    judged: str = ""

    def pct(self, *parts: str) -> float:
        """Return the share of the wall that these parts take together. Raise Absent if no time passed."""
        if not self.wall_ns:
            raise Absent("the devices' work spans no time")
        return 100 * sum(self.parts_ns[part] for part in parts) / self.wall_ns


class Preempted(Struct, frozen=True):
    """How many kernels took far longer than usual, and how much longer, ns."""

    kernels: int = 0
    ns: int = 0


NONE_PREEMPTED = Preempted()
OWN_KERNELS = ("compute", "memory", "memory_latency", "kernel")
KERNELS = (*OWN_KERNELS, "communication", "local_copy")


# The readings that together are the whole budget, each with its parts. `host_limited_pct` and `device_limited_pct` sum
# some of them, `removable_wait_pct` is a part of one.
SHARES = {"compute_limited_pct": ("compute",), "memory_limited_pct": ("memory", "local_copy"),
          "memory_latency_limited_pct": ("memory_latency",), "unplaced_kernel_pct": ("kernel",),
          "transfer_limited_pct": ("transfer", "copy_wait"), "launch_tax_pct": ("launch",),
          "host_pause_pct": ("pause",), "sync_limited_pct": ("sync", "relaunch"),
          "shared_device_limited_pct": ("shared_device",), "exposed_communication_pct": ("communication",),
          "straggler_limited_pct": ("straggler",), "other_idle_pct": UNCHANGED}


def share_of(budget: Budget, *parts: str) -> Estimate:
    """Return the share of the wall that these parts take, in per cent, and of which wall. Raise Absent."""
    of_what = UNPROFILED if budget.unprofiled else PROFILED
    why = f"; {budget.why_profiled}" if budget.why_profiled else ""
    return Estimate(budget.pct(*parts), method=(f"{of_what}, {budget.judged}" if budget.judged else of_what) + why)


def budget(trace: DeviceTrace, device_work: DeviceWork, unprofiled: Unprofiled | None = None,
           device_others_sm_pct: float | None = None, straggler_ns: int = 0, preempted: Preempted = NONE_PREEMPTED
           ) -> Budget:
    """Return the budget of a trace. Raise Absent if it spans no time.

    straggler_ns: time in which devices only waited in a collective for a late rank. preempted: kernels that another
    process stopped. The parts of device_work have neither.
    """
    shared_by = _shared_by(trace, device_others_sm_pct, preempted)
    idle, why = _idle(trace, device_work, bool(shared_by)), ""
    busy = {**device_work.parts_ns, "straggler": straggler_ns}
    busy["shared_device" if shared_by else "unknown"] = preempted.ns
    busy_ns = sum(busy.values())
    if unprofiled is not None:
        try:
            steps = count_steps(trace, unprofiled)
            own_ns = sum(device_work.parts_ns.get(part, 0) for part in OWN_KERNELS)
            unprofiled.refuse_others(steps, len(trace.devices), trace.sum("span_ns"), own_ns)
            wall = max(busy_ns, round(steps * unprofiled.median_ms * 1e6))
            return Budget(wall, busy_ns, _sum(busy, _scaled(idle, wall - busy_ns)), True, shared_by=shared_by)
        except Absent as reason:
            why = f"the given latency is not used: {reason}"
    return Budget(busy_ns + sum(idle.values()), busy_ns, _sum(busy, idle), False, why, shared_by)


def _shared_by(trace: DeviceTrace, others_pct: float | None, preempted: Preempted) -> str:
    """Return what shows that another process had the device while this one's work waited; empty if nothing does."""
    unstarted = sum(lane.unstarted for lane in trace.idle.devices)
    if not (unstarted or preempted.kernels) or (others_pct is not None and others_pct < OTHERS_PCT):
        return ""
    if others_pct is not None:
        return f"telemetry: other processes had {others_pct:.0f} % of the device's time"
    waited = f"{unstarted} times launched work did not begin for 250 us or more"
    stretched = f"{preempted.kernels} kernels took 1 ms or more longer than the same launch in other steps"
    return "; ".join([waited] * (unstarted >= FEWEST_UNSTARTED) + [stretched] * (preempted.kernels > 0))


def _sum(busy: Mapping[str, int], idle: Mapping[str, int]) -> dict[str, int]:
    """Return the time of each part, busy and idle together."""
    return {part: busy.get(part, 0) + idle.get(part, 0) for part in {**busy, **idle}}


def _idle(trace: DeviceTrace, work: DeviceWork, shared: bool) -> dict[str, int]:
    """Return the idle time by cause. A wait in a copy call counts as waiting for the device if the copies are small."""
    causes = {name: sum(lane.causes[name].ns for lane in trace.idle.devices)
              for name in ("host_wait", "launch", "sync_wait", "copy_wait", *UNCHANGED)}
    paused = sum(lane.paused_ns for lane in trace.idle.devices)
    # Allocating is no launching, and where it waits for the device by itself (cudaFree) no wait of the program's.
    paused = max(paused, min(causes["host_wait"] + causes["sync_wait"], work.call_ns.get("allocate", 0)))
    from_waits = max(0, paused - causes["host_wait"])
    transfers = [copied for copied in work.copies if copied.kind in TRANSFERS]
    mean = sum(copied.bytes for copied in transfers) / max(1, sum(copied.count for copied in transfers))
    small = mean < SMALL_COPY_BYTES
    held = sum(lane.unstarted_ns for lane in trace.idle.devices) if shared else 0
    causes["unknown"] -= held
    sync = causes["sync_wait"] - from_waits + (causes["copy_wait"] if small else 0)
    relaunch = min(sync, sum(lane.relaunch_ns for lane in trace.idle.devices))
    return {"shared_device": held,
            "launch": causes["host_wait"] + from_waits - paused + causes["launch"], "pause": paused,
            "sync": sync - relaunch, "relaunch": relaunch,
            "copy_wait": 0 if small else causes["copy_wait"],
            **{name: causes[name] for name in UNCHANGED}}


def _scaled(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """Return the parts in the same proportions with another sum, in whole ns. The largest takes the rounding error."""
    before = sum(parts.values())
    scaled = {name: part * total // before if before else 0 for name, part in parts.items()}
    largest = max(parts, key=lambda name: parts[name])
    scaled[largest] += total - sum(scaled.values())
    return scaled


def count_steps(trace: DeviceTrace, unprofiled: Unprofiled | None = None) -> int:
    """Return the steps in the trace, summed over devices: as given, by marks, else by repetition.

    Raise Absent if nothing counts them, or if the repeated block may be a layer: then so many steps of the given
    latency do not fit the span. unprofiled: the latency; None: repetition counts nothing.
    """
    if unprofiled is not None and unprofiled.steps:
        return unprofiled.steps * len(trace.devices)
    if marked := _marked_steps(trace):
        return marked
    whole = [block for block in trace.blocks.blocks if block.kernels * block.repeats >= 0.9 * block.of]
    count = sum(block.repeats for block in whole) if len(whole) == len(trace.devices) else 0
    if not count:
        raise Absent(f"the capture has no markers of steps, and no sequence of kernels repeats over most of it; {GIVE}")
    stretch = trace.sum("span_ns") / (count * unprofiled.median_ms * 1e6) if unprofiled else 0.0
    if not STRETCH[0] <= stretch <= STRETCH[1]:
        raise Absent(f"no markers of steps; a sequence of kernels repeats {count} times, but the trace takes "
                     f"{stretch:.2f} times as long as so many steps: it may be a layer, or several steps; {GIVE}")
    return count


def _marked_steps(trace: DeviceTrace) -> int:
    """Return the marked steps of all devices that ran the whole trace; 0 without marks that hold most kernels."""
    marked = [steps for steps in trace.blocks.steps
              if steps.count and steps.outside <= OUTSIDE_MOST * trace.sum("kernels")]
    devices = {capture: sum(1 for device in trace.devices if device.capture == capture)
               for capture in {device.capture for device in trace.devices}}
    return sum(max(steps.count for steps in marked if steps.capture == capture) * devices[capture]
               for capture in {steps.capture for steps in marked})
