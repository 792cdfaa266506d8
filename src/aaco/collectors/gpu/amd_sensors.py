"""Readings of the amdgpu driver in sysfs: use, clocks, power, temperature, memory. No ROCm, no privilege.

Files and units: Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst and Documentation/hwmon/sysfs-interface.rst. A
value that a device does not report, or reports as no number, is left out. Energy, xGMI traffic and throttle reasons are
only in gpu_metrics (gpu_metrics.py), which also replaces files that are missing, as in a virtual machine. KFD, the
compute driver, has the processes on the device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from aaco.collectors.gpu import gpu_metrics
from aaco.collectors.inventory import machine
from aaco.core.host import Host, number, text
from aaco.core.readings import Absent, known

VENDOR = 0x1002  # AMD, in the PCI SIG's list
_LARGEST = (1 << 63) - 1
RAS = {"ce": "corrected_errors", "ue": "uncorrected_errors"}  # of a block's counts, in ras/BLOCK_err_count


class AmdDevice(Struct, frozen=True):
    """A device of this host, numbered in the order of the cards; `hwmon` is None if its driver reports no sensors."""

    index: int
    folder: Path
    hwmon: Path | None
    kfd_id: int | None = None  # its number in KFD's own files
    kfd: Path | None = None  # where KFD lists processes
    arch: str | None = None  # as compilers call it


def devices(host: Host) -> list[AmdDevice]:
    """Return every AMD device. Raise Absent with the reason if there is none."""
    drm = host.sys / "class/drm"
    cards = [path for path in drm.glob("card*") if re.fullmatch(r"card\d+", path.name)]  # card0-DP-1 is a connector
    ordered = sorted(cards, key=lambda path: int(path.name[4:]))
    folders = [card / "device" for card in ordered if known(number, card / "device/vendor") == VENDOR]
    if not folders:
        raise Absent(f"{drm}: no card of AMD's: the amdgpu driver is not loaded, or there is no device")
    nodes = _kfd_nodes(host)
    amd_devices = []
    for index, folder in enumerate(folders):
        kfd_id, arch = next((nodes[path.name] for path in sorted(folder.glob("drm/renderD*")) if path.name in nodes),
                            (None, None))
        amd_devices.append(AmdDevice(index, folder, next(iter(sorted(folder.glob("hwmon/hwmon*"))), None), kfd_id,
                                     host.sys / "class/kfd/kfd/proc", arch))
    return amd_devices


def unread(device: AmdDevice) -> str | None:
    """Return what is not read of the device because its driver reports it in an unknown version; None for nothing."""
    version = gpu_metrics.unread(_read_bytes(device.folder / "gpu_metrics"))
    return version and f"its gpu_metrics {version} is of no version that is read: no energy, xGMI traffic, throttling"


def vanished(device: AmdDevice) -> str | None:
    """Return why the device can no longer be read; None if its files are there."""
    try:
        (device.folder / "vendor").read_bytes()
    except OSError as error:
        return f"{device.folder}: {error.strerror}"
    return None


def why_not(host: Host | None = None) -> str | None:
    """Return why no AMD device can be watched here; None if one can."""
    try:
        amd_devices = devices(host or Host())
    except Absent as reason:
        return str(reason)
    if not any(read_values(device) for device in amd_devices):
        return f"{amd_devices[0].folder}: neither its use nor a sensor can be read"
    return None


def levels_mhz(content: str) -> tuple[int | None, int | None]:
    """Return the level in force and the highest, in MHz, of a pp_dpm_* file: "1: 1500Mhz *" is in force."""
    levels = re.findall(r"^\S+: *(\d+) *Mhz *(\*?)", content, re.MULTILINE | re.IGNORECASE)
    clocks = [int(mhz) for mhz, _ in levels]
    return next((int(mhz) for mhz, star in levels if star), None), max(clocks, default=None)


def read_values(device: AmdDevice, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the device's present readings, in the units of the driver's files; clocks in Hz.

    before: the readings of the previous sample. Without it, throttle reasons may be unknown.
    """
    sclk, sclk_max = levels_mhz(known(text, device.folder / "pp_dpm_sclk") or "")
    mclk, _ = levels_mhz(known(text, device.folder / "pp_dpm_mclk") or "")
    files = {"sclk_hz": _to_hz(sclk), "mclk_hz": _to_hz(mclk), "sclk_max_hz": _to_hz(sclk_max),
             "gpu_busy_pct": _read_share(device.folder / "gpu_busy_percent"),
             "mem_busy_pct": _read_share(device.folder / "mem_busy_percent"),
             "vram_used_bytes": _read_amount(device.folder / "mem_info_vram_used"),
             "vram_total_bytes": _read_amount(device.folder / "mem_info_vram_total"),
             "processes": _count_processes(device)}
    sensed = _read_hwmon(device.hwmon) if device.hwmon else {}
    values = gpu_metrics.decode(_read_bytes(device.folder / "gpu_metrics"), before or {}, device.arch)
    for better in (files, sensed):
        values |= {field: value for field, value in better.items() if value is not None}
    return values


