"""What the operating system did to the measured process."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.core.registry import metric

METHODS = "METHODS section 1"


@metric(unit="ratio", better="lower", formula="run-queue wait of the process's threads / sampled wall time",
        source=METHODS, aliases=("SII",), bands=("<0.01 clean", "<=0.05 disturbed", ">0.05 contaminated"))
def scheduler_interference(system_events: pa.Table) -> float:
    """Time the measured threads were runnable but not running, per second of the recording."""
    return _sum_ns(system_events, "run_queue_wait") / _span_ns(system_events)


@metric(unit="1/s", better="lower", formula="major page faults / sampled wall time", source=METHODS, aliases=("FPI",))
def fault_penalty(system_events: pa.Table) -> float:
    """Major page faults per second: a rate, because their latency was not traced."""
    faults = _of_kind(system_events, "fault_major")
    return 1e9 * float(pc.sum(faults["value"]).as_py() or 0) / _span_ns(system_events)


@metric(unit="1/s", better="lower", formula="involuntary context switches / sampled wall time",
        source="proc_pid_status(5)")
def preemptions_per_s(system_events: pa.Table) -> float:
    """How often another task took the CPU from a measured thread that wanted to go on."""
    switches = _of_kind(system_events, "switch_involuntary")
    return 1e9 * float(pc.sum(switches["value"]).as_py() or 0) / _span_ns(system_events)


def _of_kind(system_events: pa.Table, kind: str) -> pa.Table:
    chosen = system_events.filter(pc.equal(system_events["kind"].cast(pa.string()), kind))
    if not chosen.num_rows:
        raise Absent(f"no {kind} was recorded")
    return chosen


def _sum_ns(system_events: pa.Table, kind: str) -> int:
    return int(pc.sum(_of_kind(system_events, kind)["dur_ns"]).as_py() or 0)


def _span_ns(system_events: pa.Table) -> int:
    ends = pc.min_max(system_events["t_ns"]).as_py()
    if ends["max"] <= ends["min"]:
        raise Absent("fewer than two samples of the operating system")
    return int(ends["max"] - ends["min"])
