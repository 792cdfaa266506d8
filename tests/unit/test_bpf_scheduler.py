"""The BPF tracer against other accounts of the same truth: getrusage, schedstat, a known hog, a lock that is held."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.collectors.host import bpf, bpf_scheduler
from aaco.collectors.host.bpf_ring import BpfRing
from aaco.collectors.host.bpf_scheduler import SchedulerTotals, SchedulerTracer
from aaco.core.errors import BadCapture, Exit, Missing, StorageError
from aaco.core.host import Host
from aaco.core.readings import Absent
from benchmarks.programs import SETTLE, busy, settle, tell
from tests import schedstat
from tests.fakes import hosts

live = pytest.mark.skipif(bool(reason := bpf_scheduler.why_not(Host())), reason=reason or "BPF loads here")
SPINNING = """
import os, sys, threading, time
os.sched_setaffinity(0, {{{cpu}}})
print("ready", flush=True); sys.stdin.readline()
def spin():
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        pass
    spun.release()
    gate.wait()
spun, gate = threading.Semaphore(0), threading.Event()
threads = [threading.Thread(target=spin, daemon=True) for _ in range({threads})]
for thread in threads:
    thread.start()
for thread in threads:
    spun.acquire()
print("spun", flush=True); sys.stdin.readline()
"""
HOG = """
import ctypes, os, time
os.sched_setaffinity(0, {{{cpu}}})
ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
print("ready", flush=True)
while True:
    pass
"""
# In a burst well under the 0.95 s that the kernel leaves to real-time threads; one above the other, so that nothing
# else can come on.
IN_BURST = """
import os, sys, time
os.sched_setaffinity(0, {{{cpu}}})
print("ready", flush=True); sys.stdin.readline()
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
end = time.monotonic() + 0.3
while time.monotonic() < end:
    pass
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
print("spun", flush=True); sys.stdin.readline()
"""
BURSTING_HOG = """
import ctypes, os, sys, time
os.sched_setaffinity(0, {{{cpu}}})
ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
print("ready", flush=True)
while True:
    end = time.monotonic() + 0.001
    while time.monotonic() < end:
        pass
    time.sleep(0.01)
"""
LOCKED = SETTLE + """
import sys, threading
lock, held, times = threading.Lock(), threading.Event(), []
def hold():
    with lock:
        held.set()
        settle("self", threading.get_native_id())
        times.append(time.monotonic_ns())
        time.sleep(0.2)
        times.append(time.monotonic_ns())
print("ready", flush=True); sys.stdin.readline()
holder = threading.Thread(target=hold)
holder.start()
held.wait()
with lock:
    pass
print(threading.main_thread().native_id, holder.native_id, *times, flush=True)
sys.stdin.readline()
"""
PING_PONG = """
import os, sys, threading
def answer(take, give):
    for _ in range(10000):
        os.read(take, 1)
        os.write(give, b"x")
(a, b), (c, d) = os.pipe(), os.pipe()
print("ready", flush=True)
for _ in sys.stdin:
    other = threading.Thread(target=answer, args=(a, d))
    os.write(d, b"x")
    other.start()
    answer(c, b)
    other.join()
    os.read(c, 1)
    print("played", flush=True)
"""


def filesystem(path: Path) -> str:
    return subprocess.run(["stat", "-f", "-c", "%T", path], check=True, capture_output=True, text=True).stdout.strip()


def of(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table["kind"].cast(pa.string()), kind))


THREADS = 4  # of a busy program; all of them sleep when it has told


def _switches(pid: int) -> tuple[int, int]:
    """The kernel's count of voluntary and of involuntary switches of all threads that live."""
    lines = [line.split() for task in Path(f"/proc/{pid}/task").iterdir()
             for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line]
    return (sum(int(count) for name, count in lines if name.startswith("voluntary")),
            sum(int(count) for name, count in lines if name.startswith("nonvoluntary")))


