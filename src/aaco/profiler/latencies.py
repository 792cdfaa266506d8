"""Latencies of single steps as people keep them: one number, or a CSV file with a column of them.

The unit is in the column's name (ns, us, ms or s as its last word: `latency_us`, `ms`); a file without a header, and a
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
    """The latencies in ms of what a user gave: a number, or the path of a file. Raises UsageError."""
    number = _number(text)
    found = [number] if number is not None else _file(Path(text))
    if wrong := [each for each in found if not 0 < each < 1e12]:
        raise UsageError(f"--latency {text}: {wrong[0]:g} ms is no time that a step takes", "--latency 3.5")
    return found


def _file(path: Path) -> list[float]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"--latency {path}: more than {MOST_BYTES >> 20} MB", "give the median: --latency MS")
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except OSError as error:
        raise UsageError(f"--latency {path}: {error.strerror}", "a number of milliseconds, or a CSV file") from error
    except csv.Error as error:
        raise UsageError(f"--latency {path}: {error}", "one number to the line") from error
    column, scale = _column(path, rows)
    return [_cell(path, row, column) * scale for row in rows[_header(rows):]]


def _header(rows: list[list[str]]) -> int:
    """How many rows of names there are: 1, or 0 where the first row is numbers."""
    return int(bool(rows) and not any(_number(cell) is not None for cell in rows[0]))


def _column(path: Path, rows: list[list[str]]) -> tuple[int, float]:
    """Which column holds the latencies, and what makes milliseconds of it."""
    if not _header(rows):
        if not rows or len(rows[0]) != 1:
            raise UsageError(f"--latency {path}: no header says which column holds the latencies",
                             "a header such as iteration,latency_ms, or one number to the line")
        return 0, 1.0
    named = [(index, UNITS_MS[words[-1]], words) for index, name in enumerate(rows[0])
             if (words := [word for word in _WORDS.split(name.lower()) if word]) and words[-1] in UNITS_MS]
    chosen = [each for each in named if "latency" in each[2] or "lat" in each[2]] or named
    if not chosen or len(chosen) > 1 or len(rows) < 2:
        why = "no values" if len(rows) < 2 and chosen else f"{len(chosen)} columns may hold the latencies"
        raise UsageError(f"--latency {path}: {why}", "name one column latency_ms (or _us, _ns, _s)")
    return chosen[0][0], chosen[0][1]


def _cell(path: Path, row: list[str], column: int) -> float:
    found = _number(row[column]) if column < len(row) else None
    if found is None:
        raise UsageError(f"--latency {path}: {','.join(row)[:40]!r} has no number in column {column + 1}",
                         "one number to the line")
    return found


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
