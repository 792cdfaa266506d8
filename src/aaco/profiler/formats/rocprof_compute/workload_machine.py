"""The machine of a rocprof-compute workload: sysinfo.csv of versions 2 and 3, and roofline.csv.

Version 3 added the series and the chip id and dropped the memory bandwidth. In both, 0 or an empty field means unknown.
roofline.csv holds the tool's measurements of each device, bandwidths in GB/s, rates in GFLOP/s.
Source: rocm-systems, projects/rocprofiler-compute/src/utils/specs.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.tables import DEVICE_FACTS
from aaco.profiler.capture import CapturedDevice
from aaco.profiler.io import jsonfile

MOST_BYTES = 1 << 20
SIGNATURE = ("workload_name", "gpu_arch", "version")
# Fact, its column, and the factor to the fact's unit.
FACTS = (("simd_per_cu", "simd_per_cu", 1), ("shader_engines", "se_per_gpu", 1), ("wave_size", "wave_size", 1),
         ("workgroup_max_size", "workgroup_max_size", 1), ("max_waves_per_cu", "max_waves_per_cu", 1),
         ("max_clock_mhz", "max_sclk", 1), ("max_memory_clock_mhz", "max_mclk", 1), ("l1_bytes", "gpu_l1", 1024),
         ("l2_bytes", "gpu_l2", 1024), ("l2_channels", "total_l2_chan", 1), ("lds_banks", "lds_banks_per_cu", 1),
         ("hbm_bandwidth_gb_s", "hbm_bw", 1), ("hbm_channels", "num_hbm_channels", 1), ("xcc", "num_xcd", 1))
WORDS = ("compute_partition", "memory_partition")
FIX = "profile it again: rocprof-compute profile -n NAME -- PROGRAM"


class WorkloadMachine(Struct, frozen=True):
    """The row of sysinfo.csv, and the rows of roofline.csv: the measurements of each device."""

    system: dict[str, str]
    measured: tuple[dict[str, str], ...]
    problems: list[str] = field(default_factory=list)

    def device(self, number: int) -> CapturedDevice:
        """Return a device of this machine; they are all the same."""
        units = self._number("cu_per_gpu")
        return CapturedDevice(number, self.system.get("gpu_model") or None, self.system.get("gpu_arch") or None,
                              int(units) if units else None)

    def table(self, devices: list[int]) -> pa.Table:
        """Return device_facts."""
        rows = [row for device in devices for row in self._facts(device)] + list(self._roofline())
        return DEVICE_FACTS.build(device_id=[row[0] for row in rows], name=[row[1] for row in rows],
                                  value=[row[2] for row in rows], text=[row[3] for row in rows])

    def _facts(self, device: int) -> Iterator[tuple[int, str, float | None, str | None]]:
        for name, column, factor in FACTS:
            number = self._number(column)
            if number:
                yield device, name, number * factor, None
        for name in WORDS:
            if self.system.get(name, "NA") not in ("", "NA"):
                yield device, name, None, self.system[name]

    def _roofline(self) -> Iterator[tuple[int, str, float | None, str | None]]:
        for row in self.measured:
            device = _plain_number(row.get("device", ""))
            for name, text in row.items():
                number = _plain_number(text)
                if name != "device" and number is not None and device is not None:
                    yield int(device), f"roofline_{name}", number, None

    def _number(self, column: str) -> float | None:
        text = self.system.get(column, "").strip()
        number = _plain_number(text)
        if text and text != "NA" and number is None:
            problem = f"sysinfo.csv: {column} is no number: {text[:60]!r}"
            self.problems.extend([problem] if problem not in self.problems else [])
        return number


def recognises(path: Path) -> bool:
    """Return whether a file begins as sysinfo.csv does."""
    first = jsonfile.head(path, 4096).partition(b"\n")[0].decode("utf-8", "replace").strip().split(",")
    return all(name in first for name in SIGNATURE)


def in_workload(path: Path) -> bool:
    """Return whether a file is in a workload of rocprof-compute, which runs rocprof and rocprofv3 internally."""
    return recognises(path.with_name("sysinfo.csv"))


def read(folder: Path) -> WorkloadMachine:
    """Return the machine of a folder's files. Raise BadCapture if one cannot be read."""
    system_rows = _read_rows(folder / "sysinfo.csv")
    return WorkloadMachine(system_rows[0] if system_rows else {}, tuple(_read_rows(folder / "roofline.csv")))


def _read_rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    with jsonfile.sound(path, FIX):
        try:
            header, *rows = [row for row in csv.reader(StringIO(text), strict=True) if row] or [[]]
        except csv.Error as error:
            raise ValueError(str(error)) from error
        return [dict(zip(header, row, strict=False)) for row in rows]


def _plain_number(text: str) -> float | None:
    """Return a plain number, or None."""
    digits = text.strip()
    plain = digits.isascii() and digits.replace(".", "", 1).isdecimal() and len(digits) < 30
    return float(digits) if plain else None