@live
def test_counts_are_those_of_getrusage(start: Any, tmp_path: Path) -> None:
    """Mutation: count a switch as voluntary whenever it was not a preemption (`if (preempt)`)."""
    process = start(busy())
    before = _switches(process.pid)
    tracer = SchedulerTracer(process.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    voluntary, involuntary, minor, major = map(int, tell(process).split())
    table = tracer.stop()
    outer = [after - earlier for earlier, after in zip(before, _switches(process.pid), strict=True)]
    assert tracer.overhead["lost"] == tracer.overhead["missed"] == 0
    totals = bpf_scheduler.totals(tracer.raw)
    for kind, least, most in (("switch_voluntary", voluntary, outer[0]), ("switch_involuntary", involuntary, outer[1])):
        assert least <= totals.of[kind][0] <= most
        assert least - THREADS - totals.unseen <= len(of(table, kind)) <= most  # their last one has no end yet
    assert (pc.sum(of(table, "fault_minor")["value"]).as_py() or 0) == pytest.approx(minor, abs=4 + 0.01 * minor)
    assert (pc.sum(of(table, "fault_major")["value"]).as_py() or 0) == major


@live
def test_run_queue_wait_is_that_of_schedstat(start: Any, tmp_path: Path) -> None:
    """Two spinning threads and a hog share one CPU. To the ns: it is the kernel's own account, thread by thread.

    Mutation: leave the wait that is still open out of `waited`: the sum stays, but each is told late.
    """
    cpu = min(os.sched_getaffinity(0))
    target = start(SPINNING.format(cpu=cpu, seconds=0.6, threads=2))
    start(HOG.format(cpu=cpu, name="hog"))
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    before = schedstat.waits_ns(target.pid)
    assert tell(target) == "spun\n"
    settle(target.pid)  # a wait is in the kernel's account only when it is over
    truth = {thread: ns - before.get(thread, 0) for thread, ns in schedstat.waits_ns(target.pid).items()}
    table = tracer.stop()
    rows = of(table, "run_queue_wait").group_by("thread_id").aggregate([("dur_ns", "sum")])
    found = dict(zip(rows["thread_id"].to_pylist(), rows["dur_ns_sum"].to_pylist(), strict=True))
    assert tracer.overhead["lost"] == 0
    assert {thread: found.get(thread, 0) for thread in truth} == truth
    waited = sum(found.values())
    assert waited > 0
    totals = bpf_scheduler.totals(tracer.raw)
    assert totals.unseen < 0.1 * totals.of["run_queue_wait"][0]
    assert totals.of["run_queue_wait"] == (len(of(table, "run_queue_wait")), waited)
    assert sum(totals.histogram) == totals.of["run_queue_wait"][0]
    exact = np.bincount(np.log2(of(table, "run_queue_wait")["dur_ns"].to_numpy()).astype(int), minlength=64)
    assert list(totals.histogram) == exact.tolist()


@live
def test_who_preempted_is_known_by_number_and_by_name(start: Any, tmp_path: Path) -> None:
    """The name is hostile, and stays data. Mutation: remember who left instead of who came on."""
    cpu = min(os.sched_getaffinity(0))
    try:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        pytest.skip("needs CAP_SYS_NICE")
    target = start(IN_BURST.format(cpu=cpu))
    hog = start(BURSTING_HOG.format(cpu=cpu, name=r"\x1b]0;\n<b>"))
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    tell(target)
    rows = of(tracer.stop(), "switch_involuntary")
    by_hog = rows.filter(pc.equal(rows["other_process"], hog.pid))
    assert len(by_hog) >= 10
    assert set(by_hog["detail"].to_pylist()) == {"\x1b]0;\n<b>"}
    assert set(by_hog["cpu"].to_pylist()) == {cpu}


@live
def test_a_wait_for_a_lock_is_a_futex_wait_as_long_as_it_was(start: Any, tmp_path: Path) -> None:
    """Mutation: take every sleep for a futex's; or none."""
    target = start(LOCKED)
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    waiter, holder, since, until = map(int, tell(target).split())  # in which the waiter surely slept
    table = tracer.stop()
    waits = of(table, "futex_wait")
    longest = max(waits.to_pylist(), key=lambda row: row["dur_ns"])
    assert longest["thread_id"] == waiter
    assert longest["t_ns"] <= since < until <= longest["t_ns"] + longest["dur_ns"]
    slept = of(table, "switch_voluntary").filter(pc.equal(of(table, "switch_voluntary")["thread_id"], holder))
    assert "sleep" in {row["detail"] for row in slept.to_pylist() if row["dur_ns"] >= 200_000_000}


@live
def test_children_are_traced_and_strangers_are_not(start: Any, tmp_path: Path) -> None:
    """Mutation: leave on_fork out; or trace everybody."""
    target = start("import subprocess, sys; print('ready', flush=True); sys.stdin.readline()\n"
                   "child = subprocess.Popen(['sh', '-c', 'for i in 1 2 3; do sleep 0.01; done'])\n"
                   "child.wait(); print(child.pid, flush=True); sys.stdin.readline()")
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    child = int(tell(target))
    seen = set(tracer.stop()["process_id"].to_pylist())
    assert {target.pid, child} < seen
    assert len(seen) == 5  # and the three sleeps
    assert not seen & {os.getpid(), 0}


@live
def test_a_spinning_thread_pays_for_its_timer(start: Any, tmp_path: Path) -> None:
    """Mutation: attach local_timer_entry only."""
    target = start(IN_BURST.format(cpu=min(os.sched_getaffinity(0))))
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    tell(target)
    timers = of(tracer.stop(), "timer")
    assert len(timers) >= 10
    assert set(timers["detail"].to_pylist()) == {"local_timer"}
    ends = pc.add(timers["t_ns"], timers["dur_ns"])
    assert 0 < pc.sum(timers["dur_ns"]).as_py() < pc.max(ends).as_py() - pc.min(timers["t_ns"]).as_py()


@live
def test_waiting_for_a_disk_is_block_io(start: Any, tmp_path: Path) -> None:
    """Mutation: test in_iowait after the futex's number, with TASK_UNINTERRUPTIBLE first."""
    if filesystem(tmp_path) in ("tmpfs", "ramfs", "overlay"):
        pytest.skip(f"{tmp_path} is on no disk")
    target = start(f"""
import os, sys
handle = os.open({str(tmp_path / 'data')!r}, os.O_RDWR | os.O_CREAT)
os.write(handle, bytes(4 << 20)); os.fsync(handle)
print("ready", flush=True); sys.stdin.readline()
os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
os.pread(handle, 4 << 20, 0)
print("read", flush=True); sys.stdin.readline()""")
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin")
    tracer.start()
    tell(target)
    table = tracer.stop()
    assert len(of(table, "block_io")) >= 1
    assert "block_io" in of(table, "switch_voluntary")["detail"].to_pylist()


@live
def test_what_finds_no_room_is_counted_to_the_last(start: Any, tmp_path: Path) -> None:
    """A ring of 900 records that is read once amid it. Mutation: clear `untold` without telling it."""
    target = start(PING_PONG)
    tracer = SchedulerTracer(target.pid, raw=tmp_path / "raw.bin", ring_bytes=1 << 16, period_s=3600)
    tracer.start()
    tell(target)
    tracer._pump._move()
    tell(target)
    table = tracer.stop()
    weight, totals = tracer.overhead, bpf_scheduler.totals(tracer.raw)
    assert weight["lost"] > 1000 and weight["records"] > 1000
    assert weight["records"] == weight["emitted"] == totals.emitted
    told = pc.sum(table["lost_before"]).as_py()
    assert 0 < told <= weight["lost"] == totals.lost
    switched = totals.of["switch_voluntary"][0] + totals.of["switch_involuntary"][0]
    kept = len(of(table, "switch_voluntary")) + len(of(table, "switch_involuntary"))
    assert kept < switched <= kept + weight["lost"] + 8  # 8: threads off the CPU when it ended


@live
def test_a_killed_tracer_leaves_what_it_recorded(start: Any, tmp_path: Path) -> None:
    """Mutation: open the raw file buffered."""
    target, raw = start(PING_PONG), tmp_path / "raw.bin"
    tracer = start(f"""
import sys
from pathlib import Path
from aaco.collectors.host.bpf_scheduler import SchedulerTracer
SchedulerTracer({target.pid}, raw=Path({str(raw)!r})).start()
print("ready", flush=True); sys.stdin.readline()""")
    tell(target)
    while raw.stat().st_size < 2000 * bpf_scheduler.RECORD.itemsize:  # the reader is on its way
        time.sleep(0.01)
    tracer.kill()
    tracer.wait()
    assert len(of(bpf_scheduler.parse(raw), "switch_voluntary")) > 1000


NOBODY = ("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups")
TWO_CAPABILITIES = ("--inh-caps", "+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon")
TRACES_ITSELF = """
import os, sys, time
from pathlib import Path
from aaco.collectors.host.bpf_scheduler import SchedulerTracer
from aaco.core.errors import AacoError
tracer = SchedulerTracer(os.getpid(), raw=Path(sys.argv[1]))
try:
    tracer.start()
except AacoError as error:
    print(error)
    sys.exit(error.exit_code)
for _ in range(5):
    time.sleep(0.01)
print(tracer.stop()["kind"].to_pylist().count("switch_voluntary"))
"""


@pytest.fixture
def as_nobody() -> Iterator[Any]:
    """Runs a program as nobody, with these capabilities and no others, and a file that it may write."""
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv")
    path = os.pathsep.join(str(Path(folder).resolve()) for folder in sys.path if folder)

    def program(code: str, *capabilities: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*NOBODY, *capabilities, sys.executable, "-c", code, f"{folder}/raw.bin"],
                              capture_output=True, text=True, cwd="/", env={"PYTHONPATH": path})

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        if program("import aaco.collectors.host.bpf_scheduler").returncode:
            pytest.skip("nobody may not read this Python, or this tree")
        yield program


