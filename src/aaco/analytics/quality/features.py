"""Features: a session as one row of numbers, and each of its iterations as one, for models and comparisons.

A session's features are its metrics and nothing else: one formula, one home. Each carries the digest of its definition,
so that rows of different versions are not mixed unawares. An iteration's features are what was going on around it: its
share of everything that was sampled while it ran.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.quality import co_tenants
from aaco.analytics.quality import self_accounting as accounts
from aaco.analytics.quality.thermal import throttling
from aaco.core import registry
from aaco.core.arrays import Ints, Reals
from aaco.core.readings import Absent, Reading
from aaco.core.tables import ITERATION_FEATURES, sampled
from aaco.core.tables.spec import rows_where

# Feature -> kind of operating-system event. Amounts of a sampled interval are spread evenly over it; where single
# events were recorded (analytics/streaming/overlap.py), they are taken in place of the samples.
TIMES = {"run_queue_wait_ns": "run_queue_wait", "preempted_ns": "switch_involuntary", "interrupt_ns": "interrupt",
         "steal_ns": "steal"}
COUNTS = {"switches_voluntary": "switch_voluntary", "switches_involuntary": "switch_involuntary",
          "migrations": "migration", "faults_minor": "fault_minor", "faults_major": "fault_major",
          "psi_cpu_us": "psi_cpu", "psi_memory_us": "psi_memory", "psi_io_us": "psi_io"}
LEVELS = {"cpu_mhz": "cpu_frequency"}
DEVICE_LEVELS = {"sclk_mhz": "sclk_mhz", "power_w": "power_w", "temp_c": "temp_c", "gpu_util_pct": "gpu_util_pct",
                 "throttled": "throttled", "device_processes": "processes"}


def definition(name: str) -> str:
    """Return eight hex digits that change when the metric's meaning does: its formula, unit, source or what it reads.
    """
    metric = registry.METRICS[name]
    parts = "\x1f".join((metric.name, metric.unit, metric.formula, metric.source, *metric.inputs))
    return hashlib.sha256(parts.encode()).hexdigest()[:8]


def of_session(readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Return every metric's value (None if absent) with its unit and the digest of its definition, by name."""
    return {name: {"value": reading.value, "unit": reading.unit, "definition": definition(name)}
            for name, reading in sorted(readings.items())}


def of_iterations(inference_iters: pa.Table, system_events: pa.Table | None, devices: co_tenants.RunDevices | None,
                  account: pa.Table | None = None, iteration_overlap: pa.Table | None = None,
                  samples: pa.Table | None = None) -> pa.Table:
    """Return the iteration_features table: one row per inference, null if nothing sampled that feature.

    Of several sources of one feature the finest counts: single events, the process's own account, sampled intervals.
    iteration_overlap: of the same inferences, in the same order.
    """
    start, end = (inference_iters[name].to_numpy() for name in ("t_start_ns", "t_end_ns"))
    columns: dict[str, Any] = {name: inference_iters[name] for name in
                               ("process", "phase", "iteration", "t_start_ns", "t_end_ns", "latency_ms")}
    if system_events is not None and system_events.num_rows:
        sums = sampled(system_events)
        length = _intervals(sums)
        for name, kind in {**TIMES, **COUNTS}.items():
            if name != "preempted_ns":  # a sample counts preemptions, it does not time them
                columns[name] = _amount(sums, kind, "dur_ns" if name in TIMES else "value", length, start, end)
        for name, kind in LEVELS.items():
            level_rows = rows_where(sums, "kind", kind)
            columns[name] = _mean_level(level_rows["t_ns"], level_rows["value"], start, end)
    columns |= accounts.of_iterations(inference_iters, account) if account is not None and account.num_rows else {}
    columns |= _event_features(iteration_overlap) if iteration_overlap is not None else {}
    if devices is not None and devices.events.num_rows:
        at_work = _at_work(devices.events)
        for name, column in DEVICE_LEVELS.items():
            columns[name] = _mean_level(at_work["t_ns"], at_work[column], start, end)
        if samples is not None:
            columns["device_others_sm_pct"] = _others_share(samples, at_work, start, end)
    return ITERATION_FEATURES.build(**columns)


