"""Watches one process through proc(5), ten times a second: effects of the scheduler, the memory and the host on it.

Tier T1 of the operating-system plane: no privilege, no kernel feature beyond schedstat and PSI. The sampler runs in a
thread of the process that waits for the target, and writes every sample to a file at once, so that a kill loses nothing
that was sampled. A row counts what happened in an interval, which ends at `t_ns` and lasts as its `sample` row says.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aaco.collectors.host.procfs import Process, ProcessSnapshot, look, own_group, throttle_files
from aaco.collectors.recording import RecordFormat, append, begin
from aaco.core import files
from aaco.core.errors import BadCapture, StorageError
from aaco.core.host import Host
from aaco.core.tables import SYSTEM_EVENTS

TIER, CLOCK = "T1", "monotonic"
# Kind -> unit of `value`; where empty, the kind is a time, in dur_ns. The order is part of the format: append only.
KINDS = {
    "sample": "threads", "run_queue_wait": "", "cpu_time": "", "switch_voluntary": "count",
    "switch_involuntary": "count", "migration": "count", "fault_minor": "count", "fault_major": "count", "rss": "bytes",
    "cpu_frequency": "MHz", "load": "tasks", "runnable": "tasks", "psi_cpu": "us", "psi_memory": "us", "psi_io": "us",
    "steal": "", "host_switches": "count", "host_interrupts": "count", "host_softirqs": "count",
    "host_fault_minor": "count", "host_fault_major": "count", "swap_in": "pages", "swap_out": "pages",
    "cgroup_psi_cpu": "us", "cgroup_psi_memory": "us", "cgroup_psi_io": "us", "rss_peak": "bytes",
    "cpu_frequency_max": "MHz", "throttle_core": "count", "throttle_package": "count",
    "cpu_time_system": "", "io_read": "bytes", "io_write": "bytes", "cpus_allowed": "cpus", "allowed_busy": "",
    "cgroup_throttled": "",
}
_PER_THREAD = {"run_queue_wait": "waited_ns", "switch_voluntary": "voluntary", "switch_involuntary": "involuntary",
               "migration": "migrations"}
_CODES = {kind: code for code, kind in enumerate(KINDS)}
_NAMES, _UNITS = np.array(list(KINDS)), np.array(list(KINDS.values()))
# -1 is null, NaN in `value`.
_RECORD = np.dtype([("t_ns", "<i8"), ("dur_ns", "<i8"), ("value", "<f8"), ("process_id", "<i4"), ("cpu", "<i4"),
                    ("lost_before", "<i4"), ("kind", "<u4")])
_FORMAT = RecordFormat("process sampler", "aaco run --telemetry", b"AACOPROC", 1, _RECORD)


class ProcessRow(NamedTuple):
    """One record of the file, in its order."""

    t_ns: int
    dur_ns: int
    value: float
    process_id: int
    cpu: int
    lost_before: int
    kind: int


class ProcessSampler:
    """Samples a process until it ends or `stop` is called; writes `raw` as it goes. Times are CLOCK_MONOTONIC."""

    def __init__(self, pid: int, period_s: float = 0.1, *, raw: Path, host: Host | None = None) -> None:
        self.pid, self.period_s, self.raw, self.host = pid, period_s, raw, host or Host()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="aaco-procfs", daemon=True)
        self._failure: StorageError | None = None
        self._samples = self._late = 0
        self._cpu_s, self._began, self._ended = 0.0, 0.0, 0.0
        self._last: ProcessSnapshot | None = None
        self._group = own_group(pid, self.host)
        self._throttles = throttle_files(self.host)

    def start(self) -> None:
        """Write the header and the first sample, and continue in the background. Raise StorageError."""
        self._file = begin(self.raw, _FORMAT.header)
        with files.storage(self.raw):
            self._began = self._ended = time.monotonic()
            self._sample()
        self._thread.start()

    def stop(self) -> pa.Table:
        """Take the last sample and return the whole table. Raise StorageError if the disk refused one."""
        self._stopped.set()
        self._thread.join()
        self._file.close()
        if self._failure:
            raise self._failure
        return parse(self.raw)

    @property
    def overhead(self) -> dict[str, float | int | str | None]:
        """Return the sampler's overhead: its CPU time, the rate it reached, and how many samples came late.

        A sample is late when it began more than half a period after it was due.
        """
        wall_s = self._ended - self._began
        return {"tier": TIER, "wall_s": wall_s, "cpu_s": self._cpu_s, "samples": self._samples, "late": self._late,
                "cpu_s_per_s": self._cpu_s / wall_s if wall_s else None, "asked_rate_hz": 1 / self.period_s,
                "rate_hz": (self._samples - 1) / wall_s if wall_s else None}

    def _watch(self) -> None:
        try:
            with files.storage(self.raw):
                self._keep_sampling()
        except StorageError as error:
            self._failure = error

    def _keep_sampling(self) -> None:
        due = self._began
        while True:
            due += self.period_s
            asked_to_stop = self._stopped.wait(max(0.0, due - time.monotonic()))
            behind = time.monotonic() - due
            if behind > self.period_s / 2:
                self._late += 1
                due += behind
            if not self._sample() or asked_to_stop:
                return

    def _sample(self) -> bool:
        """Append what happened since the last sample. Return False once the process has ended."""
        now = look(self.pid, self.host, self._group, self._throttles)
        if now is None or (self._last and now.process.started != self._last.process.started):
            return False
        rows = between(self._last or now, now, self.pid)
        append(self._file, np.array(rows, _RECORD).tobytes())
        self._last = now
        self._samples += 1
        self._ended = time.monotonic()
        if threading.current_thread() is self._thread:
            self._cpu_s = time.thread_time()
        return True


def parse(raw: Path) -> pa.Table:
    """Return the system_events of a sampler's file, without an unfinished last record. Raise BadCapture."""
    records = _FORMAT.read(raw)
    whole = len(records)
    if (records["kind"] >= len(KINDS)).any():
        raise BadCapture(f"{raw}: holds records of unknown kinds", "aaco run --telemetry")
    columns = {name: pa.array(records[name], mask=records[name] == -1)
               for name in ("dur_ns", "process_id", "cpu", "lost_before")}
    units = _UNITS[records["kind"]]
    return SYSTEM_EVENTS.build(
        t_ns=records["t_ns"], kind=_NAMES[records["kind"]], tier=[TIER] * whole, clock=[CLOCK] * whole,
        unit=pa.array(units, mask=units == ""), value=pa.array(records["value"], mask=np.isnan(records["value"])),
        **columns)