def test_nobody_is_told_what_is_missing(as_nobody: Any) -> None:
    answer = as_nobody(TRACES_ITSELF)
    assert answer.returncode == Exit.MISSING, answer.stderr
    assert "this process has neither CAP_BPF with CAP_PERFMON nor CAP_SYS_ADMIN" in answer.stdout
    assert "sudo setcap cap_bpf,cap_perfmon+ep" in answer.stdout


@live
def test_two_capabilities_are_enough(as_nobody: Any) -> None:
    """Mutation: read the ring's producer page through a writable map, which needs more."""
    answer = as_nobody(TRACES_ITSELF, *TWO_CAPABILITIES)
    assert answer.returncode == 0, answer.stderr + answer.stdout
    assert int(answer.stdout) >= 5


@live
def test_weighing_takes_one_more(as_nobody: Any) -> None:
    """Mutation: let the kernel's error through as it is."""
    answer = as_nobody(TRACES_ITSELF.replace("raw=Path(sys.argv[1])", "raw=Path(sys.argv[1]), weigh=True"),
                       *TWO_CAPABILITIES)
    assert answer.returncode == Exit.MISSING, answer.stderr
    assert "it takes CAP_SYS_ADMIN" in answer.stdout


@pytest.mark.parametrize(("number", "said", "fix"), [
    (errno.EACCES, "the verifier of kernel", "report it"),
    (errno.EPERM, "the kernel is locked down", "on the host itself"),
    (errno.ENOSYS, "no bpf(2) on", "Linux 6.1"),
    (errno.EINVAL, "lacks a type, an event or a kind of program", "Linux 6.1")])
