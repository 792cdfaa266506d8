"""The laboratory where it may have everything: control groups of version 2 alone, whose partitions it may make."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aaco.laboratory import lab
from aaco.laboratory.knobs.knob import Want
from benchmarks import laboratory
from tests.qemu.conftest import busybox

TOP = Path("/sys/fs/cgroup")
INSIDE = """
import json, os
from pathlib import Path
top = Path("/sys/fs/cgroup")
group = top / Path("/proc/self/cgroup").read_text().strip().partition("::/")[2]
read = lambda path: path.read_text().strip()
print(json.dumps({
    "partition": read(group / "cpuset.cpus.partition"), "own": read(group / "cpuset.cpus.effective"),
    "others": read(top / "cpuset.cpus.effective"), "affinity": sorted(os.sched_getaffinity(0)),
    "weight": read(group / "cpu.weight"), "limits": [read(group / name) for name in (
        "cpu.max", "memory.high", "memory.max", "io.max") if (group / name).exists()]}))
"""


def machine() -> dict[str, str]:
    """Everything that a laboratory could change, and which CPUs are everybody's."""
    return laboratory.readings(-1) | {
        "effective": (TOP / "cpuset.cpus.effective").read_text(),
        "groups": " ".join(sorted(path.name for path in TOP.iterdir() if path.is_dir()))}


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = machine()
    yield
    assert machine() == before


def test_the_command_has_its_cpu_alone_and_its_limits(tmp_path: Path) -> None:
    """io.max needs a block device, which a file may be. Mutation: a Partition that wishes "member"."""
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    busybox("modprobe", "loop")
    busybox("losetup", "/dev/loop0", tmp_path / "disk")
    done = subprocess.run(
        [sys.executable, "-m", "aaco", "lab", "run", "--level", "strict", "--cpus", "1", "--cpu-max", "90",
         "--memory-high", "300M", "--memory-max", "400M", "--io-max", "7:0 rbps=1048576", "--",
         sys.executable, "-c", INSIDE], capture_output=True, text=True, check=True)
    busybox("losetup", "-d", "/dev/loop0")
    assert json.loads(done.stdout) == {
        "partition": "isolated", "own": "1", "others": "0", "affinity": [1], "weight": "10000",
        "limits": ["90000 100000", str(300 << 20), str(400 << 20), "7:0 rbps=1048576 wbps=max riops=max wiops=max"]}
    *knobs, level = done.stderr.splitlines()
    held = {name: held for name, held, *_ in map(str.split, knobs)}
    assert {name for name, each in held.items() if each == "yes"} >= {
        "controllers", "group", "group_cpus", "membership", "cpu_weight", "partition", "interrupts", "cpu_max",
        "memory_high", "memory_max", "io_max"}
    # A virtual machine does not scale its frequency, without which no machine is strict.
    assert {name for name, each in held.items() if each == "no"} == {"governor", "turbo", "energy_preference"}
    assert level == "level: strict asked, standard achieved"


@pytest.mark.parametrize("noted", [1, 4, 7])
def test_killed_amid_its_changes_it_gives_the_cpu_back(tmp_path: Path, noted: int) -> None:
    """Killed when so many changes are in the journal; with 7, the partition is made.

    Mutation: a watchdog that undoes nothing leaves the group, and with it the partition.
    """
    child = os.fork()
    if not child:
        with lab.quiet("strict", Want((1,)), tmp_path):
            time.sleep(600)
    until(lambda: changes(tmp_path) >= noted)
    if noted == 7:
        assert (TOP / "cpuset.cpus.effective").read_text() == "0\n"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: not list(tmp_path.iterdir()))


def changes(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") - 1 for path in folder.glob("*.journal"))


def until(holds: Callable[[], bool]) -> None:
    """Wait for it; the suite's own limit ends what never comes."""
    while not holds():
        time.sleep(0.005)
