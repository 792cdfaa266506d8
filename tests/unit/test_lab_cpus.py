"""Policies of CPUs on a copy of a server with two sockets and SMT, and bursts against a simulated clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from aaco.core.errors import UsageError
from aaco.core.host import Host
from aaco.laboratory import topology
from aaco.laboratory.bursts import BURST_S, PAUSE_S, STEP_S, Bursts
from aaco.laboratory.knobs import cgroup
from aaco.laboratory.knobs.process import FAIR, FIFO
from tests.fakes import hosts


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """CPUs 0-7: sockets and nodes 0-3 and 4-7, cores of two neighbours each, a GPU at the second node."""
    root = hosts.server(tmp_path, cores=4)
    return Host(hosts.plant(root, {"sys/bus/pci/devices/0000:c1:00.0/class": "0x120000\n",
                                   "sys/bus/pci/devices/0000:c1:00.0/vendor": "0x1002\n",
                                   "sys/bus/pci/devices/0000:c1:00.0/local_cpulist": "4-7\n"}))


@pytest.mark.parametrize(("policy", "count", "chosen"), [
    ("compact", None, (2, 3, 4, 5, 6, 7)), ("compact", 2, (2, 3)), ("compact", 4, (2, 3, 4, 5)),
    ("compact", 8, (0, 1, 2, 3, 4, 5, 6, 7)), ("spread", 2, (2, 4)), ("spread", 4, (0, 2, 4, 6)),
    ("numa-local", None, (4, 5, 6, 7)), ("numa-local", 2, (4, 5)), ("socket-local", 4, (4, 5, 6, 7)),
    ("no-smt", None, (2, 4, 6)), ("no-smt", 4, (0, 2, 4, 6)), ("pairs", 3, (2, 3, 4, 5)),
])
def test_a_policy_chooses(host: Host, policy: str, count: int | None, chosen: tuple[int, ...]) -> None:
    """Mutations: second threads first in spread; the first core not left to the rest; a pair cut in half."""
    found = topology.cpus(host, set(range(8)))
    assert topology.choose(found, policy, count, topology.gpu_cpus(host)) == chosen


def test_near_the_gpu_beats_the_larger_part(host: Host) -> None:
    found = topology.cpus(host, set(range(7)))
    assert topology.choose(found, "numa-local", 3, {4, 5, 6}) == (4, 5, 6)
    assert topology.choose(found, "numa-local", 3, set()) == (0, 2, 3)


def test_more_than_a_policy_offers_is_refused(host: Host) -> None:
    found = topology.cpus(host, set(range(8)))
    with pytest.raises(UsageError, match="--policy no-smt offers 4 CPUs here, not 5"):
        topology.choose(found, "no-smt", 5)


def test_one_core_is_all_there_is() -> None:
    only = [topology.Cpu(0, 0, 0, thread, thread) for thread in range(2)]
    assert topology.choose(only) == (0, 1)


class Simulated(Bursts):
    """Bursts over a group of one thread that runs by a pattern, in steps of simulated time."""

    def __init__(self) -> None:
        super().__init__([], (0,))
        self.share, self.policies = 1.0, list[str]()

    def _most_run_s(self, threads: list[str]) -> float:
        return self.share * STEP_S

    def _set_policy(self, threads: list[str], policy: str) -> None:
        self.policies.append(policy)


def longest(policies: list[str], policy: str) -> float:
    """Seconds of the longest stretch."""
    text = "".join("x" if each == policy else " " for each in policies)
    return max(map(len, text.split()), default=0) * STEP_S


def test_what_never_sleeps_is_real_time_for_less_than_the_limit_at_a_stretch() -> None:
    """Mutations: no pause; a pause that ends at once."""
    simulated = Simulated()
    for _ in range(500):
        simulated.step(STEP_S)
    assert longest(simulated.policies, FIFO) <= BURST_S + STEP_S < 0.9
    shortest = min(map(len, "".join(" " if each == FIFO else "x" for each in simulated.policies).split()))
    assert shortest * STEP_S >= PAUSE_S - STEP_S
    assert simulated.policies.count(FIFO) / 500 > 0.8


def test_what_rests_by_itself_is_never_taken_out() -> None:
    simulated = Simulated()
    for step in range(500):
        simulated.share = 0.0 if step % 18 >= 15 else 1.0  # 0.6 s of work, 0.12 s of sleep
        simulated.step(STEP_S)
    assert FAIR not in simulated.policies
    assert simulated.pauses == 0


def test_threads_of_a_group_that_is_gone_are_none(tmp_path: Path) -> None:
    assert cgroup.threads([tmp_path / "gone"]) == []
    cgroup.make_fair([tmp_path / "gone"])