def test_a_refusal_says_why(monkeypatch: pytest.MonkeyPatch, number: int, said: str, fix: str) -> None:
    monkeypatch.setattr(bpf, "possible", lambda host: "possible")
    refused = bpf.refusal("BPF feature x", OSError(number, os.strerror(number)))
    assert isinstance(refused, Missing)
    assert said in refused.what
    assert fix in refused.fix


def test_a_process_in_a_namespace_of_its_own_is_told_so(tmp_path: Path) -> None:
    """Mutation: trace all the same: the kernel's numbers are others, and nothing would be seen."""
    hosts.plant(tmp_path, {"proc/self/status": f"CapEff:\t{1 << 21:016x}\n", "sys/kernel/btf/vmlinux": ""})
    assert bpf.possible(Host(tmp_path))
    (tmp_path / "proc/self/ns").mkdir()
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    with pytest.raises(Absent, match="PID namespace of its own"):
        bpf.possible(Host(tmp_path))


def recording(path: Path, *events: dict[str, Any]) -> Path:
    """A raw file with these records, and totals, as the tracer writes it."""
    records = np.zeros(len(events), bpf_scheduler.RECORD)
    for place, event in enumerate(events):
        for name, value in ({"length": 64, "process": 7, "thread": 8, "t_ns": 1000} | event).items():
            records[place][name] = value
    path.write_bytes(bpf_scheduler._FORMAT.header + records.tobytes() + bpf_scheduler._pack_totals(TOTALS))
    return path