def read_errors(device: AmdDevice) -> dict[str, int]:
    """Return how many errors all blocks of the device together counted since its driver was loaded, by
    device_samples' names; none where it does not count them (RAS: amdgpu_ras.c)."""
    counts: dict[str, int] = {}
    for path in sorted((device.folder / "ras").glob("*_err_count")):
        for kind, count in re.findall(r"^(ue|ce): *(\d{1,18})$", known(text, path) or "", re.MULTILINE):
            name = RAS[kind]
            counts[name] = counts.get(name, 0) + int(count)
    return counts


def _read_hwmon(hwmon: Path) -> dict[str, int | None]:
    """Return the sensor readings.

    Older chips report mean power, newer ones instantaneous power. A power of 0 counts as missing: the second die of a
    board reports it, because the first die's power is that of both (aldebaran_ppt.c).
    """
    mean = _read_power(hwmon / "power1_average")
    return {"edge_millidegree": _read_temperature(hwmon / "temp1_input"),
            "junction_millidegree": _read_temperature(hwmon / "temp2_input"),
            "power_uw": _read_power(hwmon / "power1_input") if mean is None else mean,
            "cap_uw": _read_power(hwmon / "power1_cap"),
            "sclk_hz": _read_amount(hwmon / "freq1_input"), "mclk_hz": _read_amount(hwmon / "freq2_input")}


def _kfd_nodes(host: Host) -> dict[str, tuple[int, str | None]]:
    """Return KFD's number of each device and its compiler architecture, by the name of its render node."""
    nodes = {}
    for node in (host.sys / "class/kfd/kfd/topology/nodes").glob("*"):
        facts = known(machine.kfd_properties, node / "properties") or {}
        if (minor := facts.get("drm_render_minor")) and (number_of := known(number, node / "gpu_id")):
            nodes[f"renderD{minor}"] = number_of, machine.kfd_arch(facts)
    return nodes


def _count_processes(device: AmdDevice) -> int | None:
    """Return how many processes hold memory of the device, by KFD."""
    if device.kfd is None or device.kfd_id is None or not device.kfd.is_dir():
        return None
    return sum(bool(known(number, path)) for path in device.kfd.glob(f"*/vram_{device.kfd_id}"))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _to_hz(mhz: int | None) -> int | None:
    return None if mhz is None else mhz * 1_000_000


def _read_within(path: Path, low: int, high: int) -> int | None:
    """Return the number in a file; None if there is none between the limits."""
    amount = known(number, path)
    return amount if amount is not None and low <= amount <= high else None


def _read_share(path: Path) -> int | None:
    return _read_within(path, 0, 100)


def _read_amount(path: Path) -> int | None:
    return _read_within(path, 0, _LARGEST)


def _read_power(path: Path) -> int | None:
    return _read_within(path, 1, _LARGEST)


def _read_temperature(path: Path) -> int | None:
    return _read_within(path, -273_150, 1_000_000)
