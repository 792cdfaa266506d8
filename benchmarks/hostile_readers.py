"""Plain readers of captures, for benchmarks.hostile: kernels of a file and their ns, with nothing of the product.

A record counts if it has a time: both ends are whole numbers above 0 (or from 0 on, where the clock may begin with the
recording), in order, no longer than 2^53 ns, within 10^17 ns of the middle of all of them, and, of three or more,
within a day of another. A reader returns None where the file is not what it was.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

Pair = tuple[int | None, int | None]
Total = tuple[int, int] | None
WORK = re.compile(r"(\d{1,19}):(\d{1,19}) (\d+):(\d+) (.+):(\d+):(\d+)")
DAY_NS = 86_400 * 10**9


def total(pairs: Iterable[Pair], from_zero: bool = False) -> tuple[int, int]:
    """Kernels and ns of those that have a time."""
    timed = [(begin, end) for begin, end in pairs if begin is not None and end is not None
             and 0 <= begin <= end < 1 << 62 and end - begin <= 1 << 53
             and (0 < end <= DAY_NS if from_zero and not begin else begin and end)]
    middle = sorted(begin for begin, _ in timed)[len(timed) // 2] if timed else 0
    begins = [begin for begin, _ in timed]
    near = [end - begin for begin, end in timed if abs(begin - middle) <= 10**17 and (
        len(begins) < 3 or sum(abs(begin - other) <= DAY_NS for other in begins) > 1)]
    return len(near), sum(near)


def _tolerant(read: Callable[[Path], Total]) -> Callable[[Path], Total]:
    def reader(path: Path) -> Total:
        try:
            return read(path)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, OSError, RecursionError, sqlite3.Error,
                csv.Error, OverflowError, InvalidOperation):
            return None
    return reader


def _whole(value: Any) -> int | None:
    """A time that fits 64 bits."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value.strip()):
        value = int(value)
    return value if type(value) is int and -(1 << 63) < value < 1 << 63 else None


def _ns(value: Any) -> int | None:
    """Microseconds, as a number or as text, in ns."""
    try:
        exact = Decimal(value if isinstance(value, str) else repr(value) if isinstance(value, float) else value)
        ns = int((exact * 1000).to_integral_value()) if exact.is_finite() and exact.adjusted() < 16 else None
    except (InvalidOperation, TypeError, ValueError):
        return None
    return ns if ns is not None and abs(ns) <= 1 << 61 else None


def _load(path: Path) -> Any:
    return json.loads(path.read_text(), parse_float=Decimal)


def kineto(path: Path) -> Total:
    """Complete events of category kernel."""
    document = _load(path)
    events = document["traceEvents"] if isinstance(document, dict) else document
    kernels = [event for event in events
               if event.get("ph") == "X" and str(event.get("cat")).strip("\0 ") in ("kernel", "Kernel")]
    return total(_spans(kernels), from_zero=True)


def _spans(events: Iterable[dict[str, Any]]) -> Iterator[Pair]:
    for event in events:
        begin, took = _ns(event.get("ts")), _ns(event.get("dur"))
        yield begin, None if begin is None or took is None else begin + took


def ort(path: Path) -> Total:
    """Executions of nodes."""
    nodes = [event for event in _load(path) if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    return total(_spans(nodes), from_zero=True)


def rocprofv3_json(path: Path) -> Total:
    """Dispatches of the trace."""
    records = [record for process in _load(path)["rocprofiler-sdk-tool"]
               for record in process["buffer_records"]["kernel_dispatch"]]
    return total((_whole(record["start_timestamp"]), _whole(record["end_timestamp"])) for record in records)


def rocprof_json(path: Path) -> Total:
    """Intercepted dispatches on a device's row."""
    events = _load(path)["traceEvents"]
    args = [event["args"] for event in events if event.get("args", {}).get("KernelName") is not None]
    return total((_whole(each.get("BeginNs")), _whole(each.get("EndNs"))) for each in args)


def ncu(path: Path) -> Total:
    """Rows below the units, and their durations: a row has no times."""
    text = path.read_text()
    head, units, *rows = csv.reader(io.StringIO(text[text.index('\n"') + 1:]))
    column = head.index("gpu__time_duration.sum")
    if units[column] != "ns" or any(len(row) != len(head) for row in rows):
        return None
    taken = [Decimal(row[column].replace(",", "") or 0) for row in rows]
    return len(rows), sum(int(ns.to_integral_value()) for ns in taken if ns.is_finite() and 0 <= ns <= 1 << 53)


def _cells(begin: str, end: str) -> Callable[[Path], Total]:
    def reader(path: Path) -> Total:
        with path.open(newline="") as file:
            return total([(_whole(row[begin]), _whole(row[end])) for row in csv.DictReader(file)])
    return reader


def roctracer(path: Path) -> Total:
    """Lines of work on a device."""
    matches = (WORK.fullmatch(line) for line in path.read_text().splitlines())
    return total([(int(match[1]), int(match[2])) for match in matches
                  if match and "Copy" not in match[5] and "barrier" not in match[5]])


def _rows(path: Path, words: str, begin: str, end: str, where: str = "1") -> Iterator[Pair]:
    """Times in every table whose name has the word, whatever else it is called."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?"
        for (name,) in database.execute(named, (f"%{words}%",)).fetchall():
            for pair in database.execute(f'SELECT "{begin}", "{end}" FROM "{name}" WHERE {where}'):
                yield _whole(pair[0]), _whole(pair[1])


def _table(words: str, begin: str, end: str, where: str = "1", from_zero: bool = False) -> Callable[[Path], Total]:
    return lambda path: total(_rows(path, words, begin, end, where), from_zero)


RPD_KERNEL = "opType_id IN (SELECT id FROM rocpd_string WHERE string IN ('KernelExecution', 'Task'))"
READERS: dict[str, Callable[[Path], Total]] = {form: _tolerant(read) for form, read in {
    "kineto": kineto, "ncu": ncu, "ort": ort, "rocprofv3_json": rocprofv3_json, "rocprof_json": rocprof_json,
    "roctracer": roctracer, "rocprofv3_csv": _cells("Start_Timestamp", "End_Timestamp"),
    "rocprof_csv": _cells("BeginNs", "EndNs"), "rocprof_db": _table("KERN", "BeginNs", "EndNs"),
    "rocpd": _table("kernel_dispatch", "start", "end"), "rpd": _table("rocpd_op", "start", "end", RPD_KERNEL),
    "nsys": _table("ACTIVITY_KIND_KERNEL", "start", "end", from_zero=True)}.items()}
