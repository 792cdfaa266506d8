"""Samples AMD devices by what their driver tells in sysfs (amd_sensors); what is not told is null."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.collectors import device_samples, gpu_metrics
from aaco.collectors.amd_sensors import devices, told, unread, vanished
from aaco.collectors.device_sampler import Sampler as DeviceSampler
from aaco.collectors.kfd_users import Users
from aaco.collectors.ours import Ours, own_mark
from aaco.collectors.recording import Format
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
FORMAT = Format(f"{SOURCE} sampler", "aaco run --telemetry", b"AACOAMDG", 2,
                np.dtype([(name, "<i8") for name in ("t_ns", "device_id", *FIELDS)]))


def columns(told: Mapping[str, int]) -> dict[str, Any]:
    """What a device tells (amd_sensors.told) as columns of gpu_events; what it does not tell is left out."""
    scaled = {column: told[field] / units for column, (field, units) in _COLUMNS.items() if field in told}
    counted = {name: told[name] for name in _COUNTS if name in told}
    return scaled | counted | ({"throttle_reasons": gpu_metrics.named(told["reasons"])} if "reasons" in told else {})


class Sampler(DeviceSampler):
    """Samples every device until `stop`; one whose files vanish is lost.

    Raises Absent where there is none.
    """

    def __init__(self, period_s: float = 0.1, *, raw: Path, host: Host | None = None) -> None:
        super().__init__(SOURCE, FORMAT, period_s, raw)
        self._devices = devices(host or Host())
        self.unread = {device.index: why for device in self._devices if (why := unread(device))}
        self._told: dict[int, dict[str, int]] = {}
        self._users = Users(self._devices, Ours(os.getppid(), own_mark()))

    def rows(self) -> list[tuple[int, ...]]:
        """One record per device that tells anything."""
        found = []
        for device in self._devices:
            if device.index in self.lost:
                continue
            if why := vanished(device):
                self.lose(device.index, why)
                continue
            at, facts = time.monotonic_ns(), told(device, self._told.get(device.index))
            self._told[device.index] = facts
            if facts:
                found.append((at, device.index, *(facts.get(field, NULL) for field in FIELDS)))
        return found

    def samples(self) -> Sequence[device_samples.Record]:
        """xGMI traffic so far, of each device that counts it, and what our processes hold."""
        there = {index: facts for index, facts in self._told.items() if index not in self.lost}
        return [*traffic(there), *(one for one in self._users.samples() if one[1] in there)]

    def close(self) -> None:
        """Nothing is held open."""


def traffic(told: Mapping[int, Mapping[str, int]]) -> list[device_samples.Record]:
    """xGMI traffic, of what devices told."""
    at = time.monotonic_ns()
    return [(at, index, device_samples.CODES[name], float(facts[name])) for index, facts in told.items()
            for name in _FINER if name in facts]


def parse(raw: Path, source: str = SOURCE) -> pa.Table:
    """The gpu_events of a sampler's file; an unfinished last record is left out. Raises BadCapture."""
    records = FORMAT.read(raw)
    scaled = {column: _known(records[field], units) for column, (field, units) in _COLUMNS.items()}
    counts = {name: _known(records[name]) for name in _COUNTS}
    return GPU_EVENTS.build(t_ns=records["t_ns"], device_id=records["device_id"], **scaled, **counts,
                            throttle_reasons=[None if mask < 0 else gpu_metrics.named(mask)
                                              for mask in records["reasons"].tolist()],
                            source=[source] * len(records))


def _known(values: Any, units: float = 1.0) -> pa.Array:
    return pa.array(values if units == 1.0 else values / units, mask=values == NULL)
