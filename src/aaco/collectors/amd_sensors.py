"""What the amdgpu driver tells of its devices in sysfs: use, clocks, power, temperature, memory. No ROCm, no privilege.

Files and units: Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst and Documentation/hwmon/sysfs-interface.rst. What
a device does not tell, or tells in words that are no number, is left out. Energy, xGMI traffic and why its clock is
held down are in gpu_metrics alone (gpu_metrics.py), which also stands in for files that are not there, as in a virtual
machine; who holds the device is in the files of KFD, the compute driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aaco.collectors import gpu_metrics, machine
from aaco.core.host import Host, known, number, text
from aaco.core.readings import Absent

VENDOR = 0x1002  # AMD, in the PCI SIG's list
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Device:
    """A device of this host, numbered in the order of the cards; `hwmon` is None where its driver tells no sensors."""

    index: int
    folder: Path
    hwmon: Path | None
    kfd_id: int | None = None  # its number in KFD's own files
    kfd: Path | None = None  # where KFD lists processes
    arch: str | None = None  # as compilers call it


def devices(host: Host) -> list[Device]:
    """Every AMD device. Raises Absent with the reason where there is none."""
    drm = host.sys / "class/drm"
    cards = [path for path in drm.glob("card*") if re.fullmatch(r"card\d+", path.name)]  # card0-DP-1 is a connector
    ordered = sorted(cards, key=lambda path: int(path.name[4:]))
    folders = [card / "device" for card in ordered if known(number, card / "device/vendor") == VENDOR]
    if not folders:
        raise Absent(f"{drm}: no card of AMD's: the amdgpu driver is not loaded, or there is no device")
    nodes = _kfd_nodes(host)
    found = []
    for index, folder in enumerate(folders):
        kfd_id, arch = next((nodes[path.name] for path in sorted(folder.glob("drm/renderD*")) if path.name in nodes),
                            (None, None))
        found.append(Device(index, folder, next(iter(sorted(folder.glob("hwmon/hwmon*"))), None), kfd_id,
                            host.sys / "class/kfd/kfd/proc", arch))
    return found


def unread(device: Device) -> str | None:
    """What of the device is not read here, as its driver tells it in a version that is not known; None for nothing."""
    version = gpu_metrics.unread(_content(device.folder / "gpu_metrics"))
    return version and f"its gpu_metrics {version} is of no version that is read: no energy, xGMI traffic, throttling"


def vanished(device: Device) -> str | None:
    """Why the device can be read no more; None where its files are there."""
    try:
        (device.folder / "vendor").read_bytes()
    except OSError as error:
        return f"{device.folder}: {error.strerror}"
    return None


def why_not(host: Host | None = None) -> str | None:
    """Why no AMD device can be watched here; None where one can."""
    try:
        found = devices(host or Host())
    except Absent as reason:
        return str(reason)
    if not any(told(device) for device in found):
        return f"{found[0].folder}: neither its use nor a sensor can be read"
    return None


def levels_mhz(content: str) -> tuple[int | None, int | None]:
    """The level in force and the highest, in MHz, of a pp_dpm_* file: "1: 1500Mhz *" is in force."""
    found = re.findall(r"^\S+: *(\d+) *Mhz *(\*?)", content, re.MULTILINE | re.IGNORECASE)
    clocks = [int(mhz) for mhz, _ in found]
    return next((int(mhz) for mhz, star in found if star), None), max(clocks, default=None)


def told(device: Device, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """What the device tells now, in the units of the driver's files; clocks in Hz.

    before: what it told at the sample before; without it, why the clock is held down may not be known.
    """
    sclk, sclk_max = levels_mhz(known(text, device.folder / "pp_dpm_sclk") or "")
    mclk, _ = levels_mhz(known(text, device.folder / "pp_dpm_mclk") or "")
    files = {"sclk_hz": _hz(sclk), "mclk_hz": _hz(mclk), "sclk_max_hz": _hz(sclk_max),
             "gpu_busy_pct": _share(device.folder / "gpu_busy_percent"),
             "mem_busy_pct": _share(device.folder / "mem_busy_percent"),
             "vram_used_bytes": _amount(device.folder / "mem_info_vram_used"),
             "vram_total_bytes": _amount(device.folder / "mem_info_vram_total"), "processes": _processes(device)}
    sensed = _sensed(device.hwmon) if device.hwmon else {}
    found = gpu_metrics.told(_content(device.folder / "gpu_metrics"), before or {}, device.arch)
    for better in (files, sensed):
        found |= {field: value for field, value in better.items() if value is not None}
    return found


def _sensed(hwmon: Path) -> dict[str, int | None]:
    """Sensors; older chips tell the mean of their power, newer ones the power of the moment. A power of 0 is none: the
    second die of a board tells that, as the first one's is of both (aldebaran_ppt.c).
    """
    mean = _watts(hwmon / "power1_average")
    return {"edge_millidegree": _temperature(hwmon / "temp1_input"),
            "junction_millidegree": _temperature(hwmon / "temp2_input"),
            "power_uw": _watts(hwmon / "power1_input") if mean is None else mean,
            "cap_uw": _watts(hwmon / "power1_cap"),
            "sclk_hz": _amount(hwmon / "freq1_input"), "mclk_hz": _amount(hwmon / "freq2_input")}


def _kfd_nodes(host: Host) -> dict[str, tuple[int, str | None]]:
    """KFD's number of each device and what compilers call it, by the name of its render node."""
    found = {}
    for node in (host.sys / "class/kfd/kfd/topology/nodes").glob("*"):
        facts = known(machine.kfd_properties, node / "properties") or {}
        if (minor := facts.get("drm_render_minor")) and (number_of := known(number, node / "gpu_id")):
            found[f"renderD{minor}"] = number_of, machine.kfd_arch(facts)
    return found


def _processes(device: Device) -> int | None:
    """How many processes hold memory of the device, by KFD."""
    if device.kfd is None or device.kfd_id is None or not device.kfd.is_dir():
        return None
    return sum(bool(known(number, path)) for path in device.kfd.glob(f"*/vram_{device.kfd_id}"))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _hz(mhz: int | None) -> int | None:
    return None if mhz is None else mhz * 1_000_000


def _within(path: Path, low: int, high: int) -> int | None:
    """The number that a file holds; None where it has none that can be."""
    found = known(number, path)
    return found if found is not None and low <= found <= high else None


def _share(path: Path) -> int | None:
    return _within(path, 0, 100)


def _amount(path: Path) -> int | None:
    return _within(path, 0, _LARGEST)


def _watts(path: Path) -> int | None:
    return _within(path, 1, _LARGEST)


def _temperature(path: Path) -> int | None:
    return _within(path, -273_150, 1_000_000)
