"""Reads one process and its host at a moment from proc(5), control groups and sysfs. No privilege.

A value that a kernel does not report, or that an ended process no longer has, is None or left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from msgspec import Struct, field

from aaco.core.host import Host

_VMSTAT = {b"pgfault": "host_fault", b"pgmajfault": "host_fault_major", b"pswpin": "swap_in", b"pswpout": "swap_out"}
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Thread(Struct, frozen=True):
    """Counters of one thread since it began; None if this kernel does not keep them."""

    waited_ns: int | None
    voluntary: int | None
    involuntary: int | None
    migrations: int | None
    cpu: int


class Process(Struct, frozen=True):
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


class ProcessSnapshot(Struct, frozen=True):
    """Everything read at `t_ns`. Counts of the host grow from boot; levels are as they were."""

    t_ns: int
    process: Process
    counts: Mapping[str, int] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    mhz: Mapping[int, float] = field(default_factory=dict)  # by CPU
    max_mhz: Mapping[int, float] = field(default_factory=dict)  # by CPU, turbo included


def look(pid: int, host: Host, group: str | None = None,
         throttles: Mapping[str, Sequence[str]] | None = None) -> ProcessSnapshot | None:
    """Return the state of the process and its host at this moment; None once the process has ended.

    group: folder of its control group (version 2); its pressure is read, too. throttles: see throttle_files.
    """
    t_ns = time.monotonic_ns()
    proc = str(host.proc)
    process = _read_process(pid, proc)
    if process is None:
        return None
    used = {thread.cpu for thread in process.threads.values()}
    counts = _read_pressure(f"{proc}/pressure/{{}}", "psi") | _read_host_counts(proc) | _read_paging(proc)
    if group:
        counts |= _read_pressure(f"{group}/{{}}.pressure", "cgroup_psi")
    counts |= _read_throttles(throttles or {}) | _read_quota(pid, host)
    allowed = _allowed_cpus(pid)
    counts |= _read_busy(proc, allowed)
    levels = _read_load(proc) | ({"cpus_allowed": len(allowed)} if allowed else {})
    return ProcessSnapshot(t_ns, process, counts, levels, _read_frequencies(host, used, "scaling_cur_freq"),
                           _read_frequencies(host, used, "cpuinfo_max_freq"))


def _read_process(pid: int, proc: str) -> Process | None:
    folder = f"{proc}/{pid}"
    facts = process_stat(folder)
    tids = _list_folder(f"{folder}/task")
    # A zombie counts no more; a main thread may be one while others go on.
    if facts is None or not tids or (facts[0] in (b"Z", b"X") and len(tids) == 1):
        return None
    threads = {(int(tid), started): thread for tid in tids for started, thread in _read_thread(f"{folder}/task/{tid}")}
    return Process(int(facts[19]), _cpu_ns(pid), int(facts[7]), int(facts[9]), int(facts[21]) * _PAGE, threads,
                   _read_peak(folder), int(facts[12]) * _TICK_NS, *_read_io(folder))


def _read_io(folder: str) -> tuple[int | None, int | None]:
    """Return the bytes that the process had read from devices, and written to them (proc_pid_io(5)); None if missing.
    """
    fields = dict(line.split(b": ") for line in (_read(f"{folder}/io") or b"").splitlines())
    both = (fields.get(name) for name in (b"read_bytes", b"write_bytes"))
    read, written = (int(value) if value else None for value in both)
    return read, written


def _allowed_cpus(pid: int) -> frozenset[int]:
    """Return the CPUs that the process may use; none if unknown."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


def _read_busy(proc: str, cpus: frozenset[int]) -> dict[str, int]:
    """Return the time that these CPUs were at work: all of proc_stat(5) but idle, iowait and steal."""
    lines = (line.split() for line in (_read(f"{proc}/stat") or b"").splitlines() if line.startswith(b"cpu"))
    kept = [line for line in lines if line[0][3:].isdigit() and int(line[0][3:]) in cpus]
    spent = sum(int(field) for line in kept for field in (*line[1:4], *line[6:8]))
    return {"allowed_busy": spent * _TICK_NS} if kept else {}