def _at_work(gpu_events: pa.Table) -> pa.Table:
    """Return the samples of devices that ever worked, or do not report it, with a column of whether they were
    throttled.

    If none worked, return those of all.
    """
    worked = gpu_events.filter(pc.fill_null(pc.greater(gpu_events["gpu_util_pct"], 0), True))["device_id"].unique()
    working_rows = gpu_events.filter(pc.is_in(gpu_events["device_id"], worked)) if len(worked) else gpu_events
    held = [None if reasons is None else float(bool(throttling(reasons)))
            for reasons in working_rows["throttle_reasons"].to_pylist()]
    return working_rows.append_column("throttled", pa.array(held, pa.float64()))


def _others_share(samples: pa.Table, at_work: pa.Table, start: Ints, end: Ints) -> pa.Array | None:
    """Return the share of the devices at work that other processes had; None if the driver does not report it."""
    try:
        others_samples = co_tenants.others(samples)
    except Absent:
        return None
    others_samples = others_samples.filter(pc.is_in(others_samples["device_id"], at_work["device_id"].unique()))
    return _mean_level(others_samples["t_ns"], others_samples["value"], start, end)


def _event_features(events: pa.Table) -> dict[str, pa.Array]:
    """Return the features that single events give; none is taken from both."""
    interrupt = pc.add(pc.add(events["irq_ns"], events["softirq_ns"]), events["timer_ns"])
    values_by_name = {name: events[name] for name in (*TIMES, *COUNTS) if name in events.column_names}
    values_by_name["interrupt_ns"] = interrupt
    return {name: values.cast(pa.float64(), safe=False)
            for name, values in values_by_name.items() if values.null_count < len(values)}


def _intervals(events: pa.Table) -> dict[int, int]:
    """Return how long the interval that ends at each time is."""
    sampled = rows_where(events, "kind", "sample")
    return dict(zip(sampled["t_ns"].to_pylist(), sampled["dur_ns"].to_pylist(), strict=True))


def _amount(events: pa.Table, kind: str, column: str, length: Mapping[int, int], start: Ints,
            end: Ints) -> pa.Array | None:
    """Return each iteration's part of what was counted while it ran; None if the kind was not recorded."""
    rows = rows_where(events, "kind", kind)
    rows = rows.filter(pc.is_valid(rows[column])).sort_by("t_ns")
    if not rows.num_rows:
        return None
    times, amounts = rows["t_ns"].to_numpy(), rows[column].to_numpy().astype(float)
    began = times - np.array([length.get(time) or 0 for time in times.tolist()])
    is_interval = began < times
    return _spread_amounts(began[is_interval], times[is_interval], amounts[is_interval], start, end)


def _spread_amounts(began: Ints, ended: Ints, amounts: Reals, start: Ints, end: Ints) -> pa.Array:
    """Return the amounts of intervals, spread evenly over them, summed over [start, end); null if no interval covers it
    all.

    Intervals of one process follow each other; those of several may overlap, and all count.
    """
    sums, covered = np.zeros(len(start)), np.zeros(len(start))
    ordered = bool((np.diff(start) >= 0).all() and (np.diff(end) >= 0).all())
    for first, last, amount in zip(began, ended, amounts, strict=True):
        low, high = np.searchsorted(end, first, "right"), np.searchsorted(start, last, "left")
        rows = slice(int(low), int(high)) if ordered else slice(None)
        shared = np.clip(np.minimum(end[rows], last) - np.maximum(start[rows], first), 0, None)
        sums[rows] += amount * shared / (last - first)
        covered[rows] += shared
    return pa.array(sums, mask=covered < 0.5 * np.maximum(end - start, 1))


def _mean_level(times: pa.ChunkedArray, values: pa.ChunkedArray, start: Ints, end: Ints) -> pa.Array | None:
    """Return the mean of the samples inside each iteration, else the one before it; null before the first."""
    is_sample = pc.and_(pc.is_valid(times), pc.is_valid(values))
    at, level = times.filter(is_sample).to_numpy(), values.filter(is_sample).to_numpy().astype(float)
    if not len(at):
        return None
    order = np.argsort(at, kind="stable")
    at, level = at[order], level[order]
    total = np.concatenate(([0.0], np.cumsum(level)))
    low, high = np.searchsorted(at, start, "left"), np.searchsorted(at, end, "left")
    inside = np.maximum(high - low, 1)
    mean = (total[high] - total[low]) / inside
    before = np.where(low > 0, level[np.maximum(low - 1, 0)], np.nan)
    mean_or_before = np.where(high > low, mean, before)
    return pa.array(mean_or_before, mask=np.isnan(mean_or_before))
