"""The process sampler against other accounts of the same truth: getrusage, two hogs on one CPU, made-up counters."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.collectors.host import process_sampler, procfs
from aaco.collectors.host.process_sampler import ProcessSampler
from aaco.collectors.host.procfs import Process, ProcessSnapshot, Thread
from aaco.collectors.inventory.machine import Host
from aaco.core.errors import BadCapture, StorageError
from aaco.core.tables import SYSTEM_EVENTS
from benchmarks.programs import SETTLE
from tests.fakes import hosts

HOG = """
import os, sys, time
os.sched_setaffinity(0, {{{cpu}}})
print("ready", flush=True)
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    pass
"""
# Waits to be told to begin and to end, so that what lies between is what the sampler saw; then reports getrusage.
BUSY = SETTLE + """
import mmap, resource, sys, threading
def rusage():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return [r.ru_nvcsw, r.ru_nivcsw, r.ru_minflt, r.ru_majflt, r.ru_utime + r.ru_stime]
def work():
    for _ in range(150):
        time.sleep(0.001)
    memory = mmap.mmap(-1, 8 << 20)
    for page in range(0, 8 << 20, 4096):
        memory[page] = 1
    done.release()
    gate.wait()
gate, done = threading.Event(), threading.Semaphore(0)
threads = [threading.Thread(target=work) for _ in range(3)]
print("ready", flush=True); sys.stdin.readline()
before = rusage()
for thread in threads:
    thread.start()
for thread in threads:
    done.acquire()
