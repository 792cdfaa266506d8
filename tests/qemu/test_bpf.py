"""What BPF does on Debian's kernel and not everywhere: fentry, by which page faults are timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco.collectors.host import bpf_scheduler
from aaco.collectors.host.bpf_scheduler import SchedulerTracer
from aaco.core.host import Host
from benchmarks.programs import busy, settle, tell, waiting
from tests import schedstat
from tests.unit.test_bpf_scheduler import of

EDGES = 12  # switches between getrusage's account and the tracer's end, by four threads that go to sleep


def test_this_kernel_times_faults() -> None:
    assert bpf_scheduler.why_not(Host()) is None
    assert bpf_scheduler.why_no_fault_latency(Host()) is None


def test_each_fault_has_its_duration(tmp_path: Path) -> None:
    """As many as getrusage says, and none longer than the time between it and the next of its thread; switches too.

    Mutation: on_fault_exit that counts a fault that has to be tried again.
    """
    with waiting(busy()) as process:
        tracer = SchedulerTracer(process.pid, raw=tmp_path / "raw")
        tracer.start()
        voluntary, involuntary, minor, major = map(int, tell(process).split())
        table = tracer.stop()
    assert tracer.overhead["why_no_fault_latency"] is None
    assert tracer.overhead["lost"] == tracer.overhead["missed"] == 0
    counted = bpf_scheduler.totals(tmp_path / "raw").of
    assert abs(counted["switch_voluntary"][0] - voluntary) <= EDGES + 0.01 * voluntary
    assert abs(counted["switch_involuntary"][0] - involuntary) <= EDGES + 0.01 * involuntary
    faults = of(table, "fault_minor")
    assert len(faults) == pytest.approx(minor, rel=0.01, abs=4)
    assert len(of(table, "fault_major")) == pytest.approx(major, abs=2)
    assert minor > 3 * 2048
    assert pc.min(faults["dur_ns"]).as_py() > 0
    for thread in pc.unique(faults["thread_id"]).to_pylist():
        own = faults.filter(pc.equal(faults["thread_id"], thread)).sort_by("t_ns")
        begin, length = own["t_ns"].to_numpy(), own["dur_ns"].to_numpy()
        assert (begin[:-1] + length[:-1] <= begin[1:]).all()
    assert counted["fault_minor"] == (len(faults), int(np.sum(faults["dur_ns"])))


def test_waits_are_those_of_schedstat(tmp_path: Path) -> None:
    """To the ns and thread by thread, where three threads spin on two CPUs. The main thread lived before it was traced,
    so the wait in which it was met may be told in part.

    Mutation: leave the wait that is still open out of `waited`: the sum stays, but each is told late.
    """
    with waiting(busy(spin_s=1)) as process:
        tracer = SchedulerTracer(process.pid, raw=tmp_path / "raw")
        tracer.start()
        before = schedstat.waits_ns(process.pid)
        tell(process)
        settle(process.pid)  # a wait is in the kernel's account only when it is over
        truth = {thread: ns - before.get(thread, 0) for thread, ns in schedstat.waits_ns(process.pid).items()}
        table = tracer.stop()
    rows = of(table, "run_queue_wait").group_by("thread_id").aggregate([("dur_ns", "sum")])
    found = dict(zip(rows["thread_id"].to_pylist(), rows["dur_ns_sum"].to_pylist(), strict=True))
    assert tracer.overhead["unseen"] == tracer.overhead["lost"] == tracer.overhead["missed"] == 0
    assert 0 <= found.pop(process.pid, 0) <= truth.pop(process.pid)
    assert sum(truth.values()) > 0  # how much it is, is the interpreter's lock's and the machine's affair
    assert {thread: found.get(thread, 0) for thread in truth} == truth
