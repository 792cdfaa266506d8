"""What the operating system did to the measured process while its inferences were measured.

Each reading comes from the best tier that recorded it, and says which: single events (T3, T2) or samples (T1).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.streaming import overlap
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric
from aaco.core.tables.spec import SAMPLED

SOURCE = "docs/concepts/os-plane.md"
WALL = "wall time of the measured inferences"
INTERRUPTS = ("irq", "softirq", "timer")
FAULTS = ("fault_minor", "fault_major")
METHOD = {"T3": "T3: BPF, every event", "T2": "T2: perf events, every event", "T1": "T1: /proc, sampled"}


@metric(unit="ratio", better="lower", formula=f"run-queue wait of the process's threads / {WALL}", source=SOURCE,
        aliases=("SII",), bands=("<0.01 clean", "<=0.05 disturbed", ">0.05 contaminated"))
def scheduler_interference(system_events: pa.Table, measured_spans: MeasuredSpans, measured_events: pa.Table
                           ) -> Estimate:
    """Time the measured threads were runnable but not running, per second of measuring."""
    if tier := overlap.tier_of(system_events, "run_queue_wait"):
        return _share(system_events, tier, ("run_queue_wait",), measured_spans)
    return _sampled(_sum_ns(measured_events, "run_queue_wait") / _wall_ns(measured_events))


@metric(unit="ratio", better="lower", formula=f"time in page faults / {WALL}", source=SOURCE, aliases=("FPI",))
def fault_penalty(system_events: pa.Table, measured_spans: MeasuredSpans) -> Estimate:
    """Time the measured threads spent in page faults, per second of measuring; faults_per_s is how often."""
    tier = overlap.tier_of(system_events, "irq")  # what times faults traces interrupts, too
    faults = overlap.events_of_tier(system_events, tier, FAULTS) if tier else None
    if tier is None or faults is None or (faults.num_rows and faults["dur_ns"].null_count):
        raise Absent("the latency of page faults was not traced (--ebpf, on a kernel that allows fentry); "
                     "major_faults_per_s says how often they came")
    return _share(system_events, tier, FAULTS, measured_spans)


@metric(unit="1/s", better="lower", formula=f"major page faults / {WALL}", source=SOURCE)
def major_faults_per_s(system_events: pa.Table, measured_spans: MeasuredSpans, measured_events: pa.Table) -> Estimate:
    """How often a measured thread had to wait for a page to be read from disk."""
    return _rate(system_events, "fault_major", measured_spans, measured_events)


@metric(unit="1/s", better="lower", formula=f"involuntary context switches / {WALL}", source="proc_pid_status(5)")
def preemptions_per_s(system_events: pa.Table, measured_spans: MeasuredSpans, measured_events: pa.Table) -> Estimate:
    """How often another task took the CPU from a measured thread that wanted to go on."""
    return _rate(system_events, "switch_involuntary", measured_spans, measured_events)


@metric(unit="ratio", better="lower", formula=f"time in interrupts, softirqs and timers / {WALL}", source=SOURCE)
def interrupt_share(system_events: pa.Table, measured_spans: MeasuredSpans) -> Estimate:
    """Time that interrupts took from the measured threads, per second of measuring."""
    tier = overlap.tier_of(system_events, "irq")
    if tier is None:
        raise Absent("interrupts were not traced (--ebpf)")
    return _share(system_events, tier, INTERRUPTS, measured_spans)


def _share(events: pa.Table, tier: str, kinds: tuple[str, ...], spans: MeasuredSpans) -> Estimate:
    """Time of single events inside the measured spans, per ns of them."""
    inside = overlap.overlap_ns(*overlap.spans(overlap.events_of_tier(events, tier, kinds)), spans.start, spans.end)
    return Estimate(int(inside.sum()) / _known(spans), method=METHOD[tier])


def _rate(events: pa.Table, kind: str, spans: MeasuredSpans, samples: pa.Table) -> Estimate:
    tier = overlap.tier_of(events, kind)
    if tier is None:
        return _sampled(1e9 * float(pc.sum(_of_kind(samples, kind)["value"]).as_py() or 0) / _wall_ns(samples))
    rows = overlap.events_of_tier(events, tier, (kind,))
    count = overlap.sum_amounts(rows["t_ns"].to_numpy(), overlap.occurrences(rows), spans.start, spans.end)
    return Estimate(1e9 * int(count.sum()) / _known(spans), method=METHOD[tier])


def _sampled(value: float) -> Estimate:
    return Estimate(value, method=METHOD[SAMPLED])


def _known(spans: MeasuredSpans) -> int:
    if not spans.wall_ns:
        raise Absent("no time passed while inferences were measured")
    return spans.wall_ns


def _of_kind(events: pa.Table, kind: str) -> pa.Table:
    chosen = events.filter(pc.equal(events["kind"].cast(pa.string()), kind))
    if not chosen.num_rows:
        raise Absent(f"no {kind} was recorded while inferences were measured")
    return chosen


def _sum_ns(events: pa.Table, kind: str) -> int:
    return int(pc.sum(_of_kind(events, kind)["dur_ns"]).as_py() or 0)


def _wall_ns(events: pa.Table) -> int:
    """Return each `sample` event carries the length of its interval, so the samples of several processes add up."""
    wall = _sum_ns(events, "sample")
    if not wall:
        raise Absent("no time passed between two samples of the operating system")
    return wall
