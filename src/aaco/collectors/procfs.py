"""Watches one process through proc(5), ten times a second: what the scheduler, the memory and the host did to it.

Tier T1 of the operating-system plane: no privilege, no kernel feature beyond schedstat and PSI. The sampler runs in a
thread of the process that waits for the target, and writes every sample to a file at once, so that a kill loses nothing
that was sampled. A row counts what happened in an interval, which ends at `t_ns` and lasts as its `sample` row says.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aaco.collectors.recording import Format, append
from aaco.core import files
from aaco.core.errors import BadCapture, StorageError
from aaco.core.host import Host
from aaco.core.readings import Absent
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
_VMSTAT = {b"pgfault": "host_fault", b"pgmajfault": "host_fault_major", b"pswpin": "swap_in", b"pswpout": "swap_out"}
_PER_THREAD = {"run_queue_wait": "waited_ns", "switch_voluntary": "voluntary", "switch_involuntary": "involuntary",
               "migration": "migrations"}
_CODES = {kind: code for code, kind in enumerate(KINDS)}
_NAMES, _UNITS = np.array(list(KINDS)), np.array(list(KINDS.values()))
# -1 stands for null, NaN in `value`.
_RECORD = np.dtype([("t_ns", "<i8"), ("dur_ns", "<i8"), ("value", "<f8"), ("process_id", "<i4"), ("cpu", "<i4"),
                    ("lost_before", "<i4"), ("kind", "<u4")])
_FORMAT = Format("process sampler", "aaco run --telemetry", b"AACOPROC", 1, _RECORD)
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Row(NamedTuple):
    """One record of the file, in its order."""

    t_ns: int
    dur_ns: int
    value: float
    process_id: int
    cpu: int
    lost_before: int
    kind: int


@dataclass(frozen=True)
class Thread:
    """Counters of one thread since it began; None where this kernel does not keep them."""

    ran_ns: int | None
    waited_ns: int | None
    voluntary: int | None
    involuntary: int | None
    migrations: int | None
    cpu: int


@dataclass(frozen=True)
class Process:
    """Counters of a process since it began, ended threads included, and the threads that live, by (id, start time)."""

    started: int
    cpu_ns: int | None
    minor: int
    major: int
    rss_bytes: int
    threads: dict[tuple[int, int], Thread]
    peak_bytes: int | None = None  # largest resident set so far
    system_ns: int | None = None  # of the CPU time, what the kernel spent on its behalf
    read_bytes: int | None = None  # from devices, and to them, as far as the process itself caused it
    written_bytes: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """Everything read at `t_ns`. Counts of the host grow from boot; levels are as they were."""

    t_ns: int
    process: Process
    counts: Mapping[str, int] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    mhz: Mapping[int, float] = field(default_factory=dict)  # by CPU
    max_mhz: Mapping[int, float] = field(default_factory=dict)  # by CPU, turbo included


def wait_ns(pid: int, host: Host | None = None) -> int:
    """Run-queue wait of all living threads of a process since they began, in ns. Raises Absent as waits_ns."""
    return sum(waits_ns(pid, host).values())


def waits_ns(pid: int, host: Host | None = None) -> dict[int, int]:
    """By living thread: its run-queue wait since it began, in ns.

    Raises Absent when there is no such process, or the kernel keeps no account. (/proc/PID/schedstat is only the main
    thread's.)
    """
    tasks = f"{(host or Host()).proc}/{pid}/task"
    pairs = {int(tid): pair for tid in _listed(tasks) if (pair := _schedstat(f"{tasks}/{tid}")) is not None}
    if not pairs:
        raise Absent(f"{tasks}: no such process, or a kernel without CONFIG_SCHED_INFO")
    if not any(ran for ran, _ in pairs.values()):
        raise Absent(f"{tasks}/*/schedstat: all zero: the kernel keeps no account")
    return {tid: waited for tid, (_, waited) in pairs.items()}


class Sampler:
    """Samples a process until it ends or `stop` is called; `raw` is written as it goes. Times are CLOCK_MONOTONIC."""

    def __init__(self, pid: int, period_s: float = 0.1, *, raw: Path, host: Host | None = None) -> None:
        self.pid, self.period_s, self.raw, self.host = pid, period_s, raw, host or Host()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="aaco-procfs", daemon=True)
        self._failure: StorageError | None = None
        self._samples = self._late = 0
        self._cpu_s, self._began, self._ended = 0.0, 0.0, 0.0
        self._last: Snapshot | None = None
        self._group = _own_group(pid, self.host)
        self._throttles = throttle_files(self.host)

    def start(self) -> None:
        """Write the header and the first sample, and go on in the background. Raises StorageError."""
        with files.storage(self.raw):
            self.raw.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.raw.open("wb", buffering=0)
            append(self._file, _FORMAT.header)
            self._began = self._ended = time.monotonic()
            self._sample()
        self._thread.start()

    def stop(self) -> pa.Table:
        """Take the last sample and return the whole table. Raises StorageError if the disk refused one."""
        self._stopped.set()
        self._thread.join()
        self._file.close()
        if self._failure:
            raise self._failure
        return parse(self.raw)

    @property
    def overhead(self) -> dict[str, float | int | str | None]:
        """The sampler's own weight: its CPU time, the rate it really reached, and how many samples came late.

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
        """Append what happened since the last sample; False once the process has ended."""
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
    """The system_events of a sampler's file; an unfinished last record is left out. Raises BadCapture."""
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


def between(before: Snapshot, after: Snapshot, pid: int) -> list[Row]:
    """The rows of one interval. Counts are differences; levels are those of its end.

    `lost_before` counts the threads that ended inside. What they did after `before` is in the CPU time and the faults,
    which the kernel keeps per process, and missing in the wait and the switches, which it keeps per thread.
    """
    old, new = before.process, after.process
    ended = len(old.threads.keys() - new.threads.keys())
    counts = {kind: count - before.counts[kind] for kind, count in after.counts.items() if kind in before.counts}
    grown = {kind: _grown(old, new, counter) for kind, counter in _PER_THREAD.items()}
    rows = [
        _row(after, "sample", len(new.threads), pid, lost_before=ended, dur_ns=after.t_ns - before.t_ns),
        _row(after, "cpu_time", _more(old.cpu_ns, new.cpu_ns), pid),
        _row(after, "fault_minor", new.minor - old.minor, pid),
        _row(after, "fault_major", new.major - old.major, pid),
        _row(after, "cpu_time_system", _more(old.system_ns, new.system_ns), pid),
        _row(after, "io_read", _more(old.read_bytes, new.read_bytes), pid),
        _row(after, "io_write", _more(old.written_bytes, new.written_bytes), pid),
        _row(after, "rss", new.rss_bytes, pid),
        _row(after, "rss_peak", new.peak_bytes, pid),
        *(_row(after, kind, amount, pid, lost_before=ended) for kind, amount in grown.items()),
        *(_row(after, kind, amount) for kind, amount in {**counts, **after.levels}.items()),
        *(_row(after, "cpu_frequency", mhz, cpu=cpu) for cpu, mhz in after.mhz.items()),
        *(_row(after, "cpu_frequency_max", mhz, cpu=cpu) for cpu, mhz in after.max_mhz.items()),
    ]
    return [row for row in rows if row]


def _more(before: int | None, after: int | None) -> int | None:
    """How much a counter grew; None where it is not kept."""
    return None if before is None or after is None else after - before


def _row(at: Snapshot, kind: str, amount: float | None, process_id: int = -1, *, cpu: int = -1, lost_before: int = -1,
         dur_ns: int = -1) -> Row | None:
    """The amount in the column where its kind belongs; None where it is not known."""
    if amount is None:
        return None
    if not KINDS[kind]:
        return Row(at.t_ns, int(amount), np.nan, process_id, cpu, lost_before, _CODES[kind])
    return Row(at.t_ns, dur_ns, amount, process_id, cpu, lost_before, _CODES[kind])


def _grown(old: Process, new: Process, counter: str) -> int | None:
    """How much the living threads added; a thread born inside adds all it has. None where the kernel does not count."""
    total = 0
    for key, thread in new.threads.items():
        now = getattr(thread, counter)
        if now is None:
            return None
        total += now - (getattr(old.threads[key], counter) if key in old.threads else 0)
    return total


def look(pid: int, host: Host, group: str | None = None,
         throttles: Mapping[str, Sequence[str]] | None = None) -> Snapshot | None:
    """Everything about the process and its host at this moment; None once the process has ended.

    group: folder of its control group (version 2), whose own pressure is read, too. throttles: see throttle_files.
    """
    t_ns = time.monotonic_ns()
    proc = str(host.proc)
    process = _process(pid, proc)
    if process is None:
        return None
    used = {thread.cpu for thread in process.threads.values()}
    counts = _pressure(f"{proc}/pressure/{{}}", "psi") | _host_counts(proc) | _paging(proc)
    if group:
        counts |= _pressure(f"{group}/{{}}.pressure", "cgroup_psi")
    counts |= _throttles(throttles or {}) | _quota(pid, host)
    allowed = _allowed(pid)
    counts |= _busy(proc, allowed)
    levels = _load(proc) | ({"cpus_allowed": len(allowed)} if allowed else {})
    return Snapshot(t_ns, process, counts, levels, _frequencies(host, used, "scaling_cur_freq"),
                    _frequencies(host, used, "cpuinfo_max_freq"))


def _process(pid: int, proc: str) -> Process | None:
    folder = f"{proc}/{pid}"
    facts = process_stat(folder)
    tids = _listed(f"{folder}/task")
    # A zombie counts no more; a main thread may be one while others go on.
    if facts is None or not tids or (facts[0] in (b"Z", b"X") and len(tids) == 1):
        return None
    threads = {(int(tid), started): thread for tid in tids for started, thread in _thread(f"{folder}/task/{tid}")}
    return Process(int(facts[19]), _cpu_ns(pid), int(facts[7]), int(facts[9]), int(facts[21]) * _PAGE, threads,
                   _peak(folder), int(facts[12]) * _TICK_NS, *_io(folder))


def _io(folder: str) -> tuple[int | None, int | None]:
    """Bytes that the process had read from devices, and written to them (proc_pid_io(5)); None where it is not told."""
    fields = dict(line.split(b": ") for line in (_read(f"{folder}/io") or b"").splitlines())
    both = (fields.get(name) for name in (b"read_bytes", b"write_bytes"))
    read, written = (int(value) if value else None for value in both)
    return read, written


def _allowed(pid: int) -> frozenset[int]:
    """CPUs that the process may use; none where that is not told."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


def _busy(proc: str, cpus: frozenset[int]) -> dict[str, int]:
    """Time that these CPUs were at work for anybody: all of proc_stat(5) but idle, iowait and steal."""
    lines = (line.split() for line in (_read(f"{proc}/stat") or b"").splitlines() if line.startswith(b"cpu"))
    kept = [line for line in lines if line[0][3:].isdigit() and int(line[0][3:]) in cpus]
    spent = sum(int(field) for line in kept for field in (*line[1:4], *line[6:8]))
    return {"allowed_busy": spent * _TICK_NS} if kept else {}


def _quota(pid: int, host: Host) -> dict[str, int]:
    """Time that CPU quotas of the process's control group and of those above it kept threads from running (cpu.stat).

    Read anew each time: a launcher may move a process after it was started. Where no group up to the root tells, none
    has a quota: the root of version 2 cannot have one (its cpu.max is not there: cgroup-v2.rst), and that time is 0.
    """
    for line in (_read(f"{host.proc}/{pid}/cgroup") or b"").decode(errors="surrogateescape").splitlines():
        number, controllers, own = line.split(":", 2)
        first = "cpu" in controllers.split(",")
        if not first and number != "0":
            continue
        for mount in ("/cpu", "/cpu,cpuacct") if first else ("", "/unified"):
            top = f"{host.sys}/fs/cgroup{mount}"
            groups = (own, *map(str, PurePosixPath(own).parents))
            told = [spent for group in groups if (spent := _throttled(f"{top}{group}/cpu.stat")) is not None]
            if told or _is_root(top):
                return {"cgroup_throttled": sum(told)}
    return {}


def _throttled(path: str) -> int | None:
    """Nanoseconds of one group, of either version; None where it does not tell."""
    fields = (_read(path) or b"").split()
    found = dict(zip(fields[::2], fields[1::2], strict=False))
    if b"throttled_time" in found:
        return int(found[b"throttled_time"])
    return int(found[b"throttled_usec"]) * 1000 if b"throttled_usec" in found else None


def _is_root(top: str) -> bool:
    """Whether the top of a hierarchy of version 2 with the CPU controller is the host's root, not a container's group.

    Every group but the root has a type (cgroup-v2.rst).
    """
    offered = (_read(f"{top}/cgroup.controllers") or b"").split()
    return b"cpu" in offered and _read(f"{top}/cgroup.type") is None


def _peak(folder: str) -> int | None:
    """Largest resident set of the process so far, in bytes (VmHWM of proc_pid_status(5))."""
    _, there, rest = (_read(f"{folder}/status") or b"").partition(b"\nVmHWM:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if there else None


def _cpu_ns(pid: int) -> int | None:
    """CPU time of the whole process, ended threads included, from its own CPU clock.

    The clock's number is clock_getcpuclockid(3)'s: ~pid << 3 | 2, by MAKE_PROCESS_CPUCLOCK of linux/posix-timers.h.
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return None


def _thread(folder: str) -> Iterator[tuple[int, Thread]]:
    """(start time, counters) of one thread; nothing when it ended meanwhile."""
    facts, status = process_stat(folder), _read(f"{folder}/status")
    if facts is None or status is None:
        return
    switches = status[status.rfind(b"\nvoluntary_ctxt_switches:"):].split()  # the last two lines
    voluntary, involuntary = (int(switches[1]), int(switches[3])) if len(switches) == 4 else (None, None)
    ran, waited = _schedstat(folder) or (None, None)
    yield int(facts[19]), Thread(ran, waited, voluntary, involuntary, _migrations(folder), int(facts[36]))


def process_stat(folder: str) -> list[bytes] | None:
    """Fields of proc_pid_stat(5) from the third on, which is number 0 here: the second may hold anything."""
    content = _read(f"{folder}/stat")
    return content.rpartition(b")")[2].split() if content else None


def _schedstat(folder: str) -> tuple[int, int] | None:
    """Time run and time waited in ns (Documentation/scheduler/sched-stats.rst)."""
    content = _read(f"{folder}/schedstat")
    if not content:
        return None
    ran, waited, _ = content.split()
    return int(ran), int(waited)


def _migrations(folder: str) -> int | None:
    """Only a kernel with CONFIG_SCHED_DEBUG tells."""
    _, found, rest = (_read(f"{folder}/sched") or b"").partition(b"nr_migrations")
    return int(rest.split(b"\n", 1)[0].split()[-1]) if found else None


def _pressure(files_of: str, prefix: str) -> dict[str, int]:
    """Microseconds so far in which some task was stalled (Documentation/accounting/psi.rst)."""
    contents = {f"{prefix}_{name}": _read(files_of.format(name)) for name in ("cpu", "memory", "io")}
    return {kind: int(content.split(b"total=", 2)[1].split()[0]) for kind, content in contents.items()
            if content and b"total=" in content}


def _own_group(pid: int, host: Host) -> str | None:
    """Folder of the process's control group of version 2; None where it is in the root group, or there is none."""
    lines = (_read(f"{host.proc}/{pid}/cgroup") or b"").decode(errors="surrogateescape").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::/")), "/")
    folders = (f"{host.sys}/fs/cgroup{mount}{own}" for mount in ("", "/unified"))
    return next((folder for folder in folders if _read(f"{folder}/cpu.pressure")), None) if own != "/" else None


def _host_counts(proc: str) -> dict[str, int]:
    """On all CPUs since boot (proc_stat(5)): time that the hypervisor gave to others, switches, interrupts, softirqs.

    The totals of /proc/interrupts and /proc/softirqs, at a fraction of their length.
    """
    content = _read(f"{proc}/stat")
    if not content:
        return {}
    found = {"steal": int(content.split(b"\n", 1)[0].split()[8]) * _TICK_NS}
    for kind, word in (("host_switches", b"ctxt"), ("host_interrupts", b"intr"), ("host_softirqs", b"softirq")):
        _, there, rest = content.partition(b"\n" + word + b" ")
        found |= {kind: int(rest.split(maxsplit=1)[0])} if there else {}
    return found


def _paging(proc: str) -> dict[str, int]:
    """Page faults and swapping of the whole host since boot (/proc/vmstat)."""
    lines = (line.split() for line in (_read(f"{proc}/vmstat") or b"").splitlines())
    found = {_VMSTAT[line[0]]: int(line[1]) for line in lines if len(line) == 2 and line[0] in _VMSTAT}
    if "host_fault" in found and "host_fault_major" in found:
        found["host_fault_minor"] = found["host_fault"] - found["host_fault_major"]
    found.pop("host_fault", None)
    return found


def _load(proc: str) -> dict[str, float]:
    """Average of the last minute, and tasks that run or wait for a CPU now (proc_loadavg(5))."""
    fields = (_read(f"{proc}/loadavg") or b"").split()
    return {"load": float(fields[0]), "runnable": int(fields[3].split(b"/")[0])} if fields else {}


def _frequencies(host: Host, used: set[int], name: str) -> dict[int, float]:
    """Of the CPUs where the process's threads ran last: asking a CPU for its frequency may disturb it."""
    contents = {cpu: _read(f"{host.cpus}/cpu{cpu}/cpufreq/{name}") for cpu in sorted(used)}
    return {cpu: int(content) / 1000 for cpu, content in contents.items() if content and content.strip().isdigit()}


def throttle_files(host: Host) -> dict[str, list[str]]:
    """By kind, the counters of thermal throttling: one file per core and one per package, none where none is kept.

    Every CPU counts the events of its core and of its package (arch/x86 therm_throt.c): siblings tell the same twice.
    """
    cpus = sorted(host.cpus.glob("cpu[0-9]*/thermal_throttle"))
    cores = {_read(f"{cpu.parent}/topology/thread_siblings_list") or cpu: cpu for cpu in cpus}
    packages = {_read(f"{cpu.parent}/topology/physical_package_id") or cpu: cpu for cpu in cpus}
    return {"throttle_core": [f"{cpu}/core_throttle_count" for cpu in cores.values()],
            "throttle_package": [f"{cpu}/package_throttle_count" for cpu in packages.values()]}


def _throttles(named: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Times so far that cores, or packages, grew too hot; absent unless every counter can be read."""
    contents = {kind: [(_read(path) or b"").strip() for path in paths] for kind, paths in named.items()}
    return {kind: sum(map(int, found)) for kind, found in contents.items()
            if found and all(content.isdigit() for content in found)}


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is needed, ten times a second
    except OSError:
        return []


def _read(path: str) -> bytes | None:
    """A file of proc or sysfs, or None where there is none (any more)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return b"".join(iter(lambda: os.read(handle, 1 << 16), b""))
    except OSError:  # the thread ended after its file was opened
        return None
    finally:
        os.close(handle)
