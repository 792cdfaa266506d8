"""What the operating system did to the measured process while its inferences were measured."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.core.registry import metric

METHODS = "METHODS section 1"
WALL = "sampled wall time of the measured inferences"


@metric(unit="ratio", better="lower", formula=f"run-queue wait of the process's threads / {WALL}", source=METHODS,
        aliases=("SII",), bands=("<0.01 clean", "<=0.05 disturbed", ">0.05 contaminated"))
def scheduler_interference(measured_events: pa.Table) -> float:
    """Time the measured threads were runnable but not running, per second of measuring."""
    return _sum_ns(measured_events, "run_queue_wait") / _wall_ns(measured_events)


@metric(unit="1/s", better="lower", formula=f"major page faults / {WALL}", source=METHODS, aliases=("FPI",))
def fault_penalty(measured_events: pa.Table) -> float:
    """Major page faults per second: a rate, because their latency was not traced."""
    return _rate(measured_events, "fault_major")


@metric(unit="1/s", better="lower", formula=f"involuntary context switches / {WALL}", source="proc_pid_status(5)")
def preemptions_per_s(measured_events: pa.Table) -> float:
    """How often another task took the CPU from a measured thread that wanted to go on."""
    return _rate(measured_events, "switch_involuntary")


def _rate(events: pa.Table, kind: str) -> float:
    return 1e9 * float(pc.sum(_of_kind(events, kind)["value"]).as_py() or 0) / _wall_ns(events)


def _of_kind(events: pa.Table, kind: str) -> pa.Table:
    chosen = events.filter(pc.equal(events["kind"].cast(pa.string()), kind))
    if not chosen.num_rows:
        raise Absent(f"no {kind} was recorded while inferences were measured")
    return chosen


def _sum_ns(events: pa.Table, kind: str) -> int:
    return int(pc.sum(_of_kind(events, kind)["dur_ns"]).as_py() or 0)


def _wall_ns(events: pa.Table) -> int:
    """Each `sample` event carries the length of its interval, so the samples of several processes add up."""
    wall = _sum_ns(events, "sample")
    if not wall:
        raise Absent("no time passed between two samples of the operating system")
    return wall
