"""What CPUs share, from sysfs, and the policies that choose among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import Struct

from aaco.core.errors import UsageError
from aaco.core.host import Host, cpu_list, number, text
from aaco.core.readings import known

GPU_CLASSES = (0x0300, 0x0302, 0x0380, 0x1200)  # PCI: VGA, 3D, other display, processing accelerator
GPU_VENDORS = (0x1002, 0x10DE)


class Cpu(Struct, frozen=True, order=True):
    """A logical CPU. `core` is the lowest CPU of its core; `thread` its place in it."""

    package: int
    node: int
    core: int
    thread: int
    number: int


def cpus(host: Host, allowed: set[int] | None = None) -> list[Cpu]:
    """Return the CPUs that are online and allowed (by default: to this process), sorted so that near ones are adjacent.
    """
    online = set(cpu_list(known(text, host.cpus / "online") or "")) or os.sched_getaffinity(0)
    usable = online & (os.sched_getaffinity(0) if allowed is None else allowed)
    nodes = _read_nodes(host)
    return sorted(_read_cpu(host, cpu, nodes) for cpu in usable)


def _read_cpu(host: Host, cpu: int, nodes: dict[int, int]) -> Cpu:
    folder = host.cpus / f"cpu{cpu}/topology"
    siblings = cpu_list(known(text, folder / "thread_siblings_list") or str(cpu))
    package = known(number, folder / "physical_package_id") or 0
    return Cpu(package, nodes.get(cpu, 0), siblings[0], siblings.index(cpu) if cpu in siblings else 0, cpu)


def _read_nodes(host: Host) -> dict[int, int]:
    folders = sorted((host.sys / "devices/system/node").glob("node[0-9]*"))
    return {cpu: int(folder.name[4:]) for folder in folders
            for cpu in cpu_list(known(text, folder / "cpulist") or "")}


def gpu_cpus(host: Host) -> set[int]:
    """Return the CPUs nearest to the first GPU (local_cpulist of its PCI device); empty if there is none."""
    for device in sorted((host.sys / "bus/pci/devices").glob("*")):
        kind, vendor = known(number, device / "class"), known(number, device / "vendor")
        if kind is not None and kind >> 8 in GPU_CLASSES and vendor in GPU_VENDORS:
            return set(cpu_list(known(text, device / "local_cpulist") or ""))
    return set()


def choose(cpus: Sequence[Cpu], policy: str = "compact", count: int | None = None,
           near: set[int] | None = None) -> tuple[int, ...]:
    """Return CPUs by a policy of POLICIES. Without a count: all that it offers, except the first core.

    near: if a policy keeps to one node or package, the one that holds most of these. Raise UsageError if it cannot
    offer that many.
    """
    offered = POLICIES[policy](cpus, near or set())
    if count is None:
        spare = {cpu.core for cpu in cpus} - {min(cpus, key=lambda cpu: cpu.number).core}
        kept = [cpu for cpu in offered if cpu.core in spare]
        return tuple(sorted(cpu.number for cpu in kept or offered))
    if policy == "pairs":
        count += count % 2
    if len(offered) < count:
        raise UsageError(f"--policy {policy} offers {len(offered)} CPUs here, not {count}",
                         "fewer --count, or another --policy")
    later_first = sorted(offered[:count], key=lambda cpu: cpu.number)
    return tuple(cpu.number for cpu in later_first)


def _compact(cpus: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """Return core after core, both threads of each, away from the first core as long as there are others."""
    first = min(cpus, key=lambda cpu: cpu.number)
    return sorted(cpus, key=lambda cpu: (cpu.core == first.core, cpu))


def _spread(cpus: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """Return CPUs as far apart as possible: the packages and nodes in turn, second threads last."""
    ranks: dict[tuple[int, int, int], int] = {}
    turn = {}
    for cpu in _compact(cpus, near):
        key = (cpu.package, cpu.node, cpu.thread)
        turn[cpu] = ranks[key] = ranks.get(key, -1) + 1
    return sorted(cpus, key=lambda cpu: (cpu.thread, turn[cpu], cpu))


def _one_part(part_of: Callable[[Cpu], int]) -> Callable[[Sequence[Cpu], set[int]], list[Cpu]]:
    def choose_part(cpus: Sequence[Cpu], near: set[int]) -> list[Cpu]:
        """Return the CPUs of the part nearest to the GPU, else the largest, else the last.

        The first part serves the rest of the machine.
        """
        parts = {part_of(cpu) for cpu in cpus}
        inside = {part: [cpu for cpu in cpus if part_of(cpu) == part] for part in parts}
        best = max(parts, key=lambda part: (len({cpu.number for cpu in inside[part]} & near), len(inside[part]), part))
        return [cpu for cpu in _compact(cpus, near) if part_of(cpu) == best]
    return choose_part


def _no_smt(cpus: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """Return one thread of every core: the first that is allowed."""
    firsts = {min(sibling.number for sibling in cpus if sibling.core == cpu.core) for cpu in cpus}
    return [cpu for cpu in _compact(cpus, near) if cpu.number in firsts]


def _pairs(cpus: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """Return whole cores of two threads only."""
    whole = {cpu.core for cpu in cpus if sum(sibling.core == cpu.core for sibling in cpus) == 2}
    return [cpu for cpu in _compact(cpus, near) if cpu.core in whole]


POLICIES: dict[str, Callable[[Sequence[Cpu], set[int]], list[Cpu]]] = {
    "compact": _compact, "spread": _spread, "numa-local": _one_part(lambda cpu: cpu.node),
    "socket-local": _one_part(lambda cpu: cpu.package), "no-smt": _no_smt, "pairs": _pairs,
}
