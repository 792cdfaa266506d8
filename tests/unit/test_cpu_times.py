"""The account of a process's threads over a phase, against what this process is made to do."""

import threading
import time

import pytest

from aaco.runner import cpu_times
from aaco.runner.cpu_times import CpuSnapshot

ONE_MS = 1_000_000


def snapshot(t_ns, by_thread, busy=0, stolen=0, throttled=None, cpus=2):
    return CpuSnapshot(t_ns, by_thread, cpus, busy, stolen, throttled)


def test_amounts_are_of_the_time_between_the_looks():
    main = threading.main_thread().native_id
    before = snapshot(1000, {main: (100, 10), 1: (50, 5)}, busy=1000, stolen=7, throttled=20)
    after = snapshot(2000, {main: (700, 60), 1: (450, 25), 2: (30, 4)}, busy=3000, stolen=10, throttled=70)
    assert cpu_times.between(before, after) == {
        "span_ns": 1000, "main_ran_ns": 600, "main_waited_ns": 50, "threads": [400, 30], "pool_waited_ns": 24,
        "cpus": 2, "others_busy_ns": 970, "stolen_ns": 3, "throttled_ns": 50}


def test_a_kernel_without_an_account_gives_none():
    main = threading.main_thread().native_id
    assert cpu_times.between(snapshot(0, {}), snapshot(1, {})) is None
    assert cpu_times.between(snapshot(0, {main: (0, 0)}), snapshot(1, {main: (0, 0)})) is None


def test_what_this_process_runs_is_in_the_account():
    before, began = cpu_times.look(), time.thread_time_ns()
    while time.thread_time_ns() - began < 20 * ONE_MS:
        pass
    spent = cpu_times.between(before, cpu_times.look())
    if spent is None:
        pytest.skip("this kernel keeps no account of threads (CONFIG_SCHED_INFO)")
    assert 10 * ONE_MS <= spent["main_ran_ns"] <= spent["span_ns"] + 10 * ONE_MS
    assert spent["main_ran_ns"] + spent["main_waited_ns"] <= spent["span_ns"] + 20 * ONE_MS  # both are noted at ticks


@pytest.mark.parametrize(("text", "ns"), [
    ("nr_periods 3\nnr_throttled 2\nthrottled_time 1500\n", [1500]),
    ("usage_usec 9\nthrottled_usec 12\n", [12_000]), ("usage_usec 9\n", []), (None, [])])
def test_a_group_of_either_version_says_what_its_quota_took(tmp_path, text, ns):
    path = tmp_path / "cpu.stat"
    if text is not None:
        path.write_text(text)
    assert cpu_times._read_group(path) == ns


def test_only_the_cpus_that_it_may_use_count_as_busy(tmp_path, monkeypatch):
    path = tmp_path / "stat"
    path.write_text("cpu 9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 100 100 4 5 6 0 0\ncpu1 50 0 0 0 0 0 0 7 0 0\nintr 1\n")
    monkeypatch.setattr(cpu_times, "STAT", path)
    tick = cpu_times.TICK_NS
    assert cpu_times._read_cpus({0}) == (15 * tick, 6 * tick)
    assert cpu_times._read_cpus({0, 1}) == (65 * tick, 13 * tick)