def _read_quota(pid: int, host: Host) -> dict[str, int]:
    """Return the time that CPU quotas of the process's control group and its parents kept threads from running
    (cpu.stat).

    Read each time, because a launcher may move a process after it was started. If no group up to the root reports, none
    has a quota: the root of version 2 cannot have one (its cpu.max is not there: cgroup-v2.rst), and that time is 0.
    """
    for line in (_read(f"{host.proc}/{pid}/cgroup") or b"").decode(errors="surrogateescape").splitlines():
        number, controllers, group = line.split(":", 2)
        is_v1 = "cpu" in controllers.split(",")
        if not is_v1 and number != "0":
            continue
        for mount in ("/cpu", "/cpu,cpuacct") if is_v1 else ("", "/unified"):
            top = f"{host.sys}/fs/cgroup{mount}"
            groups = (group, *map(str, PurePosixPath(group).parents))
            throttled = [spent for group in groups if (spent := _read_throttled(f"{top}{group}/cpu.stat")) is not None]
            if throttled or _is_root(top):
                return {"cgroup_throttled": sum(throttled)}
    return {}


def _read_throttled(path: str) -> int | None:
    """Return the ns of one group, of either version; None if it does not report."""
    fields = (_read(path) or b"").split()
    stats = dict(zip(fields[::2], fields[1::2], strict=False))
    if b"throttled_time" in stats:
        return int(stats[b"throttled_time"])
    return int(stats[b"throttled_usec"]) * 1000 if b"throttled_usec" in stats else None


def _is_root(top: str) -> bool:
    """Return whether the top of a hierarchy of version 2 with the CPU controller is the host's root, not a container's
    group.

    Every group but the root has a type (cgroup-v2.rst).
    """
    offered = (_read(f"{top}/cgroup.controllers") or b"").split()
    return b"cpu" in offered and _read(f"{top}/cgroup.type") is None


def _read_peak(folder: str) -> int | None:
    """Return the largest resident set of the process so far, bytes (VmHWM of proc_pid_status(5))."""
    _, label, tail = (_read(f"{folder}/status") or b"").partition(b"\nVmHWM:")
    return int(tail.split(maxsplit=1)[0]) * 1024 if label else None


def _cpu_ns(pid: int) -> int | None:
    """Return the CPU time of the whole process, ended threads included, from its CPU clock.

    The clock's number is clock_getcpuclockid(3)'s: ~pid << 3 | 2, by MAKE_PROCESS_CPUCLOCK of linux/posix-timers.h.
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return None


def _read_thread(folder: str) -> Iterator[tuple[int, Thread]]:
    """Yield (start time, counters) of one thread; nothing if it has ended."""
    facts, status = process_stat(folder), _read(f"{folder}/status")
    if facts is None or status is None:
        return
    switches = status[status.rfind(b"\nvoluntary_ctxt_switches:"):].split()  # the last two lines
    voluntary, involuntary = (int(switches[1]), int(switches[3])) if len(switches) == 4 else (None, None)
    yield int(facts[19]), Thread(_read_waited_ns(folder), voluntary, involuntary, _read_migrations(folder),
                                 int(facts[36]))


def process_stat(folder: str) -> list[bytes] | None:
    """Return the fields of proc_pid_stat(5) from the third on, which is number 0 here: the second may hold anything."""
    content = _read(f"{folder}/stat")
    return content.rpartition(b")")[2].split() if content else None


def _read_waited_ns(folder: str) -> int | None:
    """Return how long a thread waited for a CPU, ns (Documentation/scheduler/sched-stats.rst)."""
    content = _read(f"{folder}/schedstat")
    return int(content.split()[1]) if content else None


def _read_migrations(folder: str) -> int | None:
    """Return the migrations; only a kernel with CONFIG_SCHED_DEBUG reports them."""
    _, label, tail = (_read(f"{folder}/sched") or b"").partition(b"nr_migrations")
    return int(tail.split(b"\n", 1)[0].split()[-1]) if label else None


def _read_pressure(files_of: str, prefix: str) -> dict[str, int]:
    """Return the microseconds so far in which some task was stalled (Documentation/accounting/psi.rst)."""
    contents = {f"{prefix}_{name}": _read(files_of.format(name)) for name in ("cpu", "memory", "io")}
    return {kind: int(content.split(b"total=", 2)[1].split()[0]) for kind, content in contents.items()
            if content and b"total=" in content}


def own_group(pid: int, host: Host) -> str | None:
    """Return the folder of the process's control group of version 2; None in the root group, or if there is none."""
    lines = (_read(f"{host.proc}/{pid}/cgroup") or b"").decode(errors="surrogateescape").splitlines()
    group = next((line[3:] for line in lines if line.startswith("0::/")), "/")
    folders = (f"{host.sys}/fs/cgroup{mount}{group}" for mount in ("", "/unified"))
    return next((folder for folder in folders if _read(f"{folder}/cpu.pressure")), None) if group != "/" else None


