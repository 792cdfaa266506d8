"""The laboratory's control group: made, set, read back, and removed; version 2 first, version 1 if it governs.

Every setting in the group vanishes with it. The rest of the machine is affected by the group's existence, the
controllers enabled for it, and its partition (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from aaco.core.cgroup import cgroup
from aaco.core.host import Host, text
from aaco.core.readings import Absent, known
from aaco.laboratory.knobs.knob import FileKnob, Knob, NotHere, Want, listed, refusal, write_text
from aaco.laboratory.knobs.process import FAIR, FIFO, RealTime, memory_nodes

MAGIC = {1: 0x27E0EB, 2: 0x63677270}  # statfs(2): CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC
REMOVAL_S = 2.0  # for processes that are on their way out of a group
RT_PERIOD_US, RT_BUDGET_US = 1_000_000, 900_000
WEIGHTIEST = {1: ("cpu.shares", "262144"), 2: ("cpu.weight", "10000")}
UNLIMITED = dict.fromkeys(("rbps", "wbps", "riops", "wiops"), "max")


class Home(Struct, frozen=True):
    """The place of a controller's group of ours: the version that governs it, the parent, and the folder itself."""

    version: int
    parent: Path
    folder: Path


def home(host: Host, controller: str, name: str) -> Home:
    """Return the place of the group: at the top in version 2, where processes and groups may share a parent; in version
    1, below our own group.

    Raise Absent if nothing governs the controller, or what is mounted there is no control group at all.
    """
    group = cgroup(host, controller)
    parent = group.top if group.version == 2 else group.own
    if magic(parent) != MAGIC[group.version]:
        raise Absent(f"{parent} is no control group of version {group.version}: a folder made there would do nothing")
    return Home(group.version, parent, parent / name)


def magic(path: Path) -> int:
    """Return the kind of file system of a path: the first word of struct statfs (statfs(2)). Raise Absent."""
    buffer = ctypes.create_string_buffer(256)
    with refusal(str(path)):
        if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), buffer):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return ctypes.c_long.from_buffer(buffer).value


def controllers(want: Want) -> list[str]:
    """Return the controllers that the group needs."""
    memory = ["memory"] if want.memory_high is not None or want.memory_max is not None else []
    return ["cpuset", "cpu", *memory, *(["io"] if want.io_max else [])]


def homes(host: Host, want: Want) -> dict[str, Home]:
    """Return the home of each controller that is governed here. Raise Absent if there is none."""
    homes_by_controller = {name: place for name in controllers(want) if (place := known(home, host, name, want.group))}
    if not homes_by_controller:
        raise Absent(f"no control group governs {' or '.join(controllers(want))}")
    return homes_by_controller


class Controllers(Knob):
    """The controllers that the top group passes down (cgroup.subtree_control); the target names file and controller."""

    name = "controllers"
    scope = "host"
    meaning = "the top control group hands its controllers down"

    def wishes(self, want: Want) -> dict[str, str]:
        needed = {f"{place.parent / 'cgroup.subtree_control'} {name}": "on"
                  for name, place in homes(self.host, want).items() if place.version == 2}
        if not needed:
            raise NotHere("control groups of version 1 have nothing to hand down")
        return needed

    def read(self, target: str) -> str:
        path, _, controller = target.rpartition(" ")
        return "on" if controller in text(Path(path)).split() else "off"

    def write(self, target: str, value: str) -> None:
        path, _, controller = target.rpartition(" ")
        write_text(Path(path), f"{'+' if value == 'on' else '-'}{controller}")

    def command(self, target: str, value: str) -> str:
        path, _, controller = target.rpartition(" ")
        return f"echo {'+' if value == 'on' else '-'}{controller} | sudo tee {path}"


