"""What the processor counted of the measured process: hardware counters of perf_event_open(2), recorded under T2."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent
from aaco.core.registry import metric

SOURCE = "perf_event_open(2), PERF_TYPE_HARDWARE"
TIER = "T2"


@metric(unit="ratio", better="higher", formula="instructions / cycles, of the intervals of counting (about 50 ms) that "
        "lie within the measured inferences of a process", source=SOURCE, aliases=("IPC",))
def cpu_instructions_per_cycle(system_events: pa.Table, measured_spans: MeasuredSpans) -> float:
    """Instructions that the measured process's threads completed per cycle of a CPU, between inferences, too.

    Low where they wait for memory or mispredict branches; what is high depends on the processor and its vector units.
    """
    return _ratio(system_events, measured_spans, "instructions", "cycles")


@metric(unit="1", better="lower", formula="1000 x last-level cache misses / instructions, of the same intervals as "
        "cpu_instructions_per_cycle", source=SOURCE, aliases=("MPKI",))
def cpu_llc_misses_per_1000_instructions(system_events: pa.Table, measured_spans: MeasuredSpans) -> float:
    """How often the measured process's threads went to memory: what its caches did not hold.

    The event is the processor's own (PERF_COUNT_HW_CACHE_MISSES): compare it between sessions of one machine.
    """
    return 1000 * _ratio(system_events, measured_spans, "llc_misses", "instructions")


def _ratio(events: pa.Table, spans: MeasuredSpans, above: str, below: str) -> float:
    tiers = events["tier"].cast(pa.string())
    if not pc.any(pc.equal(tiers, TIER)).as_py():
        raise Absent("hardware counters are recorded with --telemetry as a user may (T2), not with --ebpf (T3)")
    counts = [_counts(events, kind) for kind in (above, below)]
    if not all(counts):
        lacking = " and ".join(kind for kind, found in zip((above, below), counts, strict=True) if not found)
        raise Absent(f"the processor counted no {lacking} here: virtual machines often have no counters, and those "
                     "that others share are left out")
    both = [key for key in counts[0].keys() & counts[1].keys() if _within(key, spans)]
    total = sum(counts[1][key] for key in both)
    if not total:
        raise Absent(f"no interval in which {above} and {below} were counted lies within the measured inferences")
    return sum(counts[0][key] for key in both) / total


def _counts(events: pa.Table, kind: str) -> dict[tuple[int, int, int], float]:
    """Return the count of each interval of counting: (process id, begin, length)."""
    rows = events.filter(pc.and_(pc.equal(events["kind"].cast(pa.string()), kind),
                                 pc.equal(events["tier"].cast(pa.string()), TIER)))
    keys = zip(*(rows[name].to_pylist() for name in ("process_id", "t_ns", "dur_ns")), strict=True)
    return dict(zip(keys, rows["value"].to_pylist(), strict=True))


def _within(key: tuple[int, int, int], spans: MeasuredSpans) -> bool:
    _, begin, length = key
    return bool(np.any((spans.start <= begin) & (begin + length <= spans.end)))
