"""The knobs, by name. A knob is a class: how to read it, how to set it, and why it is not available."""

from __future__ import annotations

from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.laboratory.knobs import amd, cgroup, frequency, interrupts, memory, nvidia, process
from aaco.laboratory.knobs.knob import Knob

KNOBS: dict[str, type[Knob]] = {kind.name: kind for kind in (
    cgroup.Controllers, cgroup.ControlGroup, cgroup.CpuWeight, cgroup.GroupCpus, cgroup.RealTimeBudget,
    cgroup.Partition, cgroup.CpuMax, cgroup.MemoryHigh, cgroup.MemoryMax, cgroup.SwapMax, cgroup.IoMax,
    cgroup.Membership,
    process.Affinity, process.MemoryNodes, process.Nice, process.IoPriority, process.LockedMemory, process.HugePages,
    process.AddressRandomness, process.RealTime,
    interrupts.Interrupts, frequency.Governor, frequency.Turbo, frequency.EnergyPreference, memory.Swap, memory.Caches,
    amd.AmdPerformance, amd.AmdClock, amd.AmdPower, nvidia.NvidiaClock, nvidia.NvidiaPower,
)}


def knob(name: str, host: Host | None = None) -> Knob:
    """Return the knob of a name. Raise Absent for one that this version does not know."""
    if name not in KNOBS:
        raise Absent(f"{name}: not a knob of this version of aaco")
    return KNOBS[name](host)