class ControlGroup(Knob):
    """The group itself, one folder in each hierarchy. Removing it moves its remaining processes to its parent."""

    name = "group"
    scope = "host"
    meaning = "a control group of the command's own"

    def wishes(self, want: Want) -> dict[str, str]:
        return dict.fromkeys((str(place.folder) for place in homes(self.host, want).values()), "present")

    def read(self, target: str) -> str:
        return "present" if Path(target).is_dir() else "absent"

    def write(self, target: str, value: str) -> None:
        folder = Path(target)
        if value == "present":
            with refusal(target):
                folder.mkdir()
        else:
            _remove(folder)

    def command(self, target: str, value: str) -> str:
        return f"sudo {'mkdir' if value == 'present' else 'rmdir'} {target}"


def _remove(folder: Path) -> None:
    """Remove the group. Raise Absent if a process in it neither leaves nor can be moved."""
    deadline = time.monotonic() + REMOVAL_S
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise Absent(f"{folder}: {error.strerror}") from error
        make_fair([folder])
        for process in (known(text, folder / "cgroup.procs") or "").split():
            known(write_text, folder.parent / "cgroup.procs", process)
        time.sleep(0.005)


def threads(folders: Sequence[Path]) -> list[str]:
    """Return ids of the threads in groups: cgroup.threads in version 2, tasks in version 1."""
    lists = (known(text, folder / "cgroup.threads") or known(text, folder / "tasks") or "" for folder in folders)
    return [thread for ids in lists for thread in ids.split()]


def make_fair(folders: Sequence[Path]) -> None:
    """Put every thread in groups that `bursts` made real-time back under the fair scheduler."""
    policy = RealTime()
    for thread in threads(folders):
        if known(policy.read, thread) == FIFO:
            known(policy.write, thread, FAIR)


class Membership(Knob):
    """The command in the group: the launcher joins before it becomes the command."""

    name = "membership"
    scope = "process"
    meaning = "the command and all it starts are in the group"

    def wishes(self, want: Want) -> dict[str, str]:
        return dict.fromkeys((str(place.folder) for place in homes(self.host, want).values()), "member")

    def read(self, target: str) -> str:
        return "member" if str(os.getpid()) in text(Path(target) / "cgroup.procs").split() else "outside"

    def write(self, target: str, value: str) -> None:
        write_text((Path(target) if value == "member" else Path(target).parent) / "cgroup.procs", str(os.getpid()))


class GroupKnob(FileKnob):
    """A setting of our group, in the hierarchy of its controller."""

    controller: ClassVar[str]
    vanishes = True

    def home(self, want: Want) -> Home:
        """Return the home of the controller. Raise Absent."""
        return home(self.host, self.controller, want.group)

    def second(self, want: Want) -> Path:
        """Return the group's folder in version 2. Raise Absent if version 1 governs the controller."""
        place = self.home(want)
        if place.version == 1:
            raise Absent(f"the {self.controller} controller is mounted as version 1, which has no {self.name}")
        return place.folder


class CpuWeight(GroupKnob):
    """The group's weight against its siblings: the maximum."""

    name = "cpu_weight"
    controller = "cpu"
    meaning = "the group gets the CPU before others of the fair scheduler"

    def wishes(self, want: Want) -> dict[str, str]:
        place = self.home(want)
        name, most = WEIGHTIEST[place.version]
        return {str(place.folder / name): most}


class GroupCpus(GroupKnob):
    """The CPUs and memory nodes of the group, which nothing in it can leave."""

    name = "group_cpus"
    controller = "cpuset"
    meaning = "nothing in the group can leave the laboratory's CPUs and their memory"

    def wishes(self, want: Want) -> dict[str, str]:
        folder = self.home(want).folder
        try:
            nodes = memory_nodes(self.host.sys / "devices/system/node", want.cpus)
        except NotHere:
            nodes = "0"
        return {str(folder / "cpuset.mems"): nodes, str(folder / "cpuset.cpus"): listed(want.cpus)}


