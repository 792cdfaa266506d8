"""Nsight Compute's raw page as CSV (`ncu --csv --page raw`): a row per kernel, a column per metric, units in row two.

What the profiler and the program said stands before the table, and numbers are grouped by commas. Without
`--print-units base` a column has the unit that suits it; values are kept in the base unit (bytes, ns, Hz). Every kernel
was replayed, once per pass, with its clock held unless `--clock-control none` was given: its duration is one under the
profiler, and there is no time at which it began.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import COUNTERS, DEVICE_FACTS, KERNELS
from aaco.profiler import jsonstream
from aaco.profiler.capture import Device, Facts
from aaco.profiler.columns import bare, constant, encoded, integers
from aaco.profiler.ledger import Ledger

FORMAT = "ncu"
TOOL = "ncu"
FIX = "write it again: ncu --import REPORT --csv --page raw --print-units base > FILE.csv"
KERNEL, COUNTER, ATTRIBUTE = "kernel", "counter", "device attribute"
BROKEN, NO_VALUE = "not a whole row under its header", "no number stands there"
AGAIN = "the same for every kernel of the device"
HEADER = b'"ID","Process ID","Process Name","Host Name"'
SAID_OF = "device__attribute_"
HEAD_BYTES = 1 << 18
LONGEST_LINE = 1 << 20
MOST_LINES = 8  # of one row: names of ranges may hold newlines
CELLS = 200_000  # of a piece
GREATEST_NS = 1 << 62
DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration.max", "gpu__time_duration.avg")
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
REGISTERS = "launch__registers_per_thread"
# ncu's attribute of a device, our fact, and what one of it is worth in the fact's unit.
FACTS = (("max_gpu_frequency_khz", "max_clock_mhz", 1e-3), ("max_mem_frequency_khz", "max_memory_clock_mhz", 1e-3),
         ("l2_cache_size", "l2_bytes", 1), ("warp_size", "wave_size", 1),
         ("max_warps_per_multiprocessor", "max_waves_per_cu", 1), ("max_threads_per_block", "workgroup_max_size", 1),
         ("max_blocks_per_multiprocessor", "max_workgroups_per_cu", 1),
         ("max_registers_per_multiprocessor", "registers_per_cu", 1),
         ("max_shared_memory_per_multiprocessor", "lds_bytes", 1),
         ("reserved_shared_memory_per_block", "lds_reserved_bytes", 1))
_PREFIXES = {"K": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12)}
_SECONDS = {"s": 10**9, "second": 10**9, "ms": 10**6, "msecond": 10**6, "us": 10**3, "usecond": 10**3, "ns": 1,
            "nsecond": 1}
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SIZES = re.compile(r"\((\d{1,10}), (\d{1,10}), (\d{1,10})\)", re.ASCII)
_SCALED = re.compile(r"([KMGT])(?:i?byte|hz|cycle|inst|sector|request)", re.IGNORECASE | re.ASCII)


def recognises(path: Path) -> bool:
    """Whether a line near the beginning is the raw page's header. Never raises."""
    head = jsonstream.head(path, HEAD_BYTES)
    at = head.find(HEADER)
    return at >= 0 and (at == 0 or head[at - 1:at] == b"\n") and b'"Kernel Name"' in head[at:at + 4096] \
        and b'"Metric Value"' not in head[at:at + 4096]


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """kernels, counters and device_facts, and the Facts. Raises BadCapture."""
    report = _Report()
    with jsonstream.opened(path) as file:
        for line in _lines(file):
            yield from report.read(line)
    yield from report.flush()
    if not report.found:
        raise BadCapture(f"{path}: not the raw page of Nsight Compute as CSV", FIX)
    yield report.device_facts()
    yield report.facts()