TOTALS = SchedulerTotals(3, 2, 1, dict.fromkeys(bpf_scheduler.KINDS[1:], (1, 2)), tuple(range(64)))
EVENTS = (
    {"kind": 0, "reason": 1, "dur_ns": 500, "wait_ns": 500, "other": 9, "value": 3, "cpu": 2, "name": b"h\xffog\0junk"},
    {"kind": 0, "reason": 2, "dur_ns": 400, "wait_ns": 100, "other": 9, "value": 1, "lost": 5},
    {"kind": 0, "reason": 0, "wait_ns": 10}, {"kind": 4, "value": 1}, {"kind": 5, "value": 12, "lost": 2},
    {"kind": 6, "value": 1, "dur_ns": 300}, {"kind": 7, "value": 36, "dur_ns": 4, "name": b"virtio"},
    {"kind": 8, "value": 1, "dur_ns": 5}, {"kind": 8, "value": 77, "dur_ns": 5}, {"kind": 9, "dur_ns": 6},
)


def test_records_become_rows(tmp_path: Path) -> None:
    """Mutation: let a futex wait last until the thread runs again; tell a loss in each row of its record."""
    raw = recording(tmp_path / "raw.bin", *EVENTS)
    shown = ("kind", "t_ns", "dur_ns", "value", "cpu", "other_process", "lost_before", "detail")
    rows = [tuple(map(row.get, shown)) for row in bpf_scheduler.parse(raw).to_pylist()]
    assert sorted(rows, key=str) == sorted([
        ("switch_involuntary", 500, 500, None, 3, 9, None, "h\ufffdog"),
        ("run_queue_wait", 500, 500, None, 2, None, None, None),
        ("switch_voluntary", 600, 400, None, 1, 9, 5, "futex"), ("futex_wait", 600, 300, None, 0, None, None, None),
        ("run_queue_wait", 900, 100, None, 0, None, None, None), ("run_queue_wait", 990, 10, None, 0, None, None, None),
        ("migration", 1000, None, 1.0, None, None, None, None), ("fault_minor", 1000, None, 12.0, 0, None, 2, None),
        ("fault_major", 700, 300, 1.0, 0, None, None, None), ("irq", 996, 4, None, 0, None, None, "virtio"),
        ("softirq", 995, 5, None, 0, None, None, "TIMER"), ("softirq", 995, 5, None, 0, None, None, None),
        ("timer", 994, 6, None, 0, None, None, "local_timer")], key=str)
    assert bpf_scheduler.totals(raw) == TOTALS


