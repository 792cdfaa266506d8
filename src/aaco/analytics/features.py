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
from numpy.typing import NDArray

from aaco.analytics import account as accounts
from aaco.analytics import neighbours, overlap
from aaco.analytics.heat import throttling
from aaco.core import registry
from aaco.core.readings import Absent, Reading
from aaco.core.tables import ITERATION_FEATURES

_Rows = NDArray[np.int64]
_Reals = NDArray[np.float64]
# Feature -> kind of operating-system event. Amounts of a sampled interval are spread evenly over it; where single
# events were recorded (analytics/overlap.py), they are taken in place of the samples.
TIMES = {"run_queue_wait_ns": "run_queue_wait", "preempted_ns": "switch_involuntary", "interrupt_ns": "interrupt",
         "steal_ns": "steal"}
COUNTS = {"switches_voluntary": "switch_voluntary", "switches_involuntary": "switch_involuntary",
          "migrations": "migration", "faults_minor": "fault_minor", "faults_major": "fault_major",
          "psi_cpu_us": "psi_cpu", "psi_memory_us": "psi_memory", "psi_io_us": "psi_io"}
LEVELS = {"cpu_mhz": "cpu_frequency"}
DEVICE_LEVELS = {"sclk_mhz": "sclk_mhz", "power_w": "power_w", "temp_c": "temp_c", "gpu_util_pct": "gpu_util_pct",
                 "throttled": "throttled", "device_processes": "processes"}


def definition(name: str) -> str:
    """Eight hex digits that change when the metric's meaning does: its formula, unit, source or what it reads."""
    metric = registry.METRICS[name]
    parts = "\x1f".join((metric.name, metric.unit, metric.formula, metric.source, *metric.inputs))
    return hashlib.sha256(parts.encode()).hexdigest()[:8]


