"""The kernel module, built for this kernel: loaded, asked, read, unloaded."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco.collectors.host import kernel_device, kernel_module
from aaco.collectors.host.kernel_device import CAPACITY, KernelModuleConnection
from aaco.collectors.host.kernel_module import EVENT, KernelModuleSampler
from aaco.core.errors import Missing, UsageError
from aaco.core.host import Host
from tests.qemu.conftest import busybox

DIED, WARNED = 1 << 7, 1 << 9  # Documentation/admin-guide/tainted-kernels.rst
COUNTERS = Path("/sys/kernel/debug/aaco/counters")
# Counts are compared with wait4(2)'s, which are of the whole life: it begins when it is told to.
BUSY = """
import mmap, sys, threading, time
def work():
    for _ in range(50):
        time.sleep(0.001)
    memory = mmap.mmap(-1, 4 << 20)
    for page in range(0, 4 << 20, 4096):
        memory[page] = 1
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[None]:
    busybox("insmod", os.environ["AACO_KMOD"], "fixture=1")
    yield
    busybox("rmmod", "aaco")
    assert not kernel_device.DEVICE.exists()
    assert not int(Path("/proc/sys/kernel/tainted").read_text()) & (DIED | WARNED)


@pytest.fixture
def connection() -> Iterator[KernelModuleConnection]:
    opened = KernelModuleConnection()
    yield opened
    opened.close()


def counters() -> dict[str, int]:
    return {name: int(count) for name, count in (line.split() for line in COUNTERS.read_text().splitlines())}


def drained(connection: KernelModuleConnection) -> np.ndarray:
    return np.frombuffer(b"".join(iter(connection.read, b"")), EVENT)


def test_the_doctor_finds_it() -> None:
    assert kernel_device.why_not() is None
    assert kernel_device.probe(Host()) == "ABI version 1, self-test passed"


def test_markers_carry_the_clock_the_thread_and_their_text(connection: KernelModuleConnection) -> None:
    connection.start(os.getpid(), 0)
    before = time.monotonic_ns()
    connection.mark("prefill")
    connection.mark("sixteen bytes ok")
    after = time.monotonic_ns()
    connection.stop()
    first, second = drained(connection)
    assert (first["label"], second["label"]) == (b"prefill", b"sixteen bytes ok")
    assert before <= first["t_ns"] <= second["t_ns"] <= after
    assert {first["process_id"], first["thread_id"]} == {os.getpid()}
    with pytest.raises(UsageError, match="longer than 16 bytes"):
        connection.mark("seventeen bytes !")


def test_samples_hold_what_wait4_says(tmp_path: Path) -> None:
    """Mutation: count() in aaco.c without the signal struct's counts loses all that the ended threads did."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    sampler = KernelModuleSampler(process.pid, 0.02, raw=tmp_path / "raw")
    before = usage(process.pid)
    sampler.start()
    process.stdin.write("\n")
    process.stdin.close()
    _, status, whole = os.wait4(process.pid, 0)
    assert status == 0
    process.returncode = 0
    table = sampler.stop()
    voluntary, involuntary, faults = (total(table, kind) for kind in (
        "switch_voluntary", "switch_involuntary", "fault_minor"))
    assert voluntary == pytest.approx(whole.ru_nvcsw - before[0], abs=2)
    assert involuntary == pytest.approx(whole.ru_nivcsw - before[1], abs=3)  # its last switch is after wait4's account
    assert faults == whole.ru_minflt - before[2] > 3 * 1024
    assert sampler.overhead["lost"] == 0
    times = table.filter(pc.field("kind") == "sample")["t_ns"].to_numpy()
    assert (np.diff(times) > 0).all()
    assert len(times) == sampler.overhead["samples"] > 3


def usage(pid: int) -> tuple[int, int, int]:
    """Voluntary and involuntary switches of the only thread, and minor faults."""
    status = Path(f"/proc/{pid}/status").read_text()
    voluntary, involuntary = (int(count) for count in re.findall(r"voluntary_ctxt_switches:\s+(\d+)", status))
    return voluntary, involuntary, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def total(table: object, kind: str) -> float:
    return pc.sum(table.filter(pc.field("kind") == kind)["value"]).as_py()  # type: ignore[attr-defined]


def test_a_session_ends_with_its_process(connection: KernelModuleConnection) -> None:
    """Mutation: sample_and_go_on() that never calls end(): the read never returns."""
    process = subprocess.Popen(["sleep", "60"])
    connection.start(process.pid, 10)
    process.send_signal(signal.SIGKILL)
    process.wait()
    events = drained(connection)
    assert set(events["type"]) == {kind for kind in kernel_module.KINDS if 0x100 <= kind < 0x200}
    assert not connection.stats().running


def test_every_event_is_read_or_counted_as_lost(connection: KernelModuleConnection) -> None:
    """Mutation: queue_put() that forgets lost_since after a refusal."""
    connection.start(os.getpid(), 0, capacity=64)
    connection.fence(100)
    first = np.frombuffer(connection.read(), EVENT)
    connection.mark("after")
    connection.stop()
    last = drained(connection)
    stats = connection.stats()
    assert (len(first), len(last)) == (64, 1)
    assert list(last["lost_before"]) == [200 - 64]
    assert (stats.emitted, stats.lost, stats.queued) == (201, 136, 0)


def test_counters_in_debugfs(connection: KernelModuleConnection) -> None:
    before = counters()
    connection.start(os.getpid(), 0)
    connection.mark("one")
    connection.fence(3)
    connection.stop()
    grown = {name: count - before[name] for name, count in counters().items()}
    assert grown == {"sessions": 1, "events": 7, "lost": 0, "samples": 0, "markers": 1, "fences": 3}


@pytest.mark.parametrize(("pid", "period_ms", "capacity", "error"), [
    (1 << 22, 10, CAPACITY, ProcessLookupError), (1, 60_001, CAPACITY, OSError), (1, 10, 63, OSError),
    (1, 10, 65537, OSError)])
def test_what_it_refuses(connection: KernelModuleConnection, pid: int, period_ms: int, capacity: int,
                         error: type[OSError]) -> None:
    with pytest.raises(error):
        connection.start(pid, period_ms, capacity)
    connection.start(1, 10)
    with pytest.raises(OSError, match="busy"):
        connection.start(1, 10)


def test_another_users_process_is_not_shown() -> None:
    """Mutation: target_of() that lets everybody."""
    kernel_device.DEVICE.chmod(0o666)
    assert [as_nobody(1), as_nobody(None)] == [errno.EPERM, 0]


def as_nobody(pid: int | None) -> int:
    """What a child that is nobody gets for watching a process; None: itself."""
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            KernelModuleConnection().start(pid or os.getpid(), 10)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_unloading_waits_for_the_last_session(connection: KernelModuleConnection) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        busybox("rmmod", "aaco")


def test_a_killed_reader_leaves_nothing_behind() -> None:
    code = ("import os, time; from aaco.collectors.host.kernel_device import KernelModuleConnection; "
            "c = KernelModuleConnection(); c.start(os.getpid(), 1); print('on', flush=True); time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.wait()
    assert Path("/sys/module/aaco/refcnt").read_text() == "0\n"


def test_a_sampler_of_no_process(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="No such process"):
        KernelModuleSampler(1 << 22, raw=tmp_path / "raw").start()
