"""What the devices of a trace did, as rows of text for every report; a session without device work has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps

from aaco.analytics.explanation import Explanation
from aaco.analytics.streaming.distribution import DurationSummary, Quantile
from aaco.analytics.timeline.collectives import Operation, Participant
from aaco.analytics.timeline.idle import IdleTime
from aaco.analytics.timeline.launches import LaunchFunction
from aaco.analytics.timeline.queues import CAP, Queue
from aaco.analytics.timeline.steady_state import Block, Steps
from aaco.analytics.timeline.timeline import DeviceTime
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.readings import Reading
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import start_skew
from aaco.report.sections.idle_causes import CAUSES

MOST = 8  # devices, functions, operations listed one by one
EVEN = 1.01  # largest over mean message; above it ranks send unlike amounts
LONGEST = 3  # gaps, calls and operations that stand out
FILES = {"timeline": "what each device did with its time", "idle": "idle time by cause, per device and stream",
         "launches": "statistics of launch calls", "queues": "queue length per stream",
         "collectives": "collective operations over ranks", "steady_state": "steps and repeated blocks"}


def _of_trace(make_rows: Callable[[DeviceTrace, Mapping[str, Reading]], Iterator[Row]]
              ) -> Callable[[Explanation], list[Row]]:
    """Return a function that makes the rows of a session; none without a trace."""

    @wraps(make_rows)
    def rows(explanation: Explanation) -> list[Row]:
        return list(make_rows(explanation.trace, explanation.readings)) if explanation.trace else []

    return rows


def label(device: DeviceTime | IdleTime | Participant | Block | Queue, several: bool) -> str:
    """A device's name in a report: with its capture where there are several."""
    return f"Capture {device.capture}, device {device.device_id}" if several else f"Device {device.device_id}"


def timeline(explanation: Explanation) -> list[Row]:
    """What each device did with its time."""
    waits = start_skew.note_of_all(explanation)
    return [*_timeline(explanation), *([Row("Communication", waits)] if waits else [])]


@_of_trace
def _timeline(trace: DeviceTrace, readings: Mapping[str, Reading]) -> Iterator[Row]:
    several = len({device.capture for device in trace.devices}) > 1
    for device in trace.devices[:MOST]:
        yield Row(label(device, several), _parts(device))
        parts = " + ".join(f"{ns:,}" for ns in _shares(device).values())
        yield Row("", f"{parts} = {format.exact_ns(device.span_ns)}")
    if len(trace.devices) > MOST:
        yield Row("", f"{len(trace.devices) - MOST} more devices in metrics/timeline.json")
    yield from _readings(readings, (("GPU active", "gpu_active_ratio"), ("Kernels at once", "gpu_concurrency"),
                                    ("Short kernels", "microkernel_pct")))
    if trace.left_out:
        yield Row("Not placed", f"{format.plural(trace.left_out, 'execution')} without possible times, in no interval")


def _parts(device: DeviceTime) -> str:
    span = device.span_ns
    if not span:
        return f"{format.plural(device.kernels, 'kernel')} in no time"
    shown = ", ".join(f"{name} {format.percent(ns / span)}" for name, ns in _shares(device).items())
    return f"{format.duration(span)}: {shown}"


def _shares(device: DeviceTime) -> dict[str, int]:
    """The parts that sum to the span, by what a reader calls them; what did not happen is left out."""
    parts = {"compute": device.compute_ns, "only communication": device.exposed_communication_ns,
             "only copies": device.exposed_copy_ns, "only fills": device.exposed_fill_ns, "idle": device.idle_ns}
    return {name: ns for name, ns in parts.items() if ns or name in ("compute", "idle")}