class RealTimeBudget(GroupKnob):
    """Version 1 with RT_GROUP_SCHED gives a group no real time unless it gets a budget (sched-rt-group.rst)."""

    name = "real_time_budget"
    controller = "cpu"
    meaning = f"at most {RT_BUDGET_US / RT_PERIOD_US:.0%} of a second of SCHED_FIFO, enforced by the kernel"

    def wishes(self, want: Want) -> dict[str, str]:
        place = self.home(want)
        if not (place.parent / "cpu.rt_runtime_us").exists():
            raise NotHere(f"{place.parent}: the kernel keeps no real-time budget per group; the global one holds")
        return {str(place.folder / "cpu.rt_runtime_us"): str(RT_BUDGET_US)}


class Partition(GroupKnob):
    """The group's CPUs taken from all other processes, without load balancing (cpuset.cpus.partition)."""

    name = "partition"
    controller = "cpuset"
    meaning = "nobody else runs on the laboratory's CPUs"
    vanishes = False  # the CPUs go back by it

    def wishes(self, want: Want) -> dict[str, str]:
        place = self.home(want)
        if place.version == 1:
            raise Absent("the cpuset controller is mounted as version 1: others could only be kept off the CPUs by "
                         "moving each of them")
        return {str(place.folder / "cpuset.cpus.partition"): "isolated"}


class CpuMax(GroupKnob):
    """A ceiling on the group's CPU time, for a reproducible share of a larger machine."""

    name = "cpu_max"
    controller = "cpu"
    meaning = "a ceiling on CPU time, in per cent of one CPU"
    period_us = 100_000

    def wishes(self, want: Want) -> dict[str, str]:
        assert want.cpu_max_pct is not None
        return {str(self.second(want) / "cpu.max"): f"{want.cpu_max_pct * self.period_us // 100} {self.period_us}"}


class MemoryHigh(GroupKnob):
    """The memory above which the group is slowed down and reclaimed from."""

    name = "memory_high"
    controller = "memory"
    meaning = "memory above which the kernel reclaims"

    def wishes(self, want: Want) -> dict[str, str]:
        assert want.memory_high is not None
        return {str(self.second(want) / "memory.high"): _round_to_pages(want.memory_high)}


class MemoryMax(GroupKnob):
    """The memory above which a process of the group is killed."""

    name = "memory_max"
    controller = "memory"
    meaning = "memory above which the kernel kills"

    def wishes(self, want: Want) -> dict[str, str]:
        assert want.memory_max is not None
        return {str(self.second(want) / "memory.max"): _round_to_pages(want.memory_max)}


class SwapMax(GroupKnob):
    """How much of the group may be swapped out: nothing."""

    name = "swap_max"
    controller = "memory"
    meaning = "nothing of the command is swapped out"

    def wishes(self, want: Want) -> dict[str, str]:
        return {str(self.second(want) / "memory.swap.max"): "0"}


class IoMax(Knob):
    """Ceilings on a device's I/O; the target names file and device."""

    name = "io_max"
    scope = "host"
    meaning = "a ceiling on reads and writes of a device"
    vanishes = True

    def wishes(self, want: Want) -> dict[str, str]:
        place = home(self.host, "io", want.group)
        asked = (line.partition(" ") for line in want.io_max)
        return {f"{place.folder / 'io.max'} {device}": _format_limits(limits) for device, _, limits in asked}

    def read(self, target: str) -> str:
        path, _, device = target.rpartition(" ")
        lines = (line.partition(" ") for line in text(Path(path)).splitlines())
        return next((_format_limits(limits) for name, _, limits in lines if name == device), _format_limits(""))

    def write(self, target: str, value: str) -> None:
        path, _, device = target.rpartition(" ")
        write_text(Path(path), f"{device} {value}")


def _format_limits(words: str) -> str:
    """Return all four limits in one order, "rbps=1048576 wbps=max riops=max wiops=max"; unnamed ones are max."""
    limits = dict(word.split("=", 1) for word in words.split())
    return " ".join(f"{name}={limits.get(name, value)}" for name, value in UNLIMITED.items())


def _round_to_pages(size: int) -> str:
    """Return the size rounded down to whole pages, as the kernel counts."""
    return str(size // mmap.PAGESIZE * mmap.PAGESIZE)
