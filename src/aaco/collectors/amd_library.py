"""Samples AMD devices through amdsmi, the Python package of ROCm's library, where sysfs cannot be read.

Its dictionaries hold numbers, "N/A", or a number whose bits are all ones for what a chip does not tell.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from aaco.collectors import amd_sysfs
from aaco.collectors.device_sampler import Sampler as DeviceSampler
from aaco.core.readings import Absent

SOURCE = "amdsmi"
ONES = (0xFFFF, 0xFFFFFFFF, (1 << 64) - 1)
# Field of a record -> the keys of amdsmi_get_gpu_metrics_info that tell it, the better first; and ours of one of it.
METRICS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "gpu_busy_pct": (("average_gfx_activity",), 1), "mem_busy_pct": (("average_umc_activity",), 1),
    "edge_millidegree": (("temperature_edge",), 1000), "junction_millidegree": (("temperature_hotspot",), 1000),
    "power_uw": (("current_socket_power", "average_socket_power"), 1_000_000),
    "sclk_hz": (("current_gfxclk",), 1_000_000), "mclk_hz": (("current_uclk",), 1_000_000),
    "reasons": (("indep_throttle_status",), 1),
}


def library() -> ModuleType:
    """The package, its library open. Raises Absent with the reason."""
    try:
        amdsmi = import_module(SOURCE)
    except KeyError as error:  # it loads its library when it is imported, and goes on without one
        raise Absent(f"the package amdsmi does not find its library {error}") from error
    except (ImportError, OSError) as error:
        raise Absent(f"the package amdsmi cannot be imported: {error}") from error
    try:
        amdsmi.amdsmi_init()
        if not amdsmi.amdsmi_get_processor_handles():
            raise Absent("amdsmi sees no device")
    except amdsmi.AmdSmiException as error:
        raise Absent(f"amdsmi: {error}") from error
    return amdsmi


def why_not() -> str | None:
    """Why no device can be sampled through it; None where one can."""
    try:
        library()
    except Absent as reason:
        return str(reason)
    return None


class Sampler(DeviceSampler):
    """Samples every device until `stop`; one that the library cannot find any more is lost. Raises Absent."""

    def __init__(self, period_s: float = 0.1, *, raw: Path) -> None:
        super().__init__(SOURCE, amd_sysfs.FORMAT, period_s, raw)
        self._smi = library()
        self._handles = list(self._smi.amdsmi_get_processor_handles())

    def rows(self) -> list[tuple[int, ...]]:
        """One record per device."""
        found = []
        for index, handle in enumerate(self._handles):
            if index in self.lost:
                continue
            at = time.monotonic_ns()
            try:
                told = self._told(handle)
            except self._smi.AmdSmiException as error:
                self.lose(index, f"amdsmi: {error}")
                continue
            found.append((at, index, *(told.get(field, amd_sysfs.NULL) for field in amd_sysfs.FIELDS)))
        return found

    def close(self) -> None:
        """Shut the library down."""
        self._smi.amdsmi_shut_down()

    def _told(self, handle: Any) -> dict[str, int]:
        metrics = self._smi.amdsmi_get_gpu_metrics_info(handle)
        found = {field: next((value for key in keys if (value := whole(metrics.get(key))) is not None), None)
                 for field, (keys, _) in METRICS.items()}
        memory = self._smi.amdsmi_get_gpu_vram_usage(handle)
        told = {field: value * METRICS[field][1] for field, value in found.items() if value is not None}
        for field, key in (("vram_used_bytes", "vram_used"), ("vram_total_bytes", "vram_total")):
            if (mebibytes := whole(memory.get(key))) is not None:
                told[field] = mebibytes << 20
        return told


def whole(value: Any) -> int | None:
    """A value of amdsmi as a whole number; None for what it says it has not."""
    if isinstance(value, list | tuple):  # one per partition or clock: the first is the device's
        value = value[0] if value else None
    known = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    return int(value) if known and value not in ONES and value >= 0 else None


