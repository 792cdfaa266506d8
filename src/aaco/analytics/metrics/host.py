"""What went on on the whole host while inferences were measured, by samples of /proc (T1).

The settings of the same names say from which value on each is a warning, or bad.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.inputs import phase_ns
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric
from aaco.core.tables import sampled
from aaco.core.tables.spec import rows_where

PSI = "Documentation/accounting/psi.rst"
STAT = "proc_stat(5)"
THROTTLES = ("throttle_core", "throttle_package")
WALL = "sampled wall time of the measured inferences"


@metric(unit="1/s", better="lower", formula=f"context switches of the host / {WALL}", source=STAT)
def host_switches_per_s(measured_events: pa.Table) -> float:
    """Context switches on all CPUs, of all programs."""
    return _rate(measured_events, "host_switches")


@metric(unit="1/s", better="lower", formula=f"interrupts of the host / {WALL}", source=STAT)
def host_interrupts_per_s(measured_events: pa.Table) -> float:
    """Interrupts on all CPUs."""
    return _rate(measured_events, "host_interrupts")


@metric(unit="1/s", better="lower", formula=f"softirqs of the host / {WALL}", source=STAT)
def host_softirqs_per_s(measured_events: pa.Table) -> float:
    """Softirqs on all CPUs."""
    return _rate(measured_events, "host_softirqs")


@metric(unit="1/s", better="lower", formula=f"major page faults of the host / {WALL}", source="/proc/vmstat")
def host_major_faults_per_s(measured_events: pa.Table) -> float:
    """Pages that any process had to wait for until they were read from disk."""
    return _rate(measured_events, "host_fault_major")


@metric(unit="pct", better="lower", formula=f"100 x time in which some task waited for a CPU / {WALL}", source=PSI)
def pressure_cpu_pct(measured_events: pa.Table) -> float:
    """Share of the time in which some task of the host, of any program, waited for a CPU."""
    return _pressure(measured_events, "psi_cpu")


@metric(unit="pct", better="lower", formula=f"100 x time in which some task waited for memory / {WALL}", source=PSI)
def pressure_memory_pct(measured_events: pa.Table) -> float:
    """Share of the time in which some task of the host waited for memory."""
    return _pressure(measured_events, "psi_memory")


@metric(unit="pct", better="lower", formula=f"100 x time in which some task waited for I/O / {WALL}", source=PSI)
def pressure_io_pct(measured_events: pa.Table) -> float:
    """Share of the time in which some task of the host waited for I/O."""
    return _pressure(measured_events, "psi_io")


@metric(unit="ms", better="lower", formula="run-queue wait of the process's threads / their context switches",
        source="Documentation/scheduler/sched-stats.rst")
def wait_per_switch_ms(measured_events: pa.Table) -> float:
    """How long a measured thread waited for a CPU each time that it had left one."""
    switches = sum(_sum(measured_events, kind, "value") for kind in ("switch_voluntary", "switch_involuntary"))
    return _sum(measured_events, "run_queue_wait", "dur_ns") / switches / 1e6


@metric(unit="1/s", better="lower", formula=f"times that a core or a package grew too hot / {WALL}",
        source="thermal_throttle of sysfs, arch/x86 therm_throt.c")
def cpu_throttles_per_s(measured_events: pa.Table) -> float:
    """How often the processor throttled for heat, on all CPUs."""
    counted = [kind for kind in THROTTLES if rows_where(measured_events, "kind", kind).num_rows]
    if not counted:
        raise Absent("the kernel counts no thermal throttling here")
    return sum(_rate(measured_events, kind) for kind in counted)


@metric(unit="pct", better="lower", formula="100 x (1 - mean clock / mean highest clock) of the CPUs that were used",
        source="Documentation/admin-guide/pm/cpufreq.rst")
def cpu_clock_below_max_pct(measured_events: pa.Table) -> float:
    """How far the processor's clock stayed below its highest, turbo included."""
    now, most = (rows_where(measured_events, "kind", kind)["value"] for kind in ("cpu_frequency", "cpu_frequency_max"))
    if not len(now) or not pc.sum(most).as_py():
        raise Absent("the kernel tells no CPU clock, or not how high it may be")
    return 100 * (1 - float(pc.mean(now).as_py()) / float(pc.mean(most).as_py()))


@metric(unit="bytes", better="lower", formula="largest resident set until the first warm-up inference begins",
        source="VmHWM of proc_pid_status(5)")
def load_peak_rss_bytes(system_events: pa.Table, inference_iters: pa.Table) -> Estimate:
    """Host memory that loading took at its peak: the largest of the processes."""
    return _peak(system_events, inference_iters, None)


@metric(unit="bytes", better="lower", formula="largest resident set while warming up",
        source="VmHWM and rss of proc_pid_status(5)")
def warmup_peak_rss_bytes(system_events: pa.Table, inference_iters: pa.Table) -> Estimate:
    """Host memory that warming up took at its peak: the largest of the processes."""
    return _peak(system_events, inference_iters, "warmup")


@metric(unit="bytes", better="lower", formula="largest resident set while inferences were measured",
        source="VmHWM and rss of proc_pid_status(5)")
def measured_peak_rss_bytes(system_events: pa.Table, inference_iters: pa.Table) -> Estimate:
    """Host memory that the measured inferences took at their peak: the largest of the processes."""
    return _peak(system_events, inference_iters, "measurement")


def _rate(events: pa.Table, kind: str) -> float:
    return 1e9 * _sum(events, kind, "value") / _sum(events, "sample", "dur_ns")


def _pressure(events: pa.Table, kind: str) -> float:
    return 100 * 1e3 * _sum(events, kind, "value") / _sum(events, "sample", "dur_ns")


def _sum(events: pa.Table, kind: str, column: str) -> float:
    chosen = rows_where(events, "kind", kind)
    if not chosen.num_rows:
        raise Absent(f"no {kind} was sampled while inferences were measured")
    return float(pc.sum(chosen[column]).as_py() or 0)


def _peak(events: pa.Table, iterations: pa.Table, phase: str | None) -> Estimate:
    """Return the high-water mark where it rose in the phase; else it was below an earlier one, and samples must do."""
    samples, found, began = sampled(events), [], 0
    for process in np.unique(iterations["process"].to_numpy()).tolist():
        rows = iterations.filter(pc.equal(iterations["process"], process))
        found += _peaks(samples, began, *phase_ns(rows, phase, began))
        began = int(pc.max(rows["t_end_ns"]).as_py())
    if not found:
        raise Absent("the resident set was not sampled in this phase")
    return max(found, key=lambda one: one.value)


def _peaks(samples: pa.Table, began: int, begin: int, end: int) -> list[Estimate]:
    """Of a process that began at `began`; empty where it was not sampled between begin and end."""
    before = _between(samples, "rss_peak", began, begin - 1)
    marks, sizes = _between(samples, "rss_peak", begin, end), _between(samples, "rss", begin, end)
    if len(marks) and (not len(before) or marks[-1] > before[-1]):
        return [Estimate(float(marks[-1]), method="high-water mark")]
    return [Estimate(float(sizes.max()), method="largest sample: an earlier phase had more")] if len(sizes) else []


def _between(samples: pa.Table, kind: str, first: int, last: int) -> NDArray[np.float64]:
    rows = rows_where(samples, "kind", kind)
    inside = pc.and_(pc.greater_equal(rows["t_ns"], first), pc.less_equal(rows["t_ns"], last))
    return np.asarray(rows.filter(inside)["value"].to_numpy())