def _lines(file: BinaryIO) -> Iterator[str]:
    """Lines, with those over which the quotes of a row go on; of one too long the pieces, which are no rows."""
    while line := file.readline(LONGEST_LINE):
        for _ in range(MOST_LINES):
            if line.count(b'"') % 2 == 0 or len(line) >= LONGEST_LINE or not line.startswith(b'"'):
                break
            line += file.readline(LONGEST_LINE)
        yield line.decode("utf-8", "replace").removeprefix("\ufeff")


def _fields(line: str) -> list[str] | None:
    try:
        found = list(csv.reader([line.rstrip("\r\n")], strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


class _Report:
    """Reads rows under the header that stood last, and keeps the account."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self.units: list[str] = []
        self.rows: list[dict[str, str]] = []
        self.found = self.awaits_units = False
        self.ledger = Ledger(KERNEL)
        self.devices: dict[int, Device] = {}
        self.attributes: list[tuple[int, str, float]] = []
        self.host: str | None = None
        self.next_id = 0

    def read(self, line: str) -> Iterator[pa.Table]:
        """Take a line in; tables, when there are rows enough for a piece or another header begins."""
        if line.startswith(HEADER.decode()):
            yield from self.flush()
            self._begin(_fields(line) or [])
        elif not self.header or not line.strip() or line.startswith("=="):
            return
        elif self.awaits_units:
            self.units, self.awaits_units = _fields(line) or [], False
        else:
            self._row(line)
            if len(self.rows) * len(self.header) > CELLS:
                yield from self.flush()

    def _begin(self, header: list[str]) -> None:
        raw = len(set(header)) == len(header) and "Metric Value" not in header  # the other pages have a row per metric
        self.header = header if raw else []
        self.found = self.found or bool(self.header)
        self.awaits_units = bool(self.header)

    def _row(self, line: str) -> None:
        fields = _fields(line)
        self.ledger.saw(KERNEL, 1)
        if fields is None or not len(fields) == len(self.header) == len(self.units):
            self.ledger.leave_out(KERNEL, BROKEN, 1)
            return
        based = [_scale(text, unit) if unit else text for text, unit in zip(fields, self.units, strict=True)]
        self.rows.append(dict(zip(self.header, based, strict=True)))

    def flush(self) -> Iterator[pa.Table]:
        """kernels and counters of the rows taken in since the last time."""
        rows, self.rows = self.rows, []
        if rows:
            ids = range(self.next_id, self.next_id + len(rows))
            self.next_id += len(rows)
            for row in rows:
                self._meet(row)
            yield self._kernels(rows, ids)
            yield self._counters(rows, ids)

    def _kernels(self, rows: Sequence[dict[str, str]], ids: range) -> pa.Table:
        durations = [next((ns for name in DURATIONS if (ns := _whole(row.get(name, ""))) is not None), None)
                     for row in rows]
        self.ledger.kernel_ns += sum(ns or 0 for ns in durations)
        self.ledger.trouble("kernels have no duration: gpu__time_duration was not collected", durations.count(None))
        blocks, grids = _sizes(rows, "Block Size"), _sizes(rows, "Grid Size")
        columns: dict[str, Any] = {
            name: integers([_whole(row.get(title, "")) for row in rows])
            for name, title in (("dispatch_id", "ID"), ("process_id", "Process ID"), ("device_id", "Device"),
                                ("stream_id", "Stream"), ("vgpr", REGISTERS))}
        for at, axis in enumerate("xyz"):
            columns[f"block_{axis}"] = integers([block[at] if block else None for block in blocks])
            columns[f"grid_{axis}"] = integers([grid[at] * block[at] if block and grid else None
                                                for block, grid in zip(blocks, grids, strict=True)])
        return KERNELS.build(
            kernel_id=list(ids), kernel_name=encoded([bare(row.get("Kernel Name", "")) for row in rows]),
            dur_ns=integers(durations), lds_bytes=integers([_sum(row, SHARED) for row in rows]),
            occupancy_pct=[_real(row.get(OCCUPANCY, "")) for row in rows], source=constant(FORMAT, len(rows)),
            **columns)

    def _counters(self, rows: Sequence[dict[str, str]], ids: range) -> pa.Table:
        names = [name for name, unit in zip(self.header, self.units, strict=True)
                 if "__" in name and not name.startswith(SAID_OF) and ":" not in name]
        kernels, codes, values = [], [], []
        for number, row in zip(ids, rows, strict=True):
            for code, name in enumerate(names):
                value = _real(row[name])
                if value is not None:
                    kernels.append(number)
                    codes.append(code)
                    values.append(value)
        self.ledger.saw(COUNTER, len(rows) * len(names))
        self.ledger.leave_out(COUNTER, NO_VALUE, len(rows) * len(names) - len(values))
        counters = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string()))
        return COUNTERS.build(kernel_id=pa.array(kernels, pa.int64()), counter=counters,
                              value=pa.array(values, pa.float64()))

    def _meet(self, row: dict[str, str]) -> None:
        """Note the device of a kernel, and what the row says of it, when it is first met."""
        said = {name.removeprefix(SAID_OF): text for name, text in row.items() if name.startswith(SAID_OF)}
        number = _whole(row.get("Device", ""))
        self.host = self.host or row.get("Host Name") or None
        self.ledger.saw(ATTRIBUTE, len(said))
        if number is None or number in self.devices:
            self.ledger.leave_out(ATTRIBUTE, AGAIN, len(said))
            return
        self.devices[number] = Device(number, said.get("display_name") or None, _arch(row.get("CC", "")),
                                      _whole(said.get("multiprocessor_count", "")),
                                      _whole(said.get("total_memory", "")))
        self.attributes += [(number, fact, value * worth) for name, fact, worth in FACTS
                            if (value := _real(said.get(name, ""))) is not None]

    def device_facts(self) -> pa.Table:
        """What is known of the devices in numbers."""
        devices, names, values = zip(*self.attributes, strict=True) if self.attributes else ((), (), ())
        return DEVICE_FACTS.build(device_id=devices, name=names, value=values)

    def facts(self) -> Facts:
        """What the capture says of itself."""
        return self.ledger.facts(FORMAT, tool=TOOL, devices=tuple(self.devices.values()), host=self.host)


def _scale(text: str, unit: str) -> str:
    """The number in the base unit of its unit's kind; other text, and numbers of units that are base, as they are."""
    factor = _factor(unit)
    if factor == 1 or _NUMBER.fullmatch(text) is None:
        return text
    return format(Decimal(text.replace(",", "")) * factor, "f")


def _factor(unit: str) -> Decimal:
    """Base units in one of the unit: `Mbyte/second` is a million bytes a second, `us` a thousand nanoseconds."""
    above = unit.partition("/")[0]
    if above in _SECONDS:
        return Decimal(_SECONDS[above])
    scaled = _SCALED.fullmatch(above)
    return _PREFIXES[scaled[1].upper()] if scaled else Decimal(1)


def _real(text: str) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    value = float(text.replace(",", ""))
    return value if abs(value) < 1e300 else None


def _whole(text: str) -> int | None:
    """The whole number nearest to a text's, from 0 to 2^62."""
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        value = int(Decimal(text.replace(",", "")).to_integral_value())
    except InvalidOperation:
        return None
    return value if 0 <= value < GREATEST_NS else None


def _sum(row: dict[str, str], names: Sequence[str]) -> int | None:
    found = [_whole(row.get(name, "")) for name in names]
    return None if None in found else sum(value or 0 for value in found)


def _sizes(rows: Sequence[dict[str, str]], name: str) -> list[tuple[int, int, int] | None]:
    found = (_SIZES.fullmatch(row.get(name, "").strip()) for row in rows)
    return [(int(each[1]), int(each[2]), int(each[3])) if each else None for each in found]


def _arch(capability: str) -> str | None:
    major, dot, minor = capability.partition(".")
    return f"sm_{major}{minor}" if dot and major.isdecimal() and minor.isdecimal() and len(capability) < 8 else None
