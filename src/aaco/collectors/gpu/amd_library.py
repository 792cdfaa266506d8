"""Samples AMD devices through amdsmi, the Python package of ROCm's library, if sysfs cannot be read.

Its dictionaries hold numbers, lists of them, "N/A", or a number with all bits set for what a chip does not report;
newer ones hold truth values instead of masks, which give no reason (py-interface/amdsmi_interface.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from aaco.collectors.gpu import amd_sysfs, device_samples, gpu_metrics
from aaco.collectors.gpu.device_sampler import DeviceSampler
from aaco.core.readings import Absent, or_why

SOURCE = "amdsmi"
ONES = (0xFFFF, 0xFFFFFFFF, (1 << 64) - 1)
# Fields of gpu_metrics.meaning -> the keys of amdsmi_get_gpu_metrics_info with them, the better first.
METRICS: Mapping[str, tuple[str, ...]] = {
    "gfx": ("average_gfx_activity",), "umc": ("average_umc_activity",), "edge": ("temperature_edge",),
    "hotspot": ("temperature_hotspot",), "power": ("current_socket_power", "average_socket_power"),
    "gfxclk": ("current_gfxclk", "current_gfxclks"), "uclk": ("current_uclk",), "mask": ("indep_throttle_status",),
    "xgmi_read": ("xgmi_read_data_acc",), "xgmi_written": ("xgmi_write_data_acc",),
    "accumulations": ("accumulation_counter",), "prochot": ("prochot_residency_acc",), "ppt": ("ppt_residency_acc",),
    "socket_thermal": ("socket_thm_residency_acc",), "vr_thermal": ("vr_thm_residency_acc",),
    "hbm_thermal": ("hbm_thm_residency_acc",)}
ENERGY, SINCE_1_4 = "energy_accumulator", "current_socket_power"  # a device with the second has the first in 2^-16 J


def library() -> ModuleType:
    """Return the package with its library open. Raise Absent with the reason."""
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
    """Return why no device can be sampled through it; None if one can."""
    return or_why(library)[1] or None


class AmdSmiSampler(DeviceSampler):
    """Samples every device until `stop`; a device that the library no longer finds is lost. Raises Absent."""

    def __init__(self, period_s: float = 0.1, *, raw: Path) -> None:
        super().__init__(SOURCE, amd_sysfs.FORMAT, period_s, raw)
        self._smi = library()
        self._handles = list(self._smi.amdsmi_get_processor_handles())
        self._values: dict[int, dict[str, int]] = {}

    def rows(self) -> list[tuple[int, ...]]:
        """Return one record per device."""
        rows = []
        for index, handle in enumerate(self._handles):
            if index in self.lost:
                continue
            t_ns = time.monotonic_ns()
            try:
                values = self._read_device(handle, self._values.get(index, {}))
            except self._smi.AmdSmiException as error:
                self.lose(index, f"amdsmi: {error}")
                continue
            self._values[index] = values
            rows.append((t_ns, index, *(values.get(field, amd_sysfs.NULL) for field in amd_sysfs.FIELDS)))
        return rows

    def samples(self) -> Sequence[device_samples.Record]:
        """Return the xGMI traffic so far, of each device that counts it."""
        return amd_sysfs.traffic({index: values for index, values in self._values.items() if index not in self.lost})

    def close(self) -> None:
        """Shut the library down."""
        self._smi.amdsmi_shut_down()

    def _read_device(self, handle: Any, before: Mapping[str, int]) -> dict[str, int]:
        metrics = self._smi.amdsmi_get_gpu_metrics_info(handle)
        fields = {field: next(filter(None, (numbers(metrics.get(key)) for key in keys)), [])
                  for field, keys in METRICS.items()}
        fields["energy"] = numbers(metrics.get(ENERGY)) if numbers(metrics.get(SINCE_1_4)) else []
        readings = gpu_metrics.meaning({field: values for field, values in fields.items() if values}, before)
        memory = self._smi.amdsmi_get_gpu_vram_usage(handle)
        for field, key in (("vram_used_bytes", "vram_used"), ("vram_total_bytes", "vram_total")):
            if mebibytes := numbers(memory.get(key)):
                readings[field] = mebibytes[0] << 20
        return readings


def numbers(value: Any) -> list[int]:
    """Return the whole numbers of an amdsmi value, without those that mark a missing one."""
    candidates = value if isinstance(value, list | tuple) else [value]
    return [int(number) for number in candidates if isinstance(number, int | float) and not isinstance(number, bool)
            and number == number and number not in ONES and 0 <= number < 1 << 64]
