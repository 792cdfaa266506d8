"""GPU settings that an administrator may have changed and a measurement depends on.

AMD's by the files of the amdgpu driver (Documentation/gpu/amdgpu: thermal.rst, amdgpu_pm.c, ras.rst, gpu-partitioning
of AMD's driver documentation), NVIDIA's by nvidia-smi. No privilege, only reads. A missing value is an Absent with the
reason, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aaco.core.host import Host, ask, first_printable, matched, number, text
from aaco.core.readings import Absent

# Our names for columns of `nvidia-smi --help-query-gpu`: what identifies the device, and its settings.
NVIDIA_COLUMNS = {"model": "name", "vram_mib": "memory.total", "vbios": "vbios_version", "power_limit_w": "power.limit",
                  "power_limit_default_w": "power.default_limit", "power_limit_max_w": "power.max_limit",
                  "sm_clock_max_mhz": "clocks.max.sm", "application_graphics_mhz": "clocks.applications.graphics",
                  "application_memory_mhz": "clocks.applications.memory",
                  "application_graphics_default_mhz": "clocks.default_applications.graphics",
                  "application_memory_default_mhz": "clocks.default_applications.memory",
                  "persistence": "persistence_mode", "ecc": "ecc.mode.current", "compute_mode": "compute_mode",
                  "mig": "mig.mode.current"}
# It starts the driver when no other process holds it open, which takes seconds on a machine of many GPUs.
NVIDIA_TIMEOUT_S = 20.0
UNTOLD = re.compile(r"\[.*\]$|N/A|Not Supported|Unknown")
NO_GETTER = "the driver takes locked clocks and has no call that tells them"
MEMORY_RAS = 1  # the bit of the memory controller in the mask of ras/features


def nvidia() -> list[dict[str, str | Absent]]:
    """Return NVIDIA_COLUMNS of every GPU as nvidia-smi prints them. Raise Absent."""
    columns, answer = _query_nvidia_smi(NVIDIA_COLUMNS)
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]
    whole = [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]
    if not whole:
        raise Absent(f"nvidia-smi names no GPU: {first_printable(answer)}")
    return [{name: _parse_cell(row.get(name), column) for name, column in NVIDIA_COLUMNS.items()}
            | {"locked_clocks": Absent(NO_GETTER)} for row in whole]


def _query_nvidia_smi(columns: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the columns that nvidia-smi has, and its answer. It names an unknown column, and answers nothing."""
    while True:
        try:
            return columns, ask(["nvidia-smi", f"--query-gpu={','.join(columns.values())}",
                                 "--format=csv,noheader,nounits"], NVIDIA_TIMEOUT_S)
        except Absent as reason:
            unknown = re.search(r'Field "([^"]+)" is not a valid field', str(reason))
            remaining = {name: column for name, column in columns.items() if unknown and column != unknown[1]}
            if len(remaining) != len(columns) - 1:
                raise
            columns = remaining


def _parse_cell(cell: str | None, column: str) -> str | Absent:
    if cell is None:
        return Absent(f"this nvidia-smi has no {column}")
    return Absent(f"nvidia-smi says {cell} for {column}") if UNTOLD.match(cell) else cell


def amd(folder: Path) -> dict[str, Any]:
    """Return the settings of the AMD device with its files in this folder of sysfs; W, MHz, modes in the driver's
    words.
    """
    readers: dict[str, Callable[[], Any]] = {
        "performance_level": lambda: text(folder / "power_dpm_force_performance_level"),
        "sclk_range_mhz": lambda: _read_range(folder / "pp_od_clk_voltage", "OD_SCLK|GFXCLK"),
        "mclk_range_mhz": lambda: _read_range(folder / "pp_od_clk_voltage", "OD_MCLK|MCLK"),
        "power_cap_w": lambda: _read_watts(folder, "power1_cap"),
        "power_cap_default_w": lambda: _read_watts(folder, "power1_cap_default"),
        "power_cap_max_w": lambda: _read_watts(folder, "power1_cap_max"),
        "compute_partition": lambda: text(folder / "current_compute_partition"),
        "memory_partition": lambda: text(folder / "current_memory_partition"),
        "vbios": lambda: text(folder / "vbios_version"),
        "ras_features": lambda: f"{_read_ras(folder):#x}",
        "ecc": lambda: bool(_read_ras(folder) & MEMORY_RAS)}
    return {name: _read_setting(reader) for name, reader in readers.items()}


def amd_folder(host: Host, properties: dict[str, int]) -> Path:
    """Return the driver's folder of a node of KFD: its place on PCI, else its render node's.

    A partition has a render node without these files, and in its place on PCI the number of the partition for the
    function: the board is function 0.
    """
    place, domain = properties.get("location_id", 0) & 0xFFFF, properties.get("domain", 0)
    for devfn in (place, place & ~7):
        folder = host.sys / f"bus/pci/devices/{domain:04x}:{devfn >> 8:02x}:{devfn >> 3 & 31:02x}.{devfn & 7}"
        if place and folder.is_dir():
            return folder
    return host.sys / f"class/drm/renderD{properties.get('drm_render_minor')}/device"


def _read_setting(reader: Callable[[], Any]) -> Any:
    try:
        setting = reader()
    except Absent as reason:
        return reason
    return Absent("the driver's file is empty") if setting == "" else setting


def _read_range(path: Path, labels: str) -> str:
    """Return the lowest and the highest clock that may be used, "500-2100": lines 0 and 1 under the label, or 1 alone.
    """
    match = matched(path, rf"^(?:{labels}):\s*(?:0:\s*(\d+) *Mhz[\s*]*)?1:\s*(\d+) *Mhz", "names no such range",
                    re.IGNORECASE | re.MULTILINE)
    return f"{match[1] or ''}-{match[2]}"


def _read_watts(folder: Path, name: str) -> float:
    """Return a power of the device's hwmon, W (the file has uW). 0 is none: the second die of a board reports that as
    its cap.
    """
    path = next(iter(sorted(folder.glob(f"hwmon/hwmon*/{name}"))), folder / "hwmon" / name)
    if not (microwatts := number(path)):
        raise Absent(f"{path}: 0")
    return microwatts / 1e6


def _read_ras(folder: Path) -> int:
    """Return the mask of the blocks that report and correct errors."""
    pattern = r"feature mask:\s*(0x[0-9a-f]+)"
    return int(matched(folder / "ras/features", pattern, "has no feature mask", re.IGNORECASE)[1], 16)
