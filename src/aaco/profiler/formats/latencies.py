"""Latencies of single steps as people record them: one number, or a CSV file with a column of them.

The column's name has the unit (ns, us, ms or s as its last word: `latency_us`, `ms`); a file without a header, and a
bare number, are in milliseconds.
"""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

from aaco.core.errors import UsageError

MOST_BYTES = 1 << 28
UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_WORDS = re.compile(r"[^a-z0-9]+")


def read(text: str) -> list[float]:
    """Return the latencies in ms from a user's text: a number, or the path of a file. Raise UsageError."""
    number = _parse_number(text)
    latencies = [number] if number is not None else _read_file(Path(text))
    if wrong := [latency for latency in latencies if not 0 < latency < 1e12]:
        raise UsageError(f"--latency {text}: {wrong[0]:g} ms is no time that a step takes", "--latency 3.5")
    return latencies


def _read_file(path: Path) -> list[float]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"--latency {path}: more than {MOST_BYTES >> 20} MB", "give the median: --latency MS")
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except OSError as error:
        raise UsageError(f"--latency {path}: {error.strerror}", "a number of milliseconds, or a CSV file") from error
    except csv.Error as error:
        raise UsageError(f"--latency {path}: {error}", "one number to the line") from error
    column, scale = _find_column(path, rows)
    return [_read_cell(path, row, column) * scale for row in rows[_count_header_rows(rows):]]


def _count_header_rows(rows: list[list[str]]) -> int:
    """Return the number of rows of names: 1, or 0 if the first row is numbers."""
    return int(bool(rows) and not any(_parse_number(cell) is not None for cell in rows[0]))


def _find_column(path: Path, rows: list[list[str]]) -> tuple[int, float]:
    """Return the index of the column of latencies, and its factor to milliseconds."""
    if not _count_header_rows(rows):
        if not rows or len(rows[0]) != 1:
            raise UsageError(f"--latency {path}: no header says which column holds the latencies",
                             "a header such as iteration,latency_ms, or one number to the line")
        return 0, 1.0
    named = [(index, UNITS_MS[words[-1]], words) for index, name in enumerate(rows[0])
             if (words := [word for word in _WORDS.split(name.lower()) if word]) and words[-1] in UNITS_MS]
    candidates = [candidate for candidate in named if "latency" in candidate[2] or "lat" in candidate[2]] or named
    if not candidates or len(candidates) > 1 or len(rows) < 2:
        why = "no values" if len(rows) < 2 and candidates else f"{len(candidates)} columns may hold the latencies"
        raise UsageError(f"--latency {path}: {why}", "name one column latency_ms (or _us, _ns, _s)")
    return candidates[0][0], candidates[0][1]


def _read_cell(path: Path, row: list[str], column: int) -> float:
    number = _parse_number(row[column]) if column < len(row) else None
    if number is None:
        raise UsageError(f"--latency {path}: {','.join(row)[:40]!r} has no number in column {column + 1}",
                         "one number to the line")
    return number


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