def between(before: ProcessSnapshot, after: ProcessSnapshot, pid: int) -> list[ProcessRow]:
    """Return the rows of one interval. Counts are differences; levels are those of its end.

    `lost_before` counts the threads that ended inside. What they did after `before` is in the CPU time and the faults,
    which the kernel keeps per process, and missing in the wait and the switches, which it keeps per thread.
    """
    old, new = before.process, after.process
    ended = len(old.threads.keys() - new.threads.keys())
    counts = {kind: count - before.counts[kind] for kind, count in after.counts.items() if kind in before.counts}
    grown = {kind: _thread_growth(old, new, counter) for kind, counter in _PER_THREAD.items()}
    rows = [
        _row(after, "sample", len(new.threads), pid, lost_before=ended, dur_ns=after.t_ns - before.t_ns),
        _row(after, "cpu_time", _difference(old.cpu_ns, new.cpu_ns), pid),
        _row(after, "fault_minor", new.minor - old.minor, pid),
        _row(after, "fault_major", new.major - old.major, pid),
        _row(after, "cpu_time_system", _difference(old.system_ns, new.system_ns), pid),
        _row(after, "io_read", _difference(old.read_bytes, new.read_bytes), pid),
        _row(after, "io_write", _difference(old.written_bytes, new.written_bytes), pid),
        _row(after, "rss", new.rss_bytes, pid),
        _row(after, "rss_peak", new.peak_bytes, pid),
        *(_row(after, kind, amount, pid, lost_before=ended) for kind, amount in grown.items()),
        *(_row(after, kind, amount) for kind, amount in {**counts, **after.levels}.items()),
        *(_row(after, "cpu_frequency", mhz, cpu=cpu) for cpu, mhz in after.mhz.items()),
        *(_row(after, "cpu_frequency_max", mhz, cpu=cpu) for cpu, mhz in after.max_mhz.items()),
    ]
    return [row for row in rows if row]


def _difference(before: int | None, after: int | None) -> int | None:
    """Return how much a counter grew; None if it is not kept."""
    return None if before is None or after is None else after - before


def _row(at: ProcessSnapshot, kind: str, amount: float | None, process_id: int = -1, *, cpu: int = -1,
         lost_before: int = -1, dur_ns: int = -1) -> ProcessRow | None:
    """Return a row with the amount in the column of its kind; None if the amount is unknown."""
    if amount is None:
        return None
    if not KINDS[kind]:
        return ProcessRow(at.t_ns, int(amount), np.nan, process_id, cpu, lost_before, _CODES[kind])
    return ProcessRow(at.t_ns, dur_ns, amount, process_id, cpu, lost_before, _CODES[kind])


def _thread_growth(old: Process, new: Process, counter: str) -> int | None:
    """Return how much the living threads added; a thread born inside adds all it has.

    None if the kernel does not count.
    """
    total = 0
    for key, thread in new.threads.items():
        now = getattr(thread, counter)
        if now is None:
            return None
        total += now - (getattr(old.threads[key], counter) if key in old.threads else 0)
    return total
