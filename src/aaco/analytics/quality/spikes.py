"""Iterations that took much longer than the others, and what was different in and around them.

A spike is compared with quiet iterations next to it, of the same process, so that slow drifts of the machine do not
look like causes. What differs by more than its own noise is evidence; where its cost in time is known (waiting for a
CPU, a lower clock) it says how much of the spike it explains. Where single events were recorded (T2, T3), those inside
it are named: who preempted it, which interrupt, what it blocked on, and for how long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.quality.features import COUNTS, DEVICE_LEVELS, LEVELS, TIMES
from aaco.analytics.streaming import overlap
from aaco.core.arrays import Ints, Reals

EXCESS = 0.5  # of the median, above it
FAR = 3.5  # robust standard deviations, as for outliers
MATCHED = 20  # quiet iterations that a spike is compared with
MAD_TO_SIGMA = 1.4826
NOTABLE = 0.01  # of the spike: events that take less are not named
NAMED = 20  # the longest spikes, for which events are listed
# Kinds with times that do not contain each other: a wait for a CPU is a part of its switch.
INSIDE = ("switch_involuntary", "switch_voluntary", "irq", "softirq", "timer", "fault_minor", "fault_major")
LOWER_IS_SLOWER = ("cpu_mhz", "sclk_mhz")


class FeatureDifference(Struct, frozen=True):
    """A feature of a spike that differs from that of the nearest quiet iterations.

    z: distance in robust standard deviations of those. explains_ms: the part of the excess it costs, None if unknown.
    """

    feature: str
    value: float
    quiet: float
    z: float
    explains_ms: float | None


class SpikeEvents(Struct, frozen=True):
    """Events of one kind and name in a spike. Times are inside it, summed over the threads.

    detail: who preempted, the interrupt, the reason; None if the tier does not record it. other_process: the preempting
    process, if it was one. quiet_ms: in the median of the nearest quiet iterations. excess_ms: more than quiet
    iterations have in the same time: an idle thread is off the CPU for longer in a longer iteration.
    """

    kind: str
    detail: str | None
    other_process: int | None
    count: int
    ms: float
    quiet_ms: float
    excess_ms: float


class Spike(Struct, frozen=True):
    """One long iteration; differences are ranked by what they explain, then by how unusual they are.

    events: what took more of it than of quiet iterations, by its excess.
    """

    process: int
    iteration: int
    latency_ms: float
    excess_ms: float
    differences: tuple[FeatureDifference, ...]
    events: tuple[SpikeEvents, ...] = ()


class _SpikeTimes(Struct, frozen=True):
    """A spike with its own times and those of the nearest quiet iterations: starts and ends, ns."""

    spike: Spike
    times: Ints
    quiet: Ints


def spikes(features: pa.Table, system_events: pa.Table | None = None) -> list[Spike]:
    """Return the spikes among the measured iterations of an iteration_features table, the longest first."""
    measured = features.filter(pc.equal(features["phase"].cast(pa.string()), "measurement"))
    spike_times = [spike for process in pc.unique(measured["process"]).to_pylist()
                   for spike in _process_spikes(measured.filter(pc.equal(measured["process"], process)), process)]
    spike_times.sort(key=lambda item: -item.spike.excess_ms)
    tier = overlap.tier_of(system_events) if system_events is not None else None
    if system_events is None or tier is None:
        return [item.spike for item in spike_times]
    events = overlap.events_of_tier(system_events, tier, INSIDE)
    events = events.filter(pc.is_valid(events["dur_ns"]))
    named = [replace(item.spike, events=_spike_events(events, item.times, item.quiet)) for item in spike_times[:NAMED]]
    return named + [item.spike for item in spike_times[NAMED:]]


def _process_spikes(rows: pa.Table, process: int) -> Iterator[_SpikeTimes]:
    latency = rows["latency_ms"].to_numpy()
    median = float(np.median(latency))
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(latency - median)))
    spiked = (latency > (1 + EXCESS) * median) & (latency - median > FAR * sigma)
    quiet = np.flatnonzero(~spiked)
    times = np.stack([rows[name].to_numpy() for name in ("t_start_ns", "t_end_ns")])
    columns = {name: rows[name].to_numpy(zero_copy_only=False).astype(float)
               for name in (*TIMES, *COUNTS, *LEVELS, *DEVICE_LEVELS) if rows[name].null_count < len(rows)}
    for row in np.flatnonzero(spiked).tolist():
        beside = quiet[np.argsort(np.abs(quiet - row), kind="stable")[:MATCHED]]
        base = float(np.median(latency[beside])) if len(beside) else median
        excess = float(latency[row]) - base
        differences = [item for name, column in columns.items()
                       if (item := _difference(name, column[row], column[beside], base, excess))]
        spike = Spike(process, int(rows["iteration"][row].as_py()), float(latency[row]), excess, _ranked(differences))
        yield _SpikeTimes(spike, times[:, [row]], times[:, beside])


def _spike_events(events: pa.Table, times: Ints, quiet: Ints) -> tuple[SpikeEvents, ...]:
    """Return what a spike holds more of than quiet iterations: one entry for each kind and name of event."""
    length, lengths = float(times[1, 0] - times[0, 0]), quiet[1] - quiet[0]
    near = _events_near(events, np.concatenate((times, quiet), axis=1))
    groups = near.group_by(["kind", "detail"]).aggregate([])
    held = []
    for kind, detail in zip(groups["kind"].to_pylist(), groups["detail"].to_pylist(), strict=True):
        same = pc.is_null(near["detail"]) if detail is None else pc.equal(near["detail"], detail)
        rows = near.filter(pc.fill_null(pc.and_(pc.equal(near["kind"], kind), same), False))
        begin, end = overlap.spans(rows)
        time, beside = overlap.overlap_ns(begin, end, *times)[0], overlap.overlap_ns(begin, end, *quiet)
        usual = float(np.median(beside)) if len(beside) else 0.0
        excess = time - length * float(np.median(beside / np.maximum(lengths, 1))) if len(beside) else float(time)
        if excess > NOTABLE * length:
            reached = (begin < times[1, 0]) & (end > times[0, 0])
            others = pc.unique(rows["other_process"].filter(pa.array(reached))).drop_null().to_pylist()
            held.append(SpikeEvents(kind, detail, others[0] if len(others) == 1 else None, int(reached.sum()),
                                    float(time) / 1e6, usual / 1e6, excess / 1e6))
    return tuple(sorted(held, key=lambda item: -item.excess_ms))


def _events_near(events: pa.Table, times: Ints) -> pa.Table:
    """Return the events that may reach into any of the iterations, names as plain text."""
    begin, end = overlap.spans(events)
    near = events.filter(pa.array((begin < times[1].max()) & (end > times[0].min())))
    columns = {name: near[name] for name in ("t_ns", "dur_ns", "other_process")}
    return pa.table(columns | {name: near[name].cast(pa.string()) for name in ("kind", "detail")})


def _difference(name: str, value: float, beside: Reals, base_ms: float, excess_ms: float) -> FeatureDifference | None:
    """Return how the feature differs, if it does so for the worse and by more than its noise."""
    beside = beside[~np.isnan(beside)]
    if np.isnan(value) or len(beside) < 3:
        return None
    quiet = float(np.median(beside))
    sigma = max(MAD_TO_SIGMA * float(np.median(np.abs(beside - quiet))), 0.01 * abs(quiet), 1e-9)
    worse = quiet - value if name in LOWER_IS_SLOWER else value - quiet
    z = worse / sigma
    if z < FAR:
        return None
    return FeatureDifference(name, value, quiet, z, _explained(name, value, quiet, base_ms, excess_ms))


def _explained(name: str, value: float, quiet: float, base_ms: float, excess_ms: float) -> float | None:
    """Return the time lost to it: what was waited, or what work at the lower clock takes longer; never more than the
    excess."""
    if name in TIMES:
        return min((value - quiet) / 1e6, excess_ms)
    if name in LOWER_IS_SLOWER and value > 0:
        return min(base_ms * (quiet / value - 1), excess_ms)
    return None


def _ranked(differences: Sequence[FeatureDifference]) -> tuple[FeatureDifference, ...]:
    """Return the dearest first. Who is preempted waits for a CPU: the same time is not explained twice."""
    waited = any(item.feature == "run_queue_wait_ns" for item in differences)
    return tuple(sorted((item for item in differences if item.feature != "preempted_ns" or not waited),
                        key=lambda item: (-(item.explains_ms or 0.0), -item.z)))
