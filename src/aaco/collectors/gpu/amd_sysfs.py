"""Samples AMD devices by their driver's readings in sysfs (amd_sensors); a missing reading is null."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.collectors.gpu import device_samples, gpu_metrics
from aaco.collectors.gpu.amd_sensors import devices, read_errors, read_values, unread, vanished
from aaco.collectors.gpu.device_sampler import DeviceSampler
from aaco.collectors.gpu.kfd_users import KfdUsers
from aaco.collectors.gpu.own_processes import OwnProcesses, own_mark
from aaco.collectors.recording import RecordFormat
from aaco.core.host import Host
from aaco.core.tables import GPU_EVENTS

NULL = -(1 << 63)  # a temperature may be below zero
_MILLI, _MICRO, _MEGA = 1e3, 1e6, 1e6
# Column -> its record's field, and how many of the file's units make one of the column's.
_COLUMNS = {
    "gpu_util_pct": ("gpu_busy_pct", 1.0), "mem_util_pct": ("mem_busy_pct", 1.0),
    "temp_c": ("edge_millidegree", _MILLI), "hotspot_c": ("junction_millidegree", _MILLI),
    "power_w": ("power_uw", _MICRO), "power_cap_w": ("cap_uw", _MICRO), "energy_j": ("energy_uj", _MICRO),
    "sclk_mhz": ("sclk_hz", _MEGA), "sclk_max_mhz": ("sclk_max_hz", _MEGA), "mclk_mhz": ("mclk_hz", _MEGA),
}
_COUNTS = ("vram_used_bytes", "vram_total_bytes", "processes")
_FINER = ("xgmi_read_bytes", "xgmi_written_bytes")
FIELDS = (*(field for field, _ in _COLUMNS.values()), *_COUNTS, "reasons")
SOURCE = "amdgpu"
FORMAT = RecordFormat(f"{SOURCE} sampler", "aaco run --telemetry", b"AACOAMDG", 2,
                      np.dtype([(name, "<i8") for name in ("t_ns", "device_id", *FIELDS)]))


def columns(values: Mapping[str, int]) -> dict[str, Any]:
    """Return a device's readings (amd_sensors.read_values) as columns of gpu_events, without missing ones."""
    scaled = {column: values[field] / units for column, (field, units) in _COLUMNS.items() if field in values}
    counted = {name: values[name] for name in _COUNTS if name in values}
    reasons = {"throttle_reasons": gpu_metrics.named(values["reasons"])} if "reasons" in values else {}
    return scaled | counted | reasons


class AmdSysfsSampler(DeviceSampler):
    """Samples every device until `stop`; a device is lost if its files vanish.

    Raises Absent if there is none.
    """

    def __init__(self, period_s: float = 0.1, *, raw: Path, host: Host | None = None) -> None:
        super().__init__(SOURCE, FORMAT, period_s, raw)
        self._devices = devices(host or Host())
        self.unread = {device.index: why for device in self._devices if (why := unread(device))}
        self._values: dict[int, dict[str, int]] = {}
        self._errors_read = False
        self._users = KfdUsers(self._devices, OwnProcesses(os.getppid(), own_mark()))

    def rows(self) -> list[tuple[int, ...]]:
        """Return one record per device that reports anything."""
        rows = []
        for device in self._devices:
            if device.index in self.lost:
                continue
            if why := vanished(device):
                self.lose(device.index, why)
                continue
            t_ns, values = time.monotonic_ns(), read_values(device, self._values.get(device.index))
            self._values[device.index] = values
            if values:
                rows.append((t_ns, device.index, *(values.get(field, NULL) for field in FIELDS)))
        return rows

    def samples(self) -> Sequence[device_samples.Record]:
        """Return the xGMI traffic so far of each device that counts it, and the memory that our processes hold; at the
        first and the last call also its errors so far."""
        present = {index: values for index, values in self._values.items() if index not in self.lost}
        return [*traffic(present), *(sample for sample in self._users.samples() if sample[1] in present),
                *(self._errors() if self.last or not self._errors_read else ())]

    def _errors(self) -> Iterator[device_samples.Record]:
        """Yield the errors that each device counted: some drivers ask the device for them, which takes long."""
        self._errors_read = True
        for device in self._devices:
            for name, count in read_errors(device).items() if device.index not in self.lost else ():
                yield time.monotonic_ns(), device.index, device_samples.CODES[name], float(count)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def traffic(values_by_device: Mapping[int, Mapping[str, int]]) -> list[device_samples.Record]:
    """Return the xGMI traffic in devices' readings."""
    t_ns = time.monotonic_ns()
    return [(t_ns, index, device_samples.CODES[name], float(values[name])) for index, values in values_by_device.items()
            for name in _FINER if name in values]


def parse(raw: Path, source: str = SOURCE) -> pa.Table:
    """Return the gpu_events of a sampler's file, without an unfinished last record. Raise BadCapture."""
    records = FORMAT.read(raw)
    scaled = {column: _mask_missing(records[field], units) for column, (field, units) in _COLUMNS.items()}
    counts = {name: _mask_missing(records[name]) for name in _COUNTS}
    return GPU_EVENTS.build(t_ns=records["t_ns"], device_id=records["device_id"], **scaled, **counts,
                            throttle_reasons=[None if mask < 0 else gpu_metrics.named(mask)
                                              for mask in records["reasons"].tolist()],
                            source=[source] * len(records))


def _mask_missing(values: Any, units: float = 1.0) -> pa.Array:
    return pa.array(values if units == 1.0 else values / units, mask=values == NULL)
