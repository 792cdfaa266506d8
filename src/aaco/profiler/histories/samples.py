"""Shared code of the readers of histories: a document read within limits, its values only of their declared types, and
the samples made of them, with a count and a reason for each value left out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.profiler.io import jsonfile
from aaco.tracelake.history.history import LONGEST, TIMES, Direction, Key, Sample

MOST_BYTES = 1 << 26
MOST_SAMPLES = 500_000
NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_NS = 1 << 62  # a time in ns that still fits a table


class ImportedHistory(Struct):
    """The samples of a file, and the number of values left out, by reason. time_ns is 0 if none is recorded."""

    source: str
    samples: list[Sample] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    processes: Counter[tuple[Key, str]] = field(default_factory=Counter)  # rows so far, of a key's session

    def add(self, key: Key, session_id: str, value: Any, unit: str, *, time_ns: int = 0, process: int = 0,
            iterations: int = 1, direction: Direction = "lower_is_better", commit: str | None = None,
            branch: str | None = None) -> None:
        """Add a value. A value that is not a measurement is counted as left out."""
        measurement = number(value)
        if measurement is None:
            self.left_out["not a finite number"] += 1
        elif unit in TIMES and measurement <= 0:
            self.left_out["a time that is zero or negative"] += 1
        elif not key.benchmark or not key.metric or not session_id:
            self.left_out["without a name"] += 1
        else:
            self.samples.append(Sample(key, session_id, process, measurement, unit, direction, time_ns,
                                       max(1, iterations),
                                       commit or None, branch or None, source=self.source))
        if len(self.samples) > MOST_SAMPLES:
            raise BadCapture(f"more than {MOST_SAMPLES:,} values", "import a part of the history")


def document(path: Path) -> Any:
    """Return the file's JSON document; Infinity and NaN, which asv writes for unknown values, are null.

    Raise BadCapture if it is not JSON or has more than 64 MiB.
    """
    try:
        return json.loads(jsonfile.content(path, MOST_BYTES), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise BadCapture(f"{path}: not a JSON document, or cut short: {str(error)[:200]}",
                         "export it again") from error


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return the value if it is text that can be a name, else an empty text."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return ""
    return value.encode(errors="replace").decode()


def number(value: Any) -> float | None:
    """Return the value as a finite number; None for any other."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def count(value: Any, otherwise: int = 1) -> int:
    """Return the value as an integer of at least 0 that a table can hold, else `otherwise`."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_NS else otherwise


def instant_ns(value: Any) -> int:
    """Return a moment as ns since 1970: ISO 8601 (UTC without a zone), or a number of s, ms, us or ns; 0 for any other.

    The size of a number shows its unit: each unit is read for the years 1973 to 5138.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return _clock_ns(_parse_number(value))
        since_epoch = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        ns = (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1000
        return ns if 0 < ns < _LARGEST_NS else 0
    return _clock_ns(value if isinstance(value, int) and not isinstance(value, bool) else number(value))


def _parse_number(value: str) -> float | None:
    try:
        return number(float(value))
    except ValueError:
        return None


def _clock_ns(value: float | None) -> int:
    """Return ns since 1970; exact for an integer."""
    for factor_ns, least in ((1, 10**17), (10**3, 10**14), (10**6, 10**11), (10**9, 10**8)):
        if value is not None and value >= least:
            since_epoch_ns = int(value * factor_ns)
            return since_epoch_ns if since_epoch_ns < _LARGEST_NS else 0
    return 0