def of_session(readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Every metric's value (None where absent) with its unit and the digest of its definition, by name."""
    return {name: {"value": found.value, "unit": found.unit, "definition": definition(name)}
            for name, found in sorted(readings.items())}


def of_iterations(inference_iters: pa.Table, system_events: pa.Table | None, devices: neighbours.RunDevices | None,
                  account: pa.Table | None = None, iteration_overlap: pa.Table | None = None,
                  samples: pa.Table | None = None) -> pa.Table:
    """The iteration_features table: one row per inference, null where nothing sampled that feature.

    Of several sources of one feature the finest counts: single events, the process's own account, sampled intervals.
    iteration_overlap: of the same inferences, in the same order.
    """
    start, end = (inference_iters[name].to_numpy() for name in ("t_start_ns", "t_end_ns"))
    columns: dict[str, Any] = {name: inference_iters[name] for name in
                               ("process", "phase", "iteration", "t_start_ns", "t_end_ns", "latency_ms")}
    if system_events is not None and system_events.num_rows:
        sums = overlap.sampled(system_events)
        length = _intervals(sums)
        for name, kind in {**TIMES, **COUNTS}.items():
            if name != "preempted_ns":  # a sample counts preemptions, it does not time them
                columns[name] = _amount(sums, kind, "dur_ns" if name in TIMES else "value", length, start, end)
        for name, kind in LEVELS.items():
            chosen = _of_kind(sums, kind)
            columns[name] = _level(chosen["t_ns"], chosen["value"], start, end)
    columns |= accounts.of_iterations(inference_iters, account) if account is not None and account.num_rows else {}
    columns |= _exact(iteration_overlap) if iteration_overlap is not None else {}
    if devices is not None and devices.events.num_rows:
        at_work = _at_work(devices.events)
        for name, column in DEVICE_LEVELS.items():
            columns[name] = _level(at_work["t_ns"], at_work[column], start, end)
        if samples is not None:
            columns["device_others_sm_pct"] = _of_others(samples, at_work, start, end)
    return ITERATION_FEATURES.build(**columns)


def _at_work(gpu_events: pa.Table) -> pa.Table:
    """The samples of devices that ever did something, or do not tell, with a column that says if they were throttled.

    Where none did, those of all.
    """
    worked = gpu_events.filter(pc.fill_null(pc.greater(gpu_events["gpu_util_pct"], 0), True))["device_id"].unique()
    chosen = gpu_events.filter(pc.is_in(gpu_events["device_id"], worked)) if len(worked) else gpu_events
    held = [None if reasons is None else float(bool(throttling(reasons)))
            for reasons in chosen["throttle_reasons"].to_pylist()]
    return chosen.append_column("throttled", pa.array(held, pa.float64()))


def _of_others(samples: pa.Table, at_work: pa.Table, start: _Rows, end: _Rows) -> pa.Array | None:
    """What other processes had of the devices at work; None where that is not told."""
    try:
        found = neighbours.others(samples)
    except Absent:
        return None
    found = found.filter(pc.is_in(found["device_id"], at_work["device_id"].unique()))
    return _level(found["t_ns"], found["value"], start, end)


def _exact(events: pa.Table) -> dict[str, pa.Array]:
    """Features that single events give; none is taken from both."""
    interrupt = pc.add(pc.add(events["irq_ns"], events["softirq_ns"]), events["timer_ns"])
    found = {name: events[name] for name in (*TIMES, *COUNTS) if name in events.column_names}
    found["interrupt_ns"] = interrupt
    return {name: values.cast(pa.float64()) for name, values in found.items() if values.null_count < len(values)}


def _intervals(events: pa.Table) -> dict[int, int]:
    """How long the interval that ends at each time is."""
    sampled = _of_kind(events, "sample")
    return dict(zip(sampled["t_ns"].to_pylist(), sampled["dur_ns"].to_pylist(), strict=True))


def _of_kind(events: pa.Table, kind: str) -> pa.Table:
    return events.filter(pc.equal(events["kind"].cast(pa.string()), kind))


def _amount(events: pa.Table, kind: str, column: str, length: Mapping[int, int], start: _Rows,
            end: _Rows) -> pa.Array | None:
    """Of each iteration, its part of what was counted while it ran; None where the kind was not recorded."""
    chosen = _of_kind(events, kind)
    chosen = chosen.filter(pc.is_valid(chosen[column])).sort_by("t_ns")
    if not chosen.num_rows:
        return None
    times, amounts = chosen["t_ns"].to_numpy(), chosen[column].to_numpy().astype(float)
    began = times - np.array([length.get(time) or 0 for time in times.tolist()])
    known = began < times
    return _spread(began[known], times[known], amounts[known], start, end)


def _spread(began: _Rows, ended: _Rows, amounts: _Reals, start: _Rows, end: _Rows) -> pa.Array:
    """Amounts of intervals, spread evenly over them, summed over [start, end); null where no interval covers it all.

    Intervals of one process follow each other; those of several may overlap, and all count.
    """
    found, covered = np.zeros(len(start)), np.zeros(len(start))
    ordered = bool((np.diff(start) >= 0).all() and (np.diff(end) >= 0).all())
    for first, last, amount in zip(began, ended, amounts, strict=True):
        low, high = np.searchsorted(end, first, "right"), np.searchsorted(start, last, "left")
        rows = slice(int(low), int(high)) if ordered else slice(None)
        shared = np.clip(np.minimum(end[rows], last) - np.maximum(start[rows], first), 0, None)
        found[rows] += amount * shared / (last - first)
        covered[rows] += shared
    return pa.array(found, mask=covered < 0.5 * np.maximum(end - start, 1))


def _level(times: pa.ChunkedArray, values: pa.ChunkedArray, start: _Rows, end: _Rows) -> pa.Array | None:
    """The mean of the samples inside each iteration, else the one before it; null before the first."""
    known = pc.and_(pc.is_valid(times), pc.is_valid(values))
    at, level = times.filter(known).to_numpy(), values.filter(known).to_numpy().astype(float)
    if not len(at):
        return None
    order = np.argsort(at, kind="stable")
    at, level = at[order], level[order]
    total = np.concatenate(([0.0], np.cumsum(level)))
    low, high = np.searchsorted(at, start, "left"), np.searchsorted(at, end, "left")
    inside = np.maximum(high - low, 1)
    mean = (total[high] - total[low]) / inside
    before = np.where(low > 0, level[np.maximum(low - 1, 0)], np.nan)
    found = np.where(high > low, mean, before)
    return pa.array(found, mask=np.isnan(found))