def test_a_file_cut_anywhere_parses_up_to_there_or_is_bad(tmp_path: Path) -> None:
    raw = recording(tmp_path / "raw.bin", *EVENTS)
    whole, size = raw.read_bytes(), len(bpf_scheduler._FORMAT.header)
    rows = bpf_scheduler.parse(raw).num_rows
    for cut in (*range(size + 100), *range(size + 100, len(whole), 101)):
        raw.write_bytes(whole[:cut])
        if cut < size:
            with pytest.raises(BadCapture, match="not a recording"):
                bpf_scheduler.parse(raw)
        else:
            assert bpf_scheduler.parse(raw).num_rows <= rows
            with pytest.raises(BadCapture, match="ends before its first totals"):
                bpf_scheduler.totals(raw)


@pytest.mark.parametrize("damage", [{"kind": 99}, {"length": 63}, {"dur_ns": 1001}, {"wait_ns": -1}, {"reason": 9},
                                    {"t_ns": -1}, {"kind": 200, "value": 99}])
def test_a_damaged_record_is_refused(tmp_path: Path, damage: dict[str, int]) -> None:
    """Mutation: leave any of the checks in _is_sound out."""
    with pytest.raises(BadCapture, match="holds damaged records"):
        bpf_scheduler.parse(recording(tmp_path / "raw.bin", *EVENTS, damage))


@given(st.integers(0), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_parses_or_is_bad(at: int, damage: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        raw = recording(Path(folder) / "raw.bin", *EVENTS)
        content = bytearray(raw.read_bytes())
        begin = at % len(content)
        content[begin:begin + len(damage)] = damage
        raw.write_bytes(content)
        for read in (bpf_scheduler.parse, bpf_scheduler.totals):
            with contextlib.suppress(BadCapture):
                read(raw)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadCapture, match="No such file"):
        bpf_scheduler.parse(tmp_path / "raw.bin")


def test_a_ring_is_read_up_to_the_first_busy_record(tmp_path: Path) -> None:
    """Mutation: leave busy records out, and read those behind them; give room back before it was written."""
    page, size = mmap.PAGESIZE, 1 << 16
    handle = os.memfd_create("ring")
    os.ftruncate(handle, 2 * page + 2 * size)
    memory = mmap.mmap(handle, 0)
    records = np.frombuffer(memory, bpf_scheduler.RECORD, 4, 2 * page)
    records["length"], records["t_ns"] = (64, 64, 64 | 1 << 31, 64), (1, 2, 3, 4)
    memory[page:page + 8] = struct.pack("<Q", 4 * 72)
    ring = BpfRing(cast(bpf.Feature, SimpleNamespace(name="x", maps={"ring": handle})), size)
    with (tmp_path / "raw.bin").open("wb", buffering=0) as file:
        ring.drain(file)
        assert (ring.consumed, struct.unpack_from("<Q", memory)[0]) == (2, 2 * 72)
        records["length"] = 64
        ring.drain(file)
        with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space"):
            memory[page:page + 8] = struct.pack("<Q", 6 * 72)
            ring.drain(full)
    assert (ring.consumed, struct.unpack_from("<Q", memory)[0]) == (4, 4 * 72)
    told = np.fromfile(tmp_path / "raw.bin", bpf_scheduler.RECORD)
    assert told["t_ns"].tolist() == [1, 2, 3, 4]
    ring.close()
    os.close(handle)


@live
def test_a_full_disk_is_said_and_nothing_stays_in_the_kernel(start: Any) -> None:
    """Mutation: swallow the refusal of the disk."""
    tracer = SchedulerTracer(os.getpid(), raw=Path("/dev/full"))
    with pytest.raises(StorageError, match="No space left"):
        tracer.start()
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            assert "bpf" not in str(handle.readlink())
