"""Which CPU shares what with which, from sysfs, and the policies that choose among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aaco.core.errors import UsageError
from aaco.core.host import Host, cpu_list, known, number, text

GPU_CLASSES = (0x0300, 0x0302, 0x0380, 0x1200)  # PCI: VGA, 3D, other display, processing accelerator
GPU_VENDORS = (0x1002, 0x10DE)


@dataclass(frozen=True, order=True)
class Cpu:
    """A logical CPU. `core` is the lowest CPU of its core; `thread` its place in it."""

    package: int
    node: int
    core: int
    thread: int
    number: int


def cpus(host: Host, allowed: set[int] | None = None) -> list[Cpu]:
    """The CPUs that are online and allowed (by default: to this process), nearest neighbours next to each other."""
    online = set(cpu_list(known(text, host.cpus / "online") or "")) or os.sched_getaffinity(0)
    wanted = online & (os.sched_getaffinity(0) if allowed is None else allowed)
    nodes = _nodes(host)
    return sorted(_cpu(host, each, nodes) for each in wanted)


def _cpu(host: Host, each: int, nodes: dict[int, int]) -> Cpu:
    folder = host.cpus / f"cpu{each}/topology"
    siblings = cpu_list(known(text, folder / "thread_siblings_list") or str(each))
    package = known(number, folder / "physical_package_id") or 0
    return Cpu(package, nodes.get(each, 0), siblings[0], siblings.index(each) if each in siblings else 0, each)


def _nodes(host: Host) -> dict[int, int]:
    folders = sorted((host.sys / "devices/system/node").glob("node[0-9]*"))
    return {cpu: int(folder.name[4:]) for folder in folders
            for cpu in cpu_list(known(text, folder / "cpulist") or "")}


def gpu_cpus(host: Host) -> set[int]:
    """The CPUs nearest to the first GPU (local_cpulist of its PCI device); empty where there is none."""
    for device in sorted((host.sys / "bus/pci/devices").glob("*")):
        kind, vendor = known(number, device / "class"), known(number, device / "vendor")
        if kind is not None and kind >> 8 in GPU_CLASSES and vendor in GPU_VENDORS:
            return set(cpu_list(known(text, device / "local_cpulist") or ""))
    return set()


def choose(found: Sequence[Cpu], policy: str = "compact", count: int | None = None,
           near: set[int] | None = None) -> tuple[int, ...]:
    """CPUs by a policy of POLICIES. Without a count: all that it offers, but for the first core, left to the rest.

    near: where a policy keeps to one node or package, the one that holds most of these. Raises UsageError when it
    cannot offer that many.
    """
    offered = POLICIES[policy](found, near or set())
    if count is None:
        spare = {cpu.core for cpu in found} - {min(found, key=lambda cpu: cpu.number).core}
        kept = [cpu for cpu in offered if cpu.core in spare]
        return tuple(sorted(cpu.number for cpu in kept or offered))
    if policy == "pairs":
        count += count % 2
    if len(offered) < count:
        raise UsageError(f"--policy {policy} offers {len(offered)} CPUs here, not {count}",
                         "fewer --count, or another --policy")
    later_first = sorted(offered[:count], key=lambda cpu: cpu.number)
    return tuple(cpu.number for cpu in later_first)


def _compact(found: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """Core after core, both threads of each, away from the first core as long as there are others."""
    first = min(cpu.number for cpu in found)
    return sorted(found, key=lambda cpu: (cpu.core == _core_of(found, first), cpu))


def _spread(found: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """As far apart as can be: the packages and nodes in turn, second threads last."""
    ranks: dict[tuple[int, int, int], int] = {}
    turn = {}
    for cpu in _compact(found, near):
        key = (cpu.package, cpu.node, cpu.thread)
        turn[cpu] = ranks[key] = ranks.get(key, -1) + 1
    return sorted(found, key=lambda cpu: (cpu.thread, turn[cpu], cpu))


def _one(part: Callable[[Cpu], int]) -> Callable[[Sequence[Cpu], set[int]], list[Cpu]]:
    def chosen(found: Sequence[Cpu], near: set[int]) -> list[Cpu]:
        """The part nearest to the GPU, else the largest, else the last: the first serves the rest of the machine."""
        parts = {part(cpu) for cpu in found}
        inside = {each: [cpu for cpu in found if part(cpu) == each] for each in parts}
        best = max(parts, key=lambda each: (len({cpu.number for cpu in inside[each]} & near), len(inside[each]), each))
        return [cpu for cpu in _compact(found, near) if part(cpu) == best]
    return chosen


def _no_smt(found: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """One thread of every core: the first that is allowed."""
    firsts = {min(other.number for other in found if other.core == cpu.core) for cpu in found}
    return [cpu for cpu in _compact(found, near) if cpu.number in firsts]


def _pairs(found: Sequence[Cpu], near: set[int]) -> list[Cpu]:
    """Whole cores of two threads only."""
    whole = {cpu.core for cpu in found if sum(other.core == cpu.core for other in found) == 2}
    return [cpu for cpu in _compact(found, near) if cpu.core in whole]


def _core_of(found: Sequence[Cpu], wanted: int) -> int:
    return next(cpu.core for cpu in found if cpu.number == wanted)


POLICIES: dict[str, Callable[[Sequence[Cpu], set[int]], list[Cpu]]] = {
    "compact": _compact, "spread": _spread, "numa-local": _one(lambda cpu: cpu.node),
    "socket-local": _one(lambda cpu: cpu.package), "no-smt": _no_smt, "pairs": _pairs,
}
