"""Nsight Compute's raw page as CSV (`ncu --csv --page raw`): a row per kernel, a column per metric, units in row two.

Messages of the profiler and output of the program precede the table. Numbers are grouped by commas, or in the way of
another locale: 1.234,56. Then its commas are decimal in all of the file, which one number that can mean nothing else
proves. Without
`--print-units base` each column has its own unit; values are kept in the base unit (bytes, ns, Hz). Every kernel
was replayed, once per pass, with its clock fixed unless `--clock-control none` was given: its duration is one under the
profiler, and its start is unknown.
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
from aaco.core.untimed import TOO_LONG
from aaco.profiler.capture import COUNTED, CapturedDevice, CaptureFacts
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import bare, constant, encoded, integers
from aaco.profiler.io.record_accounting import LONGEST_NS, RecordAccount

FORMAT = "ncu"
TOOL = "ncu"
FIX = "write it again: ncu --import REPORT --csv --page raw --print-units base > FILE.csv"
KERNEL, COUNTER, ATTRIBUTE = "kernel", "counter", "device attribute"
BROKEN, NO_VALUE = "not a whole row under its header", "no number stands there"
AGAIN = "the same for every kernel of the device"
HEADER = b'"ID","Process ID","Process Name","Host Name"'
ATTRIBUTE_PREFIX = "device__attribute_"
HEAD_BYTES = 1 << 18
LONGEST_LINE = 1 << 20
MOST_LINES = 8  # of one row: names of ranges may hold newlines
CELLS = 200_000  # of a piece
GREATEST_NS = 1 << 62
DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration.max", "gpu__time_duration.avg")
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
REGISTERS = "launch__registers_per_thread"
# ncu's attribute of a device, our fact, and the factor to the fact's unit.
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
# Groups of three digits, of India two before the last three, and of Switzerland between apostrophes.
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}|\d{1,3}(?:[ '\u2019\xa0\u202f]\d{3})+|\d{1,40})"
                     r"(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_MARKS = str.maketrans("", "", ", '\u2019\xa0\u202f")  # between groups
# Whole cells of numbers, which ncu puts in quotes, that can be read in one way only. A group has three digits.
_COMMA_IS_DECIMAL = re.compile(rb"""
    "-?(?:\d{1,3}(?:(?:\.|\ |'|\xc2\xa0|\xe2\x80\xaf|\xe2\x80\x99)\d{3})+|\d+),\d+"(?<!,\d\d\d")
    | "-?\d{1,3}(?:(?:\.|\ |\xc2\xa0|\xe2\x80\xaf)\d{3})+,\d+" | "-?\d{1,3}(?:\.\d{3}){2,}" | "-?0,\d+"
    """, re.VERBOSE)
_POINT_IS_DECIMAL = re.compile(rb'"-?\d{1,3}(?:,\d{3})+\.\d+"|"-?\d{1,3}(?:,\d{3}){2,}"|"-?\d+\.(?:\d\d|\d{4,})"'
                               rb'|"-?0\.\d\d+"')
_GROUPED_OR_NOT = re.compile(rb'"-?[1-9]\d{0,2}[.]\d{3}"')  # 1.234: a thousand, or one and a bit
_COMMA_NUMBER = re.compile(r"-?(?:\d{1,3}(?:[. '\u2019\xa0\u202f]\d{3})+|\d{1,40})(?:,\d{1,40})?(?:[eE][+-]?\d{1,3})?",
                           re.ASCII)
_GROUPS = str.maketrans(",", ".", ". '\u2019\xa0\u202f")
_SIZES = re.compile(r"\((\d{1,10}), (\d{1,10}), (\d{1,10})\)", re.ASCII)
_SCALED = re.compile(r"([KMGT])(?:i?byte|hz|cycle|inst|sector|request)", re.IGNORECASE | re.ASCII)


def recognises(path: Path) -> bool:
    """Return whether a line near the beginning is the raw page's header. Never raise."""
    head = jsonstream.head(path, HEAD_BYTES)
    start = head.find(HEADER)
    return start >= 0 and (start == 0
                           or head[start - 1:start] == b"\n") and b'"Kernel Name"' in head[start:start + 4096] \
        and b'"Metric Value"' not in head[start:start + 4096]


def kernel_pass(_: Path) -> str:
    """Return COUNTED: Nsight Compute runs every kernel by itself."""
    return COUNTED


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, counters and device_facts, and the facts. Raise BadCapture."""
    report = _NcuReport(*_read_locale(path))
    with jsonstream.opened(path) as file:
        for line in _read_lines(file):
            yield from report.read(line)
    yield from report.flush()
    if not report.has_header:
        raise BadCapture(f"{path}: not the raw page of Nsight Compute as CSV", FIX)
    yield report.device_facts()
    yield report.facts()


def _read_locale(path: Path) -> tuple[bool, tuple[str, ...]]:
    """Return whether the commas of the numbers are decimal, and a problem if no number shows it. Raise BadCapture."""
    by_comma = by_point = unclear = None
    with jsonstream.opened(path) as file:
        while line := file.readline(LONGEST_LINE):
            by_comma = by_comma or _COMMA_IS_DECIMAL.search(line)
            by_point = by_point or _POINT_IS_DECIMAL.search(line)
            unclear = unclear or _GROUPED_OR_NOT.search(line)
    if by_comma and by_point:
        raise BadCapture(f"{path}: {by_comma[0].decode()} has a decimal comma, {by_point[0].decode()} a decimal point: "
                         "its numbers are ambiguous", f"{FIX}, with LC_ALL=C")
    if by_comma or by_point or not unclear:
        return by_comma is not None, ()
    return False, (f"{unclear[0].decode()} may be a thousand times as much: no number of the file tells whether its "
                   "points are decimal; they were read as that (to be sure, export it with LC_ALL=C)",)


def _read_lines(file: BinaryIO) -> Iterator[str]:
    """Yield lines, joined if the quotes of a row span them; a line too long comes in pieces, which are not rows."""
    while line := file.readline(LONGEST_LINE):
        for _ in range(MOST_LINES):
            if line.count(b'"') % 2 == 0 or len(line) >= LONGEST_LINE or not line.startswith(b'"'):
                break
            line += file.readline(LONGEST_LINE)
        yield line.decode("utf-8", "replace").removeprefix("\ufeff")


def _split_fields(line: str) -> list[str] | None:
    try:
        rows = list(csv.reader([line.rstrip("\r\n")], strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


class _NcuReport:
    """Reads rows under the last header, and keeps the account."""

    def __init__(self, comma_is_decimal: bool, problems: tuple[str, ...]) -> None:
        self.comma_is_decimal, self.problems = comma_is_decimal, problems
        self.header: list[str] = []
        self.units: list[str] = []
        self.rows: list[dict[str, str]] = []
        self.has_header = self.awaits_units = False
        self.account = RecordAccount(KERNEL)
        self.devices: dict[int, CapturedDevice] = {}
        self.attributes: list[tuple[int, str, float]] = []
        self.host: str | None = None
        self.next_id = 0

    def read(self, line: str) -> Iterator[pa.Table]:
        """Read a line; yield tables when there are enough rows for a piece or another header begins."""
        if line.startswith(HEADER.decode()):
            yield from self.flush()
            self._begin_table(_split_fields(line) or [])
        elif not self.header or not line.strip() or line.startswith("=="):
            return
        elif self.awaits_units:
            self.units, self.awaits_units = _split_fields(line) or [], False
        else:
            self._read_row(line)
            if len(self.rows) * len(self.header) > CELLS:
                yield from self.flush()

    def _begin_table(self, header: list[str]) -> None:
        is_raw = len(set(header)) == len(header) and "Metric Value" not in header  # others have a row per metric
        self.header = header if is_raw else []
        self.has_header = self.has_header or bool(self.header)
        self.awaits_units = bool(self.header)

    def _read_row(self, line: str) -> None:
        fields = _split_fields(line)
        self.account.saw(KERNEL, 1)
        if fields is None or not len(fields) == len(self.header) == len(self.units):
            self.account.leave_out(KERNEL, BROKEN, 1)
            return
        if self.comma_is_decimal:
            fields = [_with_point(text) if "__" in name else text
                      for name, text in zip(self.header, fields, strict=True)]
        based = [_to_base_unit(text, unit) if unit else text for text, unit in zip(fields, self.units, strict=True)]
        self.rows.append(dict(zip(self.header, based, strict=True)))

    def flush(self) -> Iterator[pa.Table]:
        """Yield kernels and counters of the rows read since the last time."""
        rows, self.rows = self.rows, []
        if rows:
            ids = range(self.next_id, self.next_id + len(rows))
            self.next_id += len(rows)
            for row in rows:
                self._note_device(row)
            yield self._kernels(rows, ids)
            yield self._counters(rows, ids)

    def _kernels(self, rows: Sequence[dict[str, str]], ids: range) -> pa.Table:
        durations = [next((ns for name in DURATIONS if (ns := _nearest_integer(row.get(name, ""))) is not None), None)
                     for row in rows]
        texts = [next(filter(None, (row.get(name) for name in DURATIONS)), "") for row in rows]
        unread = [text for text, ns in zip(texts, durations, strict=True) if text and ns is None]
        self.account.trouble("kernels have no duration: gpu__time_duration was not collected",
                             durations.count(None) - len(unread))
        if unread:
            self.account.trouble(f"kernels have no duration: {unread[0][:40]!r} is no number", len(unread))
        possible = [ns if ns is not None and ns <= LONGEST_NS else None for ns in durations]
        self.account.trouble(f"kernels have no duration: {TOO_LONG}", possible.count(None) - durations.count(None))
        self.account.kernel_ns += sum(ns or 0 for ns in possible)
        blocks, grids = _parse_sizes(rows, "Block Size"), _parse_sizes(rows, "Grid Size")
        columns: dict[str, Any] = {
            name: integers([_nearest_integer(row.get(title, "")) for row in rows])
            for name, title in (("dispatch_id", "ID"), ("process_id", "Process ID"), ("device_id", "Device"),
                                ("stream_id", "Stream"), ("vgpr", REGISTERS))}
        for index, axis in enumerate("xyz"):
            columns[f"block_{axis}"] = integers([block[index] if block else None for block in blocks])
            columns[f"grid_{axis}"] = integers([grid[index] * block[index] if block and grid else None
                                                for block, grid in zip(blocks, grids, strict=True)])
        return KERNELS.build(
            kernel_id=list(ids), kernel_name=encoded([bare(row.get("Kernel Name", "")) for row in rows]),
            dur_ns=integers(possible), lds_bytes=integers([_sum_columns(row, SHARED) for row in rows]),
            occupancy_pct=[_real_number(row.get(OCCUPANCY, "")) for row in rows], source=constant(FORMAT, len(rows)),
            **columns)

    def _counters(self, rows: Sequence[dict[str, str]], ids: range) -> pa.Table:
        names = [name for name, unit in zip(self.header, self.units, strict=True)
                 if "__" in name and not name.startswith(ATTRIBUTE_PREFIX) and ":" not in name]
        kernels, codes, values = [], [], []
        for number, row in zip(ids, rows, strict=True):
            for code, name in enumerate(names):
                metric_value = _real_number(row[name])
                if metric_value is not None:
                    kernels.append(number)
                    codes.append(code)
                    values.append(metric_value)
        self.account.saw(COUNTER, len(rows) * len(names))
        self.account.leave_out(COUNTER, NO_VALUE, len(rows) * len(names) - len(values))
        counters = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string()))
        return COUNTERS.build(kernel_id=pa.array(kernels, pa.int64()), counter=counters,
                              value=pa.array(values, pa.float64()))

    def _note_device(self, row: dict[str, str]) -> None:
        """Note the device of a kernel and its attributes at its first kernel."""
        attributes = {name.removeprefix(ATTRIBUTE_PREFIX): text
                      for name, text in row.items() if name.startswith(ATTRIBUTE_PREFIX)}
        number = _nearest_integer(row.get("Device", ""))
        self.host = self.host or row.get("Host Name") or None
        self.account.saw(ATTRIBUTE, len(attributes))
        if number is None or number in self.devices:
            self.account.leave_out(ATTRIBUTE, AGAIN, len(attributes))
            return
        self.devices[number] = CapturedDevice(number, attributes.get("display_name") or None,
                                              _architecture(row.get("CC", "")),
                                              _nearest_integer(attributes.get("multiprocessor_count", "")),
                                              _nearest_integer(attributes.get("total_memory", "")))
        self.attributes += [(number, fact, attribute * factor) for name, fact, factor in FACTS
                            if (attribute := _real_number(attributes.get(name, ""))) is not None]

    def device_facts(self) -> pa.Table:
        """Return the numbers that are known of the devices."""
        devices, names, values = zip(*self.attributes, strict=True) if self.attributes else ((), (), ())
        return DEVICE_FACTS.build(device_id=devices, name=names, value=values)

    def facts(self) -> CaptureFacts:
        """Return the facts of the capture."""
        return self.account.facts(FORMAT, self.problems, tool=TOOL, devices=tuple(self.devices.values()),
                                  host=self.host)


def _with_point(text: str) -> str:
    """Return a number of a locale with a decimal comma as others write it; other text unchanged."""
    return text.translate(_GROUPS) if _COMMA_NUMBER.fullmatch(text) else text


def _to_base_unit(text: str, unit: str) -> str:
    """Return the number in the base unit of its unit's kind; other text, and numbers in base units, unchanged."""
    factor = _unit_factor(unit)
    if factor == 1 or _NUMBER.fullmatch(text) is None:
        return text
    return format(Decimal(text.translate(_MARKS)) * factor, "f")


def _unit_factor(unit: str) -> Decimal:
    """Return the base units in one of the unit: `Mbyte/second` is a million bytes per second, `us` a thousand ns."""
    numerator = unit.partition("/")[0]
    if numerator in _SECONDS:
        return Decimal(_SECONDS[numerator])
    match = _SCALED.fullmatch(numerator)
    return _PREFIXES[match[1].upper()] if match else Decimal(1)


def _real_number(text: str) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text.translate(_MARKS))
    return number if abs(number) < 1e300 else None


def _nearest_integer(text: str) -> int | None:
    """Return the integer nearest to a text's number, from 0 to below 2^62, else None."""
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        number = int(Decimal(text.translate(_MARKS)).to_integral_value())
    except InvalidOperation:
        return None
    return number if 0 <= number < GREATEST_NS else None


def _sum_columns(row: dict[str, str], names: Sequence[str]) -> int | None:
    numbers = [_nearest_integer(row.get(name, "")) for name in names]
    return None if None in numbers else sum(number or 0 for number in numbers)


def _parse_sizes(rows: Sequence[dict[str, str]], name: str) -> list[tuple[int, int, int] | None]:
    matches = (_SIZES.fullmatch(row.get(name, "").strip()) for row in rows)
    return [(int(match[1]), int(match[2]), int(match[3])) if match else None for match in matches]


def _architecture(capability: str) -> str | None:
    major, dot, minor = capability.partition(".")
    return f"sm_{major}{minor}" if dot and major.isdecimal() and minor.isdecimal() and len(capability) < 8 else None
