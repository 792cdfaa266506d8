"""Identifies this machine's hardware."""

from __future__ import annotations

import re
from pathlib import Path

from aaco.collectors.inventory import gpu_settings
from aaco.core.host import Host as Host
from aaco.core.host import ask as ask
from aaco.core.host import cpu_list as cpu_list
from aaco.core.host import number, text
from aaco.core.machine import Gpu, Machine
from aaco.core.readings import Absent, known

AMD_NAMES = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")

def identify(host: Host | None = None) -> Machine:
    """Return this machine's hardware. Unreadable facts are None; on a machine with NVIDIA GPUs this runs nvidia-smi."""
    host = host or Host()
    sockets, cores, threads = known(topology, host) or (None, None, None)
    gpus = [*(known(amd_gpus, host) or ()), *(known(nvidia_gpus, host) or ())]
    return Machine.of(known(cpu_model, host), sockets, cores, threads, known(memory_bytes, host),
                      tuple(gpus))


def cpu_info(host: Host) -> dict[str, str]:
    """Return the first processor of /proc/cpuinfo: one is enough, and reading all disturbs every core."""
    try:
        with (host.proc / "cpuinfo").open(errors="replace") as file:
            block = file.read(1 << 14).partition("\n\n")[0]
    except OSError as error:
        raise Absent(f"{host.proc / 'cpuinfo'}: {error.strerror}") from error
    pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_model(host: Host) -> str:
    """Return the CPU's model name; on Arm, which has none there, its implementer and part numbers."""
    info = cpu_info(host)
    if "model name" in info:
        return info["model name"]
    if "CPU part" in info:
        return f"{info.get('CPU implementer', '?')}:{info['CPU part']}"
    raise Absent(f"{host.proc / 'cpuinfo'}: names no model")


def topology(host: Host) -> tuple[int, int, int]:
    """Return the sockets and cores with a CPU online, and logical CPUs present. Raise Absent."""
    present = cpu_list(text(host.cpus / "present"))
    folders = [host.cpus / f"cpu{cpu}" / "topology" for cpu in present]
    online = [folder for folder in folders if folder.is_dir()]
    packages = {text(folder / "physical_package_id") for folder in online}
    cores = {text(folder / "thread_siblings_list") for folder in online}
    if not cores:
        raise Absent(f"{host.cpus}: no CPU tells its topology")
    return len(packages), len(cores), len(present)


def memory(host: Host) -> dict[str, int]:
    """Return /proc/meminfo: sizes in bytes, counts unchanged."""
    pairs = (line.split() for line in text(host.proc / "meminfo").splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) * (1024 if pair[-1] == "kB" else 1) for pair in pairs if len(pair) > 1}


def memory_bytes(host: Host) -> int:
    """Return the memory that the kernel manages. Raise Absent."""
    sizes = memory(host)
    if "MemTotal" not in sizes:
        raise Absent(f"{host.proc / 'meminfo'}: has no MemTotal")
    return sizes["MemTotal"]


def amd_gpus(host: Host) -> tuple[Gpu, ...]:
    """Return the GPUs that KFD, the AMD compute driver, offers to this process. Raise Absent."""
    return tuple(gpu for gpu, _ in amd_nodes(host))


def amd_nodes(host: Host) -> list[tuple[Gpu, dict[str, int]]]:
    """Return those GPUs, each with the properties of its node. Raise Absent.

    Fields: include/uapi/linux/kfd_sysfs.h. A GPU that a container may not use has an unreadable node and is left out.
    """
    nodes = host.sys / "class/kfd/kfd/topology/nodes"
    if not nodes.is_dir():
        raise Absent(f"{nodes}: missing: no AMD GPU driver (amdgpu with KFD)")
    candidates = [_amd_gpu(host, node) for node in sorted(nodes.glob("[0-9]*"), key=lambda node: int(node.name))]
    usable = [candidate for candidate in candidates if candidate]
    if not usable:
        raise Absent(f"{nodes}: no GPU this process may use")
    return usable


def _amd_gpu(host: Host, node: Path) -> tuple[Gpu, dict[str, int]] | None:
    facts = known(kfd_properties, node / "properties")
    if not facts or not facts.get("simd_count"):
        return None
    units = facts["simd_count"] // facts["simd_per_cu"] if facts.get("simd_per_cu") else None
    banks = [known(kfd_properties, bank) for bank in node.glob("mem_banks/*/properties")]
    # Heap types 1 and 2 are the device's own memory, visible to the host or not.
    vram = sum(bank.get("size_in_bytes", 0) for bank in banks if bank and bank.get("heap_type") in (1, 2))
    return Gpu("AMD", _amd_name(host, facts), kfd_arch(facts), units, vram or None), facts


def kfd_arch(facts: dict[str, int]) -> str | None:
    """Return the compiler architecture of a device, by the properties of its node of KFD."""
    version = facts.get("gfx_target_version", 0)
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None


def kfd_properties(path: Path) -> dict[str, int]:
    """Return the properties of a node of KFD or of a part of it. Raise Absent."""
    pairs = (line.split() for line in text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _amd_name(host: Host, facts: dict[str, int]) -> str | None:
    """Return the marketing name: from the board's memory, else by PCI id from libdrm's list if that is installed."""
    device = host.sys / f"class/drm/renderD{facts.get('drm_render_minor')}/device"
    named = known(text, device / "product_name")
    revision = known(number, device / "revision")
    if named or revision is None:
        return named or None
    key = f"{facts.get('device_id', 0):X},{revision:02X},"
    lines = (line for path in AMD_NAMES for line in (known(text, host.root / path) or "").splitlines())
    names = (line.split(",", 2)[2].strip() for line in lines if "".join(line.split()).upper().startswith(key))
    return next(names, None)


def nvidia_gpus(host: Host) -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs; if nvidia-smi does not answer, from the driver, without memory sizes. Raise Absent."""
    try:
        rows = gpu_settings.nvidia()
    except Absent:
        return tuple(Gpu("NVIDIA", model, None, None, None) for model in _nvidia_models(host))
    readable = [{name: value for name, value in row.items() if isinstance(value, str)} for row in rows]
    return tuple(Gpu("NVIDIA", row.get("model"), None, None, _mebibytes(row.get("vram_mib"))) for row in readable)


def _nvidia_models(host: Host) -> list[str]:
    folder = host.proc / "driver/nvidia/gpus"
    matches = [re.search(r"^Model:\s*(.+)$", text(path), re.MULTILINE) for path in sorted(folder.glob("*/information"))]
    models = [match[1].strip() for match in matches if match]
    if not models:
        raise Absent(f"{folder}: missing: no NVIDIA GPU driver")
    return models


def _mebibytes(cell: str | None) -> int | None:
    return int(cell) << 20 if cell and cell.isdigit() else None