def _read_host_counts(proc: str) -> dict[str, int]:
    """Return, over all CPUs since boot (proc_stat(5)): time that the hypervisor gave to others, switches, interrupts,
    softirqs.

    The totals of /proc/interrupts and /proc/softirqs, at a fraction of their length.
    """
    content = _read(f"{proc}/stat")
    if not content:
        return {}
    counts = {"steal": int(content.split(b"\n", 1)[0].split()[8]) * _TICK_NS}
    for kind, word in (("host_switches", b"ctxt"), ("host_interrupts", b"intr"), ("host_softirqs", b"softirq")):
        _, label, tail = content.partition(b"\n" + word + b" ")
        counts |= {kind: int(tail.split(maxsplit=1)[0])} if label else {}
    return counts


def _read_paging(proc: str) -> dict[str, int]:
    """Return the page faults and swapping of the whole host since boot (/proc/vmstat)."""
    lines = (line.split() for line in (_read(f"{proc}/vmstat") or b"").splitlines())
    counts = {_VMSTAT[line[0]]: int(line[1]) for line in lines if len(line) == 2 and line[0] in _VMSTAT}
    if "host_fault" in counts and "host_fault_major" in counts:
        counts["host_fault_minor"] = counts["host_fault"] - counts["host_fault_major"]
    counts.pop("host_fault", None)
    return counts


def _read_load(proc: str) -> dict[str, float]:
    """Return the average of the last minute, and tasks that run or wait for a CPU now (proc_loadavg(5))."""
    fields = (_read(f"{proc}/loadavg") or b"").split()
    return {"load": float(fields[0]), "runnable": int(fields[3].split(b"/")[0])} if fields else {}


def _read_frequencies(host: Host, used: set[int], name: str) -> dict[int, float]:
    """Return the frequencies of the CPUs where the process's threads ran last: a reading of a CPU's frequency may
    disturb it.
    """
    contents = {cpu: _read(f"{host.cpus}/cpu{cpu}/cpufreq/{name}") for cpu in sorted(used)}
    return {cpu: int(content) / 1000 for cpu, content in contents.items() if content and content.strip().isdigit()}


def throttle_files(host: Host) -> dict[str, list[str]]:
    """Return by kind the counters of thermal throttling: one file per core and one per package, none if none is kept.

    Every CPU counts the events of its core and of its package (arch/x86 therm_throt.c): siblings report the same twice.
    """
    cpus = sorted(host.cpus.glob("cpu[0-9]*/thermal_throttle"))
    cores = {_read(f"{cpu.parent}/topology/thread_siblings_list") or cpu: cpu for cpu in cpus}
    packages = {_read(f"{cpu.parent}/topology/physical_package_id") or cpu: cpu for cpu in cpus}
    return {"throttle_core": [f"{cpu}/core_throttle_count" for cpu in cores.values()],
            "throttle_package": [f"{cpu}/package_throttle_count" for cpu in packages.values()]}


def _read_throttles(named: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how often so far cores, or packages, grew too hot; absent unless every counter can be read."""
    contents = {kind: [(_read(path) or b"").strip() for path in paths] for kind, paths in named.items()}
    return {kind: sum(map(int, counters)) for kind, counters in contents.items()
            if counters and all(content.isdigit() for content in counters)}


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is needed, ten times a second
    except OSError:
        return []


def _read(path: str) -> bytes | None:
    """Return a file of proc or sysfs; None if there is none (any more)."""
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
