"""What one session shows of itself, as numbers: where an iteration's time went, what the host did, what was computed.

A signal that was not recorded is not there; it never is zero. Times are per iteration in ns, or ratios to wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.readings import Absent

Signals = dict[str, float]

# Column of the account -> signal, a count per iteration.
COUNTED = {"switches_voluntary": "switches_voluntary", "switches_involuntary": "switches_involuntary",
           "faults_minor": "faults_minor", "faults_major": "faults_major"}
# Kind of system event -> signal: a time over the window as a ratio to it, a count per second, or a level.
SHARES = {"cpu_time": "cpu_ratio", "cpu_time_system": "system_ratio", "allowed_busy": "allowed_busy_ratio",
          "cgroup_throttled": "throttled_ratio", "steal": "steal_ratio"}
PRESSURES = {"psi_cpu": "psi_cpu_ratio", "psi_memory": "psi_memory_ratio", "psi_io": "psi_io_ratio"}
RATES = {"io_read": "read_bytes_per_s", "io_write": "written_bytes_per_s", "host_switches": "host_switches_per_s",
         "host_interrupts": "host_interrupts_per_s", "host_softirqs": "host_softirqs_per_s",
         "migration": "migrations_per_s", "host_fault_minor": "host_faults_per_s", "throttle_core": "hot_cores_per_s",
         "throttle_package": "hot_packages_per_s"}
LEVELS = {"runnable": "runnable_tasks", "cpus_allowed": "cpus_allowed", "cpu_frequency": "clock_mhz"}
LEAST = 5  # iterations without which no rate is formed


def of_process(iterations: pa.Table, account: pa.Table, events: pa.Table | None,
               probes: Sequence[Mapping[str, float]] | None) -> Signals:
    """Return the signals of one process: tables of that process alone, and its looks at known work.

    Raise Absent where too few iterations were measured.
    """
    measured = iterations.filter(pc.equal(iterations["phase"].cast(pa.string()), "measurement"))
    if measured.num_rows < LEAST:
        raise Absent(f"{measured.num_rows} measured iterations, at least {LEAST} are needed")
    start, end = (measured[name].to_numpy() for name in ("t_start_ns", "t_end_ns"))
    window = (int(start[0]), int(end[-1]))
    return (_latencies(start, end) | _account(account, window, len(start))
            | (_events(events, window) if events is not None else {}) | _probes(probes or ()))


def of_session(found: Sequence[Signals]) -> Signals:
    """Return the median of each signal over the processes that have it."""
    names = dict.fromkeys(name for signals in found for name in signals)
    return {name: float(np.median([signals[name] for signals in found if name in signals])) for name in names}


def _latencies(start: NDArray[np.int64], end: NDArray[np.int64]) -> Signals:
    """Return an iteration lasts until the next begins: its latency, and the gap in which the host does other things."""
    latency, gap = (end - start).astype(np.float64), (start[1:] - end[:-1]).astype(np.float64)
    low, half, high = np.quantile(latency, [0.1, 0.5, 0.9])
    return {"period_ns": float(end[-1] - start[0]) / len(start), "period_median_ns": float(np.median(np.diff(start))),
            "latency_ns": float(latency.mean()), "latency_median_ns": float(half), "latency_p10_ns": float(low),
            "latency_p90_ns": float(high), "gap_ns": float(gap.mean()), "gap_median_ns": float(np.median(gap))}


def _account(account: pa.Table, window: tuple[int, int], turns: int) -> Signals:
    """Return the process's own account, from its first reading in the window to the last."""
    begin, end = window
    inside = account.filter(pc.and_(pc.greater(pc.subtract(account["t_ns"], account["dur_ns"]), begin),
                                    pc.less_equal(account["t_ns"], end + (end - begin) // turns)))
    covered = pc.sum(inside["dur_ns"]).as_py()
    if not covered:
        return {}
    found = {signal: total * (end - begin) / covered / turns for column, signal in COUNTED.items()
             if (total := pc.sum(inside[column]).as_py()) is not None}
    waited = pc.sum(inside["run_queue_wait_ns"]).as_py()
    known = {"wait_ratio": waited / covered} if waited is not None else {}
    return found | known | {"threads": float(pc.max(inside["threads"]).as_py())}


def _events(events: pa.Table, window: tuple[int, int]) -> Signals:
    """Samples of the host whose interval ended inside the window."""
    begin, end = window
    inside = events.filter(pc.and_(pc.greater(events["t_ns"], begin), pc.less_equal(events["t_ns"], end)))
    inside = inside.filter(pc.equal(inside["tier"].cast(pa.string()), "T1"))
    kind = np.array(inside["kind"].cast(pa.string()).to_pylist())
    value, spent = (inside[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("value", "dur_ns"))
    wall = float(spent[kind == "sample"].sum()) if len(kind) else 0.0
    if not wall:
        return {}
    present = set(kind.tolist())
    return ({signal: float(spent[kind == name].sum()) / wall for name, signal in SHARES.items() if name in present}
            | {signal: float(value[kind == name].sum()) * 1e3 / wall for name, signal in PRESSURES.items()
               if name in present}
            | {signal: float(value[kind == name].sum()) * 1e9 / wall for name, signal in RATES.items()
               if name in present}
            | {signal: float(np.mean(value[kind == name])) for name, signal in LEVELS.items() if name in present})


def _probes(probes: Sequence[Mapping[str, float]]) -> Signals:
    """Return the mean of the looks before and after, under the probe's name."""
    return {f"probe_{name}": float(np.mean([look[name] for look in probes])) for name in (probes[0] if probes else ())}
