"""What a rocprof-compute workload says of its machine: sysinfo.csv of versions 2 and 3, and roofline.csv.

Version 3 added the series and the chip id and dropped the memory bandwidth. A 0 or an empty field is how both say that
they do not know. roofline.csv holds what the tool measured of each device, bandwidths in GB/s, rates in GFLOP/s.
Source: rocm-systems, projects/rocprofiler-compute/src/utils/specs.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pyarrow as pa

from aaco.core.tables import DEVICE_FACTS
from aaco.profiler import jsonfile
from aaco.profiler.capture import Device

MOST_BYTES = 1 << 20
SIGNATURE = ("workload_name", "gpu_arch", "version")
# Fact, the column that gives it, and what one of it is worth.
FACTS = (("simd_per_cu", "simd_per_cu", 1), ("shader_engines", "se_per_gpu", 1), ("wave_size", "wave_size", 1),
         ("workgroup_max_size", "workgroup_max_size", 1), ("max_waves_per_cu", "max_waves_per_cu", 1),
         ("max_clock_mhz", "max_sclk", 1), ("max_memory_clock_mhz", "max_mclk", 1), ("l1_bytes", "gpu_l1", 1024),
         ("l2_bytes", "gpu_l2", 1024), ("l2_channels", "total_l2_chan", 1), ("lds_banks", "lds_banks_per_cu", 1),
         ("hbm_bandwidth_gb_s", "hbm_bw", 1), ("hbm_channels", "num_hbm_channels", 1), ("xcc", "num_xcd", 1))
WORDS = ("compute_partition", "memory_partition")
FIX = "profile it again: rocprof-compute profile -n NAME -- PROGRAM"


@dataclass(frozen=True)
class Machine:
    """The row of sysinfo.csv, and rows of roofline.csv: of each device what was measured."""

    said: dict[str, str]
    measured: tuple[dict[str, str], ...]
    problems: list[str] = field(default_factory=list)

    def device(self, number: int) -> Device:
        """A device of this machine; they are all alike."""
        units = self._number("cu_per_gpu")
        return Device(number, self.said.get("gpu_model") or None, self.said.get("gpu_arch") or None,
                      int(units) if units else None)

    def table(self, devices: list[int]) -> pa.Table:
        """device_facts."""
        rows = [row for device in devices for row in self._facts(device)] + list(self._roofline())
        return DEVICE_FACTS.build(device_id=[row[0] for row in rows], name=[row[1] for row in rows],
                                  value=[row[2] for row in rows], text=[row[3] for row in rows])

    def _facts(self, device: int) -> Iterator[tuple[int, str, float | None, str | None]]:
        for name, column, worth in FACTS:
            value = self._number(column)
            if value:
                yield device, name, value * worth, None
        for name in WORDS:
            if self.said.get(name, "NA") not in ("", "NA"):
                yield device, name, None, self.said[name]

    def _roofline(self) -> Iterator[tuple[int, str, float | None, str | None]]:
        for row in self.measured:
            device = _real(row.get("device", ""))
            for name, text in row.items():
                value = _real(text)
                if name != "device" and value is not None and device is not None:
                    yield int(device), f"roofline_{name}", value, None

    def _number(self, column: str) -> float | None:
        text = self.said.get(column, "").strip()
        value = _real(text)
        if text and text != "NA" and value is None:
            said = f"sysinfo.csv: {column} is no number: {text[:60]!r}"
            self.problems.extend([said] if said not in self.problems else [])
        return value


def recognises(path: Path) -> bool:
    """Whether a file begins as sysinfo.csv does."""
    first = jsonfile.head(path, 4096).partition(b"\n")[0].decode("utf-8", "replace").strip().split(",")
    return all(name in first for name in SIGNATURE)


def in_workload(path: Path) -> bool:
    """Whether a file lies in a workload of rocprof-compute, which runs rocprof and rocprofv3 for its own ends."""
    return recognises(path.with_name("sysinfo.csv"))


def read(folder: Path) -> Machine:
    """What the folder's files say. Raises BadCapture where one cannot be read."""
    said = _rows(folder / "sysinfo.csv")
    return Machine(said[0] if said else {}, tuple(_rows(folder / "roofline.csv")))


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    with jsonfile.sound(path, FIX):
        try:
            header, *rows = [row for row in csv.reader(StringIO(text), strict=True) if row] or [[]]
        except csv.Error as error:
            raise ValueError(str(error)) from error
        return [dict(zip(header, row, strict=False)) for row in rows]


def _real(text: str) -> float | None:
    """A plain number, or None."""
    digits = text.strip()
    plain = digits.isascii() and digits.replace(".", "", 1).isdecimal() and len(digits) < 30
    return float(digits) if plain else None