@_of_trace
def idle(trace: DeviceTrace, readings: Mapping[str, Reading]) -> Iterator[Row]:
    """Idle time by cause, with the longest gaps."""
    lanes, span = trace.idle.devices, trace.sum("span_ns")
    parts = {name: (sum(lane.causes[name].ns for lane in lanes), sum(lane.causes[name].count for lane in lanes))
             for name in CAUSES}
    for name, (ns, gaps) in sorted(parts.items(), key=lambda item: -item[1][0]):
        if ns:
            title, meaning = CAUSES[name]
            why = f"; {meaning}" if meaning else f"; {_why_unknown(lanes)}"
            yield Row(title, f"{format.duration(ns)}, {format.percent(ns / span)} of the span, "
                             f"{format.plural(gaps, 'gap') if gaps else 'parts of other gaps'}{why}")
    if not any(ns for ns, _ in parts.values()):
        yield Row("Idle", "never, from the first start to the last end")
    yield from _readings(readings, (("Launch tax", "launch_tax_pct"),))
    several = len({device.capture for device in trace.devices}) > 1
    for gap in trace.idle.longest[:LONGEST]:
        where = f"capture {gap.capture}, device {gap.device_id}: " if several else ""
        cause = CAUSES[gap.cause][0] if gap.cause in CAUSES else gap.cause
        yield Row("Longest gap", f"{where}{format.duration(gap.ns)} ({cause[0].lower()}{cause[1:]}) before "
                                 + (format.name(gap.before_kernel, 60) if gap.before_kernel else "a copy or fill"))


def _why_unknown(lanes: Sequence[IdleTime]) -> str:
    reasons = {why: sum(lane.unknown[why].ns for lane in lanes) for why in lanes[0].unknown}
    return "; ".join(f"{why} ({format.duration(ns)})" for why, ns in reasons.items() if ns)


@_of_trace
def launches(trace: DeviceTrace, readings: Mapping[str, Reading]) -> Iterator[Row]:
    """Launch calls: how many, how long, how late their work starts; the queues."""
    found = trace.launches
    if not found.linked:
        yield Row("Linked", format.unavailable(f"no launch call of the {found.work:,} pieces of device work is in the "
                                               "capture"))
        return
    yield Row("Linked", f"{found.linked:,} of {found.work:,} pieces of device work, to "
                        f"{format.plural(found.launches, 'launch')}")
    for function in found.functions[:MOST]:
        yield Row(format.cut(function.name, 40), _function(function))
    if found.slowest:
        slow = found.slowest[0]
        yield Row("Longest call", f"{format.duration(slow.host_ns)}, {format.cut(slow.name, 40)} of "
                                  + (format.name(slow.kernel, 60) if slow.kernel else "a copy or fill"))
    if trace.queues:
        yield Row("Queue length", _queues(trace.queues))


def _function(found: LaunchFunction) -> str:
    work = f" of {found.work:,} pieces of work" if found.work != found.launches else ""
    outlived = f", {found.outlived:,} longer than their work" if found.outlived else ""
    return (f"{found.launches:,}{work}: call {_typical(found.host)}, start {_typical(found.delay)} after it began, "
            f"work {_typical(found.device)}{outlived}{_beyond(found.delay)}")


def _typical(found: DurationSummary | None) -> str:
    if found is None:
        return format.NA
    middle = found.p50.value_ns if found.p50 else found.mean_ns
    return format.duration(middle) + (f" (p99 {_at(found.p99)})" if found.p99 else "")


def _at(found: Quantile) -> str:
    return format.duration(found.value_ns)


def _beyond(found: DurationSummary | None) -> str:
    """How many launches waited far longer than the rest."""
    if found is None or not found.beyond or found.fence_ns is None:
        return ""
    return f"; {found.beyond:,} started later than {format.duration(found.fence_ns)}"


def _queues(queues: Sequence[Queue]) -> str:
    wall = sum(queue.t_end_ns - queue.t_start_ns for queue in queues)
    mean = sum(queue.mean * (queue.t_end_ns - queue.t_start_ns) for queue in queues) / wall if wall else 0.0
    longest = max(queues, key=lambda queue: queue.longest)
    full = sum(queue.at_cap_ns for queue in queues)
    capped = f", {format.duration(full)} at {CAP:,} or more" if full else ""
    streams = f" over {format.plural(len(queues), 'stream')}" if len(queues) > 1 else ""
    return f"mean {format.number(mean)}{streams}, longest {longest.longest:,}{capped}"


