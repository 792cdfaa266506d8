"""What the measured process's threads got of the CPUs over a phase: read at its two ends, outside every latency.

The main thread executes the model's graph, so its wall time is what it ran, what it waited for a CPU, and what it
slept, exactly. The threads of the pool spin while they have no work: what they ran says little of what they did, but
what they waited for a CPU, the main thread may have waited for them.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

TASKS = Path("/proc/self/task")
STAT = Path("/proc/stat")
GROUPS = Path("/proc/self/cgroup")
HIERARCHIES = Path("/sys/fs/cgroup")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
BUSY = (1, 2, 3, 6, 7)  # fields of a CPU's line in proc_stat(5): user, nice, system, irq, softirq
STEAL = 8


class CpuSnapshot(Struct, frozen=True):
    """Counters since each began. by_thread: ns that it ran, and waited for a CPU, by id; busy_ns, stolen_ns: of the
    CPUs that this process may use; throttled_ns: by quotas of its control groups, None if none reports.
    """

    t_ns: int
    by_thread: dict[int, tuple[int, int]]
    cpus: int
    busy_ns: int
    stolen_ns: int
    throttled_ns: int | None


def look() -> CpuSnapshot:
    """Return the counters at this moment."""
    threads: dict[int, tuple[int, int]] = {}
    for task in os.listdir(TASKS):  # noqa: PTH208
        with suppress(OSError):  # it has ended
            ran, waited, *_ = (TASKS / task / "schedstat").read_text().split()
            threads[int(task)] = int(ran), int(waited)
    allowed = os.sched_getaffinity(0)
    busy, stolen = _read_cpus(allowed)
    return CpuSnapshot(time.monotonic_ns(), threads, len(allowed), busy, stolen, _read_throttled())


def between(before: CpuSnapshot, after: CpuSnapshot) -> dict[str, object] | None:
    """Return what happened between two looks, ns; None if the kernel keeps no account of its threads.

    threads: what each thread but the main one ran, the most first. others_busy_ns: what everything but this process ran
    on the CPUs that it may use (to 10 ms and CPU).
    """
    main = threading.main_thread().native_id
    if main is None or main not in before.by_thread or not any(ran for ran, _ in after.by_thread.values()):
        return None
    spent = {task: tuple(now - then for now, then in zip(counters, before.by_thread.get(task, (0, 0)), strict=True))
             for task, counters in after.by_thread.items()}
    ran, waited = spent.pop(main)
    pool = sorted((thread_ran for thread_ran, _ in spent.values() if thread_ran), reverse=True)
    throttled = (None if before.throttled_ns is None or after.throttled_ns is None else
                 after.throttled_ns - before.throttled_ns)
    return {"span_ns": after.t_ns - before.t_ns, "main_ran_ns": ran, "main_waited_ns": waited, "threads": pool,
            "pool_waited_ns": sum(thread_waited for _, thread_waited in spent.values()), "cpus": after.cpus,
            "others_busy_ns": max(0, after.busy_ns - before.busy_ns - ran - sum(pool)),
            "stolen_ns": max(0, after.stolen_ns - before.stolen_ns), "throttled_ns": throttled}


def _read_cpus(allowed: set[int]) -> tuple[int, int]:
    """Return the busy and the stolen time of these CPUs, ns."""
    lines = (line.split() for line in STAT.read_text().splitlines() if line.startswith("cpu"))
    kept = [line for line in lines if line[0][3:].isdigit() and int(line[0][3:]) in allowed]
    return (TICK_NS * sum(int(line[field]) for line in kept for field in BUSY),
            TICK_NS * sum(int(line[STEAL]) for line in kept))


def _read_throttled() -> int | None:
    """Return the time that quotas of the control group and those above kept threads from running (cpu.stat), ns."""
    throttled: list[int] = []
    for line in GROUPS.read_text().splitlines():
        number, controllers, group = line.split(":", 2)
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        for mount in ("cpu", "cpu,cpuacct") if number != "0" else ("", "unified"):
            top = HIERARCHIES / mount
            own = top / group.lstrip("/")
            for folder in (own, *own.parents):
                if folder.is_relative_to(top):
                    throttled += _read_group(folder / "cpu.stat")
    return sum(throttled) if throttled else None


def _read_group(path: Path) -> list[int]:
    """Return the throttled time of one group, of either version; empty if it does not report."""
    try:
        fields = path.read_text().split()
    except OSError:
        return []
    stats = dict(zip(fields[::2], fields[1::2], strict=False))
    if "throttled_time" in stats:
        return [int(stats["throttled_time"])]
    return [int(stats["throttled_usec"]) * 1000] if "throttled_usec" in stats else []
