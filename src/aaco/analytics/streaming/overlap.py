"""How operating-system events overlap iterations: exact to the ns, each event in every iteration it reaches into.

Single events come from one tier, the best recorded. Sampled sums (T1) are not intervals and are left out here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.arrays import Ints
from aaco.core.tables import ITERATION_OVERLAP

_SWITCHES = frozenset({"switch_voluntary", "switch_involuntary", "migration", "fault_minor", "fault_major"})
_TRACED = _SWITCHES | {"run_queue_wait", "irq", "softirq", "timer", "futex_wait", "block_io"}
# What a tier would have recorded had it happened: there, no event means none. The best comes first.
RECORDS = {"T3": _TRACED, "T2": _SWITCHES}
TIMES = {"run_queue_wait_ns": ("run_queue_wait",), "preempted_ns": ("switch_involuntary",),
         "blocked_ns": ("switch_voluntary",), "irq_ns": ("irq",), "softirq_ns": ("softirq",), "timer_ns": ("timer",),
         "futex_wait_ns": ("futex_wait",), "block_io_ns": ("block_io",), "fault_ns": ("fault_minor", "fault_major")}
COUNTS = {"switches_voluntary": ("switch_voluntary",), "switches_involuntary": ("switch_involuntary",),
          "migrations": ("migration",), "faults_minor": ("fault_minor",), "faults_major": ("fault_major",),
          "interrupts": ("irq", "softirq", "timer")}


def tier_of(events: pa.Table, kind: str = "switch_voluntary") -> str | None:
    """Return the best tier among the events that records single events of this kind; None if none does."""
    present = set(pc.unique(events["tier"].cast(pa.string())).to_pylist())
    return next((tier for tier, kinds in RECORDS.items() if tier in present and kind in kinds), None)


def events_of_tier(events: pa.Table, tier: str, kinds: Iterable[str]) -> pa.Table:
    """Return the events of these kinds that one tier recorded."""
    is_of_kind = pc.is_in(events["kind"].cast(pa.string()), pa.array(list(kinds), pa.string()))
    return events.filter(pc.and_(is_of_kind, pc.fill_null(pc.equal(events["tier"].cast(pa.string()), tier), False)))


def overlap_ns(begin: Ints, end: Ints, start: Ints, stop: Ints) -> Ints:
    """Return, for each interval [start, stop), the summed overlaps of all events [begin, end) with it. Any may overlap.

    The length before x is the sum of x - begin over the events begun, less x - end over those ended. The sums may wrap
    around; their differences are exact, since they are taken modulo 2**64.
    """
    if not len(begin):
        return np.zeros(len(start), np.int64)
    origin = begin.min()
    return _before(begin - origin, end - origin, stop - origin) - _before(begin - origin, end - origin, start - origin)


def _before(begin: Ints, end: Ints, at: Ints) -> Ints:
    """Return the summed length of all events up to each time."""
    return _reached(begin, at) - _reached(end, at)


def _reached(times: Ints, at: Ints) -> Ints:
    ordered = np.sort(times)
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(ordered)))
    count = np.searchsorted(ordered, at, "right")
    return np.asarray(count * at - total[count])


def sum_amounts(at: Ints, amounts: Ints, start: Ints, stop: Ints) -> Ints:
    """Return, for each interval [start, stop), the sum of `amounts` over the events that begin in it."""
    order = np.argsort(at, kind="stable")
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(amounts[order])))
    ordered = at[order]
    return np.asarray(total[np.searchsorted(ordered, stop, "left")] - total[np.searchsorted(ordered, start, "left")])


def spans(events: pa.Table) -> tuple[Ints, Ints]:
    """Return the begins and ends of single events with a known duration."""
    timed = events.filter(pc.is_valid(events["dur_ns"]))
    begin = timed["t_ns"].to_numpy()
    return begin, begin + timed["dur_ns"].to_numpy()


def occurrences(events: pa.Table) -> Ints:
    """Return how many occurrences each row counts for: its value if that is a count, else one."""
    counted = pc.equal(pc.fill_null(events["unit"].cast(pa.string()), ""), "count")
    value = pc.if_else(counted, pc.fill_null(events["value"], 1.0), 1.0)
    return np.asarray(value.to_numpy()).astype(np.int64)


def of_iterations(inference_iters: pa.Table, system_events: pa.Table) -> pa.Table | None:
    """Return the iteration_overlap table: null if the tier records no such thing, or did not watch the whole iteration.

    None if no tier recorded single events.
    """
    tier = tier_of(system_events)
    if tier is None:
        return None
    start, stop = (inference_iters[name].to_numpy() for name in ("t_start_ns", "t_end_ns"))
    unwatched = ~_watched(system_events, tier, start, stop)
    columns: dict[str, Ints | None] = {name: _time(system_events, tier, kinds, start, stop)
                                       for name, kinds in TIMES.items()}
    columns |= {name: _count(system_events, tier, kinds, start, stop) for name, kinds in COUNTS.items()}
    columns["lost"] = _lost(system_events, tier, start, stop)
    return ITERATION_OVERLAP.build(
        **{name: inference_iters[name] for name in ("process", "phase", "iteration", "t_start_ns", "t_end_ns")},
        tier=[tier] * len(start),
        **{name: pa.array(values, mask=unwatched) for name, values in columns.items() if values is not None})


def _time(events: pa.Table, tier: str, kinds: tuple[str, ...], start: Ints, stop: Ints) -> Ints | None:
    rows = events_of_tier(events, tier, kinds)
    untimed = rows.num_rows and rows["dur_ns"].null_count == rows.num_rows
    if untimed or not RECORDS[tier].issuperset(kinds) or (tier == "T2" and "fault_minor" in kinds):
        return None
    return overlap_ns(*spans(rows), start, stop)


def _count(events: pa.Table, tier: str, kinds: tuple[str, ...], start: Ints, stop: Ints) -> Ints | None:
    if not RECORDS[tier].issuperset(kinds):
        return None
    rows = events_of_tier(events, tier, kinds)
    return sum_amounts(rows["t_ns"].to_numpy(), occurrences(rows), start, stop)


def _lost(events: pa.Table, tier: str, start: Ints, stop: Ints) -> Ints:
    rows = events.filter(pc.and_(pc.fill_null(pc.equal(events["tier"].cast(pa.string()), tier), False),
                                 pc.is_valid(events["lost_before"])))
    return sum_amounts(rows["t_ns"].to_numpy(), rows["lost_before"].to_numpy(), start, stop)


def _watched(events: pa.Table, tier: str, start: Ints, stop: Ints) -> NDArray[np.bool_]:
    """Return whether the tier watched all of each iteration: it says so (kind watched), or had events before and after
    it."""
    begin, end = spans(events_of_tier(events, tier, ["watched"]))
    if not len(begin):
        seen = spans(events_of_tier(events, tier, RECORDS[tier]))
        begin, end = seen[0].min(keepdims=True), seen[1].max(keepdims=True)
    return np.asarray(((start[:, None] >= begin) & (stop[:, None] <= end)).any(axis=1))