settle("self", threading.get_native_id())
print(*(b - a for a, b in zip(before, rusage())), flush=True)
sys.stdin.readline()
gate.set()
"""


def total(table: pa.Table, kind: str, column: str = "value") -> float:
    chosen = table.filter(pc.equal(table["kind"].cast(pa.string()), kind))
    assert chosen.num_rows
    return float(pc.sum(chosen[column]).as_py())


def wait_ns(pid: int) -> int:
    """The run-queue wait of all threads, by hand."""
    return sum(int(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def test_two_hogs_on_one_cpu_wait_half_of_the_time(start: Any, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    _, target = (start(HOG.format(cpu=cpu, seconds=30)) for _ in range(2))
    sampler = ProcessSampler(target.pid, raw=tmp_path / "raw.bin")
    outside = wait_ns(target.pid)
    sampler.start()
    inside = wait_ns(target.pid)
    time.sleep(2)
    inside = wait_ns(target.pid) - inside
    table = sampler.stop()
    outside = wait_ns(target.pid) - outside
    wall, wait, ran = (total(table, kind, "dur_ns") for kind in ("sample", "run_queue_wait", "cpu_time"))
    assert inside <= wait <= outside
    assert 0.5 < (wait + ran) / wall < 1.5  # a hog runs or waits, nothing else; a wait counts only when it is over
    assert wait / wall > 0.25  # half, or more when others want this CPU too
    assert total(table, "switch_involuntary") > 0
    assert total(table, "psi_cpu") > 0.25e-3 * wall


def test_counts_agree_with_getrusage(start: Any, tmp_path: Path) -> None:
    target = start(BUSY)
    sampler = ProcessSampler(target.pid, 0.05, raw=tmp_path / "raw.bin")
    sampler.start()
    target.stdin.write("go\n")
    target.stdin.flush()
    voluntary, involuntary, minor, major, cpu_s = map(float, target.stdout.readline().split())
    table = sampler.stop()
    assert total(table, "switch_voluntary") == pytest.approx(voluntary, abs=10)
    assert voluntary > 400
    assert total(table, "switch_involuntary") == pytest.approx(involuntary, abs=10)
    assert total(table, "fault_minor") == pytest.approx(minor, abs=20)
    assert minor > 10
    assert total(table, "fault_major") == pytest.approx(major, abs=2)
    assert total(table, "cpu_time", "dur_ns") / 1e9 == pytest.approx(cpu_s, rel=0.5, abs=0.05)
    assert max(table.filter(pc.equal(table["kind"].cast(pa.string()), "sample"))["value"].to_pylist()) == 4


def test_table_and_overhead(start: Any, tmp_path: Path) -> None:
    target = start(HOG.format(cpu=max(os.sched_getaffinity(0)), seconds=30))
    before = time.monotonic_ns()
    sampler = ProcessSampler(target.pid, 0.02, raw=tmp_path / "deep" / "raw.bin")
    sampler.start()
    time.sleep(1)
    table, after = sampler.stop(), time.monotonic_ns()
    assert table.schema.equals(SYSTEM_EVENTS.schema)
    times = table["t_ns"].to_pylist()
    assert before <= times[0] <= times[-1] <= after
    assert times == sorted(times)
    assert set(table["tier"].to_pylist()) == {"T1"}
    process = table.filter(pc.equal(table["kind"].cast(pa.string()), "cpu_time"))
    assert set(process["process_id"].to_pylist()) == {target.pid}
    assert total(table, "rss") / process.num_rows > 5 << 20
    seen = sampler.overhead
    assert seen["samples"] == process.num_rows
    span_s = (times[-1] - times[0]) / 1e9
    assert seen["rate_hz"] == pytest.approx((seen["samples"] - 1) / span_s, rel=0.5)
    assert 0 < seen["rate_hz"] < 100  # twice what was asked: none comes sooner than half a period after another
    assert 0 < seen["cpu_s_per_s"] < 1
    assert sampler.stop().equals(table)


def test_the_span_of_the_samples_is_the_sum_of_the_intervals(start: Any, tmp_path: Path) -> None:
    sampler = ProcessSampler(os.getpid(), 0.02, raw=tmp_path / "raw.bin")
    sampler.start()
    time.sleep(0.2)
    table = sampler.stop()
    ends = pc.min_max(table["t_ns"]).as_py()
    assert total(table, "sample", "dur_ns") == ends["max"] - ends["min"]


def test_it_ends_with_the_process(start: Any, tmp_path: Path) -> None:
    target = start("import sys; print('ready', flush=True); sys.stdin.readline()")
    sampler = ProcessSampler(target.pid, 0.02, raw=tmp_path / "raw.bin")
    sampler.start()
    target.stdin.write("end\n")
    target.stdin.flush()
    sampler._thread.join(20)  # ends although nobody has waited for the process: it is a zombie
    assert not sampler._thread.is_alive()
    assert target.returncode is None
    assert total(sampler.stop(), "sample", "dur_ns") < 20e9


def test_a_process_that_is_not_there(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    sampler = ProcessSampler(gone.pid, raw=tmp_path / "raw.bin")
    sampler.start()
    assert sampler.stop().num_rows == 0
    assert sampler.overhead["samples"] == 0


def test_nothing_is_lost_when_the_sampler_is_killed(tmp_path: Path) -> None:
    raw = tmp_path / "raw.bin"
    code = (f"import os, time; from pathlib import Path\n"
            "from aaco.collectors.host.process_sampler import ProcessSampler\n"
            f"ProcessSampler(os.getppid(), 0.02, raw=Path({str(raw)!r})).start(); print('ready', flush=True)\n"
            "time.sleep(60)")
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout
    parent.stdout.readline()
    while len(set(process_sampler.parse(raw)["t_ns"].to_pylist())) <= 10:  # what the file holds by now
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    table = process_sampler.parse(raw)
    assert len(set(table["t_ns"].to_pylist())) > 10
    assert total(table, "sample", "dur_ns") > 10 * 0.01e9  # as many samples, each half a period after another at least


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="/dev/full"):
        ProcessSampler(os.getpid(), raw=Path("/dev/full")).start()


def test_a_disk_that_fills_up_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw.bin"
    sampler = ProcessSampler(os.getpid(), 0.02, raw=raw)
    sampler.start()
    monkeypatch.setattr(sampler, "_file", Path("/dev/full").open("wb", buffering=0))  # noqa: SIM115
    time.sleep(0.2)
    with pytest.raises(StorageError, match="No space left"):
        sampler.stop()
    assert process_sampler.parse(raw).num_rows


def test_a_record_written_in_part_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        name = "raw.bin"

        def write(self, content: bytes) -> int:
            return len(content) - 1

        def close(self) -> None:
            pass

    sampler = ProcessSampler(os.getpid(), 0.02, raw=tmp_path / "raw.bin")
    sampler.start()
    sampler._file.close()
    monkeypatch.setattr(sampler, "_file", Full())
    with pytest.raises(StorageError, match="No space left"):
        sampler.stop()


def recording(tmp_path: Path) -> bytes:
    raw = tmp_path / "whole.bin"
    sampler = ProcessSampler(os.getpid(), 0.01, raw=raw)
    sampler.start()
    time.sleep(0.1)
    sampler.stop()
    return raw.read_bytes()


def test_cut_anywhere_it_parses_or_is_a_bad_capture(tmp_path: Path) -> None:
    content, raw, draw = recording(tmp_path), tmp_path / "cut.bin", random.Random(3)
    whole = process_sampler.parse(tmp_path / "whole.bin").to_pylist()
    for cut in [0, 1, 15, 16, 17, *(draw.randrange(len(content)) for _ in range(50))]:
        raw.write_bytes(content[:cut])
        if cut < 16:
            with pytest.raises(BadCapture):
                process_sampler.parse(raw)
        else:
            assert process_sampler.parse(raw).to_pylist() == whole[:(cut - 16) // process_sampler._RECORD.itemsize]


def test_with_flipped_bytes_it_parses_or_is_a_bad_capture(tmp_path: Path) -> None:
    content, raw, draw = recording(tmp_path), tmp_path / "flipped.bin", random.Random(4)
    for _ in range(200):
        broken = bytearray(content)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        raw.write_bytes(broken)
        try:
            process_sampler.parse(raw).validate(full=True)
        except BadCapture as error:
            assert str(raw) in error.what
            assert error.fix


def test_no_file_is_a_bad_capture(tmp_path: Path) -> None:
    with pytest.raises(BadCapture, match="No such file"):
        process_sampler.parse(tmp_path / "none.bin")


def values(rows: list[process_sampler.ProcessRow]) -> dict[str, float]:
    """Amount by kind."""
    kinds = list(process_sampler.KINDS)
    return {kinds[row.kind]: row.value if process_sampler.KINDS[kinds[row.kind]] else row.dur_ns for row in rows}


IDLE = Process(1, 0, 0, 0, 0, {})
THREAD = Thread(100, 10, 20, 5, 0)


def test_threads_that_end_and_begin() -> None:
    old = replace(IDLE, threads={(1, 5): THREAD, (2, 6): replace(THREAD, waited_ns=10**9)})
    new = replace(IDLE, threads={(1, 5): replace(THREAD, waited_ns=150, voluntary=11),
                                 (2, 9): replace(THREAD, waited_ns=7)})
    rows = process_sampler.between(ProcessSnapshot(1000, old), ProcessSnapshot(3000, new), 42)
    found = values(rows)
    assert found["run_queue_wait"] == 50 + 7  # thread 2 is another one than before, by its start time
    assert found["switch_voluntary"] == 1 + 10
    assert {row.lost_before for row in rows if row.lost_before >= 0} == {1}
    assert found["sample"] == 2
    assert [row.dur_ns for row in rows if row.kind == 0] == [2000]


def test_what_the_kernel_does_not_count_is_absent_not_zero() -> None:
    silent = replace(IDLE, cpu_ns=None, threads={(1, 5): Thread(None, None, None, None, 0)})
    found = values(process_sampler.between(ProcessSnapshot(0, silent, {"steal": 1}),
                                           ProcessSnapshot(1, silent, {"psi_io": 1}), 42))
    assert found.keys() == {"sample", "fault_minor", "fault_major", "rss"}


def test_host_rows_belong_to_no_process() -> None:
    rows = process_sampler.between(ProcessSnapshot(0, IDLE, {"steal": 10, "psi_io": 3}),
                          ProcessSnapshot(9, IDLE, {"steal": 30, "psi_io": 4}, {"load": 1.5}, {3: 2100.0}), 42)
    of_host = [row for row in rows if row.process_id == -1]
    assert values(of_host) == {"steal": 20, "psi_io": 1, "load": 1.5, "cpu_frequency": 2100.0}
    assert [row.cpu for row in of_host if row.cpu >= 0] == [3]


def test_throttling_is_counted_once_per_core_and_package(tmp_path: Path) -> None:
    """Two cores of two threads each, in one package.

    Mutations: every CPU's counter added; a counter that cannot be read taken for 0; the count since boot as the row.
    """
    cpus = "sys/devices/system/cpu"
    for cpu in range(4):
        core = cpu // 2
        hosts.plant(tmp_path, {f"{cpus}/cpu{cpu}/topology/thread_siblings_list": f"{2 * core}-{2 * core + 1}\n",
                               f"{cpus}/cpu{cpu}/topology/physical_package_id": "0\n",
                               f"{cpus}/cpu{cpu}/thermal_throttle/core_throttle_count": f"{10 + core}\n",
                               f"{cpus}/cpu{cpu}/thermal_throttle/package_throttle_count": "7\n",
                               f"{cpus}/cpu{cpu}/cpufreq/scaling_cur_freq": "1800000\n",
                               f"{cpus}/cpu{cpu}/cpufreq/cpuinfo_max_freq": "3600000\n"})
    (tmp_path / "proc").symlink_to("/proc")
    host = Host(tmp_path)
    files = procfs.throttle_files(host)
    before = procfs.look(os.getpid(), host, None, files)
    assert before and (before.counts["throttle_core"], before.counts["throttle_package"]) == (21, 7)
    used = {cpu for cpu in range(4) if cpu in before.mhz}
    assert set(before.max_mhz) == used and set(before.max_mhz.values()) <= {3600.0}
    hosts.plant(tmp_path, {f"{cpus}/cpu{cpu}/thermal_throttle/core_throttle_count": "15\n" for cpu in (2, 3)})
    after = procfs.look(os.getpid(), host, None, files)
    assert after
    found = values(process_sampler.between(before, after, os.getpid()))
    assert (found["throttle_core"], found["throttle_package"]) == (4, 0)
    for cpu in range(4):
        hosts.plant(tmp_path, {f"{cpus}/cpu{cpu}/thermal_throttle/core_throttle_count": "hot\n"})
    silent = procfs.look(os.getpid(), host, None, files)
    assert silent and "throttle_core" not in silent.counts and silent.counts["throttle_package"] == 7
    bare = procfs.look(os.getpid(), host, None, procfs.throttle_files(Host(tmp_path / "nowhere")))
    assert bare and not [kind for kind in bare.counts if kind.startswith("throttle")]


lives = st.dictionaries(st.integers(1, 6), st.lists(st.integers(0, 50), min_size=1, max_size=8), max_size=6)


@given(lives, st.lists(st.integers(0, 8), max_size=6))
def test_whenever_threads_live_no_delta_is_negative_and_none_is_counted_twice(
        growth: dict[int, list[int]], births: list[int]) -> None:
    """Each thread is born at some tick and adds to its counter until its list ends; one look per tick."""
    born = dict(zip(growth, [*births, *([0] * len(growth))], strict=False))

    def look_at(tick: int) -> ProcessSnapshot:
        alive = {tid: steps for tid, steps in growth.items() if born[tid] <= tick < born[tid] + len(steps)}
        threads = {(tid, born[tid]): replace(THREAD, waited_ns=sum(steps[:tick - born[tid] + 1]), voluntary=tick)
                   for tid, steps in alive.items()}
        return ProcessSnapshot(tick, replace(IDLE, threads=threads))

    looks = [look_at(tick) for tick in range(18)]
    waits = [values(process_sampler.between(a, b, 1))["run_queue_wait"] for a, b in pairwise(looks)]
    assert all(wait >= 0 for wait in waits)
    first = sum(steps[0] for tid, steps in growth.items() if born[tid] == 0)
    assert sum(waits) == sum(map(sum, growth.values())) - first


def test_no_quota_stops_the_root_group_and_those_above_stop_a_group_too(tmp_path: Path) -> None:
    """cgroup-v2.rst: cpu.max is on all groups but the root, cgroup.type too. Mutation: any top taken for the root."""
    hosts.plant(tmp_path, {"proc/7/cgroup": "4:cpu:/gone\n0::/\n", "sys/fs/cgroup/cgroup.controllers": "memory\n"})
    assert procfs._read_quota(7, Host(tmp_path)) == {}  # version 1 governs the CPU, and does not tell
    hosts.plant(tmp_path, {"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io\n",
                           "sys/fs/cgroup/cpu.stat": "usage_usec 5\n"})
    assert procfs._read_quota(7, Host(tmp_path)) == {"cgroup_throttled": 0}
    hosts.plant(tmp_path, {"proc/7/cgroup": "0::/user.slice/one.scope\n",
                           "sys/fs/cgroup/user.slice/one.scope/cpu.stat": "usage_usec 5\n"})
    assert procfs._read_quota(7, Host(tmp_path)) == {"cgroup_throttled": 0}
    hosts.plant(tmp_path, {"sys/fs/cgroup/user.slice/cpu.stat": "usage_usec 5\nthrottled_usec 8\n"})
    assert procfs._read_quota(7, Host(tmp_path)) == {"cgroup_throttled": 8000}
    hosts.plant(tmp_path, {"sys/fs/cgroup/user.slice/one.scope/cpu.stat": "throttled_usec 2\n"})
    assert procfs._read_quota(7, Host(tmp_path)) == {"cgroup_throttled": 10_000}
    hosts.plant(tmp_path, {"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.type": "domain\n"})
    assert procfs._read_quota(7, Host(tmp_path)) == {}  # the top is a container's group, and does not tell
    (tmp_path / "proc/7/cgroup").unlink()
    assert procfs._read_quota(7, Host(tmp_path)) == {}


def test_formats_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process named to confuse, on a host with cpufreq. Mutation: the first mount's group taken for every version."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    before_start = " ".join(map(str, range(4, 22)))
    stat = f"77 (a) b (c) R {before_start} 5000 23 24 " + " ".join(map(str, range(25, 53)))
    hosts.plant(tmp_path, {
        "proc/77/stat": stat, "proc/77/task/77/stat": stat, "proc/77/task/77/schedstat": "11 22 33\n",
        "proc/77/task/77/status": "Name:\ta) b\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
        "proc/77/task/77/sched": "x (77, #threads: 1)\nse.nr_migrations      :         9\nnr_switches : 11\n",
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0 total=9\n",
        "proc/stat": "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 40 50 6 7 80 0 0\ncpu1 9 9 9 9 9 9 9 9\n"
                     "cpu2 1 0 0 0\nintr 5 0\nctxt 400\nbtime 1\nsoftirq 77 1 2\n",
        "proc/vmstat": "nr_free_pages 1\npgfault 90\npgmajfault 20\npswpin 3\npswpout 4\n",
        "proc/77/status": "Name:\ta\nVmPeak:\t 9 kB\nVmHWM:\t   32 kB\nVmRSS:\t 8 kB\n",
        "proc/77/io": "rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n",
        "proc/77/cgroup": "4:memory:/x\n0::/pod\n",
        "sys/fs/cgroup/unified/pod/cpu.stat": "usage_usec 1\nnr_throttled 2\nthrottled_usec 3\n",
        "sys/fs/cgroup/unified/pod/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=55\n",
        "sys/fs/cgroup/unified/pod/io.pressure": "\n",
        "proc/loadavg": "0.50 0.1 0.1 3/90 1\n", "sys/devices/system/cpu/cpu39/cpufreq/scaling_cur_freq": "2450000\n"})
    seen = procfs.look(77, Host(tmp_path), procfs.own_group(77, Host(tmp_path)))
    assert seen
    tick_ns, page = 10**9 // os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert replace(seen.process, cpu_ns=None) == Process(5000, None, 10, 12, 24 * page, {
        (77, 5000): Thread(22, 5, 6, 9, 39)}, 32 << 10, 15 * tick_ns, 4096, 8192)
    assert seen.counts == {
        "psi_cpu": 123, "steal": 8 * tick_ns, "host_switches": 400, "host_interrupts": 5, "host_softirqs": 77,
        "host_fault_minor": 70, "host_fault_major": 20, "swap_in": 3, "swap_out": 4, "cgroup_psi_cpu": 55,
        "cgroup_throttled": 3000, "allowed_busy": (1 + 2 + 3 + 6 + 7 + 1) * tick_ns}
    assert seen.levels == {"load": 0.5, "runnable": 3, "cpus_allowed": 2}
    hosts.plant(tmp_path, {"proc/77/cgroup": "4:cpu,cpuacct:/old\n0::/\n",
                           "sys/fs/cgroup/cpu,cpuacct/old/cpu.stat": "nr_periods 1\nthrottled_time 7\n"})
    assert procfs._read_quota(77, Host(tmp_path)) == {"cgroup_throttled": 7}
    hosts.plant(tmp_path, {"proc/77/cgroup": "4:cpu,cpuacct:/\n0::/\n",  # a container's root is a group of its host
                           "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 1\nthrottled_time 9\n"})
    assert procfs._read_quota(77, Host(tmp_path)) == {"cgroup_throttled": 9}
    assert seen.mhz == {39: 2450.0}


def test_totals_of_interrupts_are_those_of_the_long_files() -> None:
    """Mutation: the first interrupt's count taken for the total."""
    def summed(name: str) -> int:
        lines = Path(f"/proc/{name}").read_text().splitlines()[1:]
        return sum(int(word) for line in lines for word in line.split()[1:1 + (os.cpu_count() or 1)] if word.isdigit())

    before, seen, after = summed("softirqs"), procfs._read_host_counts("/proc"), summed("softirqs")
    assert before <= seen["host_softirqs"] <= after
    before, seen, after = summed("interrupts"), procfs._read_host_counts("/proc"), summed("interrupts")
    # /proc/interrupts lists kinds that the total leaves out, 14 % of them on some machines; the first line is far less.
    assert 0.5 * before <= seen["host_interrupts"] <= 1.1 * after


def test_the_high_water_mark_is_seen_although_it_has_passed(start: Any, tmp_path: Path) -> None:
    target = start("import sys\nprint('ready', flush=True); sys.stdin.readline()\n"
                   "block = b'x' * (64 << 20); del block\n"
                   "status = open('/proc/self/status').read()\n"
                   "print(status.split('VmHWM:')[1].split()[0], flush=True); sys.stdin.readline()")
    sampler = ProcessSampler(target.pid, 0.05, raw=tmp_path / "raw.bin")
    sampler.start()
    target.stdin.write("go\n")
    target.stdin.flush()
    largest = int(target.stdout.readline()) * 1024
    table = sampler.stop()
    marks = table.filter(pc.equal(table["kind"].cast(pa.string()), "rss_peak"))["value"].to_pylist()
    assert marks == sorted(marks)
    assert marks[-1] == pytest.approx(largest, rel=0.02)
    assert marks[-1] - marks[0] > 60 << 20