@_of_trace
def collectives(trace: DeviceTrace, readings: Mapping[str, Reading]) -> Iterator[Row]:
    """Collective operations over ranks."""
    found = trace.collectives
    if found is None:
        return
    for operation in found.operations[:MOST]:
        yield Row(format.cut(operation.operation, 40), _operation(operation))
    left = len(found.operations) - MOST + found.more_operations
    if left > 0:
        yield Row("", f"{left} more kinds and sizes in metrics/collectives.json")
    if found.incomplete:
        yield Row("Ranks missing", f"of {format.plural(found.incomplete, 'operation')} some ranks are in no capture: "
                                   "their latency is an upper bound")
    for late in found.latest[:LONGEST]:
        who = found.participants[late.straggler]
        rank = f"rank {who.rank}" if who.rank is not None else f"device {who.device_id} of capture {who.capture}"
        which = f"{format.cut(late.operation, 40)} {late.sequence} of group {format.cut(late.group, 40)}"
        yield Row("Straggler", f"{rank}, {format.duration(late.start_skew_ns)} after the first: {which}")
    for shift in found.shifts[:MOST]:
        yield Row("Clock shifted", f"capture {shift.capture} by {format.exact_ns(shift.offset_ns)} and "
                                   f"{shift.drift_ppm:.2f} ppm, by {format.plural(shift.operations, 'operation')}; "
                                   f"left over {format.duration(shift.residual_ns)}, at worst "
                                   f"{format.duration(shift.worst_ns)}. End skew: n/a")


def _operation(found: Operation) -> str:
    size = f" of {format.quantity(found.bytes, 'bytes')}" if found.bytes is not None else ""
    ranks = f" over {found.group_size} ranks" if found.group_size else ""
    bound = "at most " if found.bounded else ""
    speed = ""
    if found.bus_bytes_per_s is not None:
        least = "at least " if found.bounded else ""
        speed = f", bus {least}{format.number(found.bus_bytes_per_s / 1e9)} GB/s"
    skew = f", start skew {format.duration(found.start_skew_p50_ns)}" if found.start_skew_p50_ns is not None else ""
    uneven = ""
    if found.imbalance is not None and found.imbalance > EVEN:
        uneven = f", largest message {format.number(found.imbalance)} x the mean"
    return f"{found.count:,}{size}{ranks}: {bound}{format.duration(found.latency_p50_ns)}{speed}{skew}{uneven}"


@_of_trace
def steady(trace: DeviceTrace, readings: Mapping[str, Reading]) -> Iterator[Row]:
    """Steps, and repeated blocks of kernels."""
    several = len({device.capture for device in trace.devices}) > 1
    for steps in trace.blocks.steps[:MOST]:
        yield Row(f"Steps, capture {steps.capture}" if several else "Steps", _steps(steps))
    for block in trace.blocks.blocks[:MOST]:
        yield Row(label(block, several) if len(trace.devices) > 1 else "Repeated block", _block(block))
        if block.duration and block.duration.count > 1:
            yield Row("Steady window", _window(block))
    for device, why in list(trace.blocks.why_none.items())[:MOST]:
        yield Row("No repetition", f"{device}: {why}")


def _steps(found: Steps) -> str:
    each = (format.plural(found.kernels_min, "kernel") if found.kernels_min == found.kernels_max else
            f"{found.kernels_min:,} to {format.plural(found.kernels_max, 'kernel')}")
    outside = f"; {format.plural(found.outside, 'kernel')} launched in none" if found.outside else ""
    took = f", every {format.duration(found.interval.median_ns)}" if found.interval else ""
    return f"{format.plural(found.count, 'step')} by {format.cut(found.family, 30)} of {each}{took}{outside}"


def _block(found: Block) -> str:
    same = "all identical" if found.identical == found.repeats else f"{found.identical:,} identical"
    inner = f"; inside it {found.inner[1]:,} x {format.plural(found.inner[0], 'kernel')}" if found.inner else ""
    seen = f" (of the first {found.examined:,} of {found.of:,})" if found.examined < found.of else ""
    return (f"{found.repeats:,} x {format.plural(found.kernels, 'kernel')}, {same}, "
            f"{format.percent(found.coverage)} of the stream's kernels{seen}{inner}; "
            f"it begins with {format.name(found.first_kernel, 60)}")


def _window(found: Block) -> str:
    if found.duration is None:
        return format.NA
    warm = f" after {format.plural(found.warmup, 'block')} of warm-up" if found.warmup else ""
    spread = f", CV {found.duration.cov_pct:.1f} %" if found.duration.cov_pct is not None else ""
    return (f"{format.plural(found.steady, 'block')}{warm}, {format.duration(found.duration.median_ns)} each "
            f"({format.duration(found.duration.min_ns)} to {format.duration(found.duration.max_ns)}{spread})")


def _readings(readings: Mapping[str, Reading], wanted: Sequence[tuple[str, str]]) -> Iterator[Row]:
    for title, name in wanted:
        if name in readings:
            yield Row(title, format.banded(readings[name]), name)
