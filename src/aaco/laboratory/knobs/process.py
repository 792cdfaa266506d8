"""Knobs of one process. The launcher turns them on itself before it becomes the command, so nothing needs undoing."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from pathlib import Path
from typing import ClassVar

from aaco.core.host import cpu_list, text
from aaco.core.readings import Absent
from aaco.laboratory.knobs.knob import SELF, Knob, NotHere, Want, listed, refusal

# Numbers of arch/*/entry/syscalls: libc has no wrapper for these.
_SYSCALLS = {"x86_64": {"set_mempolicy": 238, "get_mempolicy": 239, "ioprio_set": 251, "ioprio_get": 252},
             "aarch64": {"set_mempolicy": 237, "get_mempolicy": 236, "ioprio_set": 30, "ioprio_get": 31}}
MPOL_DEFAULT, MPOL_BIND = 0, 2  # set_mempolicy(2)
NODES = 1024  # bits of a node mask: no kernel has more
IOPRIO_WHO_PROCESS, IO_CLASS_SHIFT = 1, 13  # ioprio_set(2)
IO_CLASSES = ("none", "realtime", "best-effort", "idle")
PR_SET_THP_DISABLE, PR_GET_THP_DISABLE = 41, 42  # prctl(2)
ADDR_NO_RANDOMIZE, ASK_PERSONALITY = 0x0040000, 0xFFFFFFFF  # personality(2)
FIFO_PRIORITY = 10
FIFO, FAIR = f"fifo {FIFO_PRIORITY}", "other"
POLICIES = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr", os.SCHED_BATCH: "batch",
            os.SCHED_IDLE: "idle"}


class ProcessKnob(Knob):
    """A knob of the calling process."""

    scope = "process"
    asked: ClassVar[str]

    def wishes(self, want: Want) -> dict[str, str]:
        return {SELF: self.asked}


class Affinity(ProcessKnob):
    """The CPUs that the command may run on (sched_setaffinity(2))."""

    name = "affinity"
    meaning = "the command runs on the laboratory's CPUs only"

    def wishes(self, want: Want) -> dict[str, str]:
        return {SELF: listed(want.cpus)}

    def read(self, target: str) -> str:
        return listed(os.sched_getaffinity(0))

    def write(self, target: str, value: str) -> None:
        with refusal(f"CPUs {value}"):
            os.sched_setaffinity(0, cpu_list(value))


class MemoryNodes(ProcessKnob):
    """The NUMA nodes that the command's memory comes from (set_mempolicy(2))."""

    name = "memory_nodes"
    meaning = "memory comes from the NUMA nodes of the laboratory's CPUs"

    def wishes(self, want: Want) -> dict[str, str]:
        nodes = memory_nodes(self.host.sys / "devices/system/node", want.cpus)
        return {SELF: f"bind {nodes}"}

    def read(self, target: str) -> str:
        mode, mask = ctypes.c_int(), (ctypes.c_ulong * (NODES // 64))()
        _system_call("get_mempolicy", ctypes.byref(mode), mask, NODES, None, 0)
        if mode.value != MPOL_BIND:
            return "default" if mode.value == MPOL_DEFAULT else f"mode {mode.value}"
        return f"bind {listed({node for node in range(NODES) if mask[node // 64] >> node % 64 & 1})}"

    def write(self, target: str, value: str) -> None:
        mask = (ctypes.c_ulong * (NODES // 64))()
        for node in cpu_list(value.removeprefix("bind ")):
            mask[node // 64] |= 1 << node % 64
        _system_call("set_mempolicy", MPOL_BIND, mask, NODES)


class Nice(ProcessKnob):
    """The command's weight among processes of its session (setpriority(2), sched(7) on autogroups)."""

    name = "nice"
    meaning = "more weight in the fair scheduler"
    asked = "-20"

    def read(self, target: str) -> str:
        return str(os.getpriority(os.PRIO_PROCESS, 0))

    def write(self, target: str, value: str) -> None:
        with refusal(f"nice {value}"):
            os.setpriority(os.PRIO_PROCESS, 0, int(value))


class IoPriority(ProcessKnob):
    """The command's place in the block layer's queues (ioprio_set(2)); only some I/O schedulers use it."""

    name = "io_priority"
    meaning = "first among best-effort readers and writers"
    asked = "best-effort 0"

    def read(self, target: str) -> str:
        packed = _system_call("ioprio_get", IOPRIO_WHO_PROCESS, 0)
        return f"{IO_CLASSES[packed >> IO_CLASS_SHIFT & 3]} {packed & 7}"

    def write(self, target: str, value: str) -> None:
        name, level = value.split()
        _system_call("ioprio_set", IOPRIO_WHO_PROCESS, 0, IO_CLASSES.index(name) << IO_CLASS_SHIFT | int(level))


class LockedMemory(ProcessKnob):
    """How much memory the command may lock (setrlimit(2), RLIMIT_MEMLOCK)."""

    name = "locked_memory"
    meaning = "the command may pin its memory: mlock(2), buffers of a GPU"
    asked = "unlimited"

    def read(self, target: str) -> str:
        soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)

    def write(self, target: str, value: str) -> None:
        limit = resource.RLIM_INFINITY if value == "unlimited" else int(value)
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        except (OSError, ValueError) as error:  # ValueError: above the hard limit, without CAP_SYS_RESOURCE
            raise Absent(f"RLIMIT_MEMLOCK: {error}") from error


class HugePages(ProcessKnob):
    """Transparent huge pages of the command only (prctl(2), PR_SET_THP_DISABLE)."""

    name = "huge_pages"
    meaning = "no transparent huge pages: khugepaged leaves the command alone"
    asked = "disabled"

    def read(self, target: str) -> str:
        return "disabled" if _call_libc("prctl", PR_GET_THP_DISABLE, 0, 0, 0, 0) else "enabled"

    def write(self, target: str, value: str) -> None:
        _call_libc("prctl", PR_SET_THP_DISABLE, int(value == "disabled"), 0, 0, 0)


class AddressRandomness(ProcessKnob):
    """Address space layout randomisation of the command only (personality(2), ADDR_NO_RANDOMIZE)."""

    name = "address_randomness"
    meaning = "the same addresses, hence the same cache conflicts, in every run"
    asked = "off"

    def read(self, target: str) -> str:
        return "off" if _call_libc("personality", ASK_PERSONALITY) & ADDR_NO_RANDOMIZE else "on"

    def write(self, target: str, value: str) -> None:
        others = _call_libc("personality", ASK_PERSONALITY) & ~ADDR_NO_RANDOMIZE
        _call_libc("personality", others | (ADDR_NO_RANDOMIZE if value == "off" else 0))


class RealTime(ProcessKnob):
    """The right to run under SCHED_FIFO (sched(7)). `bursts` uses it; the launcher only tests for it."""

    name = "real_time"
    meaning = "SCHED_FIFO in bursts of less than 0.9 s: nothing fair preempts the command"
    asked = FIFO

    def read(self, target: str) -> str:
        thread = 0 if target == SELF else int(target)
        with refusal(f"thread {target}"):
            policy, priority = os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority
        name = POLICIES.get(policy & ~os.SCHED_RESET_ON_FORK, str(policy))
        return f"{name} {priority}" if priority else name

    def write(self, target: str, value: str) -> None:
        name, _, priority = value.partition(" ")
        policy = next(number for number, policy_name in POLICIES.items() if policy_name == name)
        with refusal(f"SCHED_{name.upper()}"):
            os.sched_setscheduler(0 if target == SELF else int(target), policy, os.sched_param(int(priority or 0)))


def memory_nodes(folder: Path, cpus: tuple[int, ...]) -> str:
    """Return the nodes with memory nearest to these CPUs, listed. Raise NotHere."""
    nodes = {int(path.name[4:]): set(cpu_list(text(path / "cpulist"))) for path in sorted(folder.glob("node[0-9]*"))}
    if not nodes:
        raise NotHere(f"{folder}: no node: a kernel without NUMA")
    nearest = {node for node, here in nodes.items() if here & set(cpus)}
    if not nearest:
        raise Absent(f"{folder}: no node holds the CPUs {listed(cpus)}")
    return listed(nearest)


def _system_call(name: str, *arguments: object) -> int:
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None:
        raise Absent(f"{name}: its number on {platform.machine()} is not known here")
    return _call_libc("syscall", numbers[name], *arguments)


def _call_libc(function: str, *arguments: object) -> int:
    """Return the result of a libc function. Raise Absent with the kernel's reason."""
    libc = ctypes.CDLL(None, use_errno=True)
    converted = [ctypes.c_ulong(argument) if isinstance(argument, int) else argument for argument in arguments]
    returned: int = getattr(libc, function)(*converted)
    if returned == -1:
        number = ctypes.get_errno()
        with refusal(function):
            raise OSError(number, os.strerror(number))
    return returned
