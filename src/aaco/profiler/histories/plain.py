"""The columns of a plain history under all their common names, and the sample of a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aaco.profiler.histories.samples import ImportedHistory, count, instant_ns, text
from aaco.tracelake.history.history import Direction, Key

HistoryRow = Mapping[str, Any]
NAMES = {
    "value": ("value", "result", "measurement"),
    "benchmark": ("benchmark", "name", "test", "case"),
    "metric": ("metric",),
    "unit": ("unit", "units"),
    "time": ("time", "timestamp", "date", "datetime", "time_ns", "created", "created_at"),
    "commit": ("commit", "revision", "sha", "hash", "commit_hash", "commit_id", "git_commit"),
    "branch": ("branch", "git_branch"),
    "session": ("session", "session_id", "run", "run_id", "build"),
    "process": ("process",),
    "machine": ("machine", "host", "hostname", "runner"),
    "config": ("config", "configuration", "environment", "env"),
    "iterations": ("iterations",),
    "direction": ("direction", "better"),
}
FIELD = {name: meaning for meaning, names in NAMES.items() for name in names}
HIGHER = ("higher", "higher_is_better", "up", "+")
UNIT_AT_END = re.compile(r"_(ns|us|ms|s)$")


def fields(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row's values by meaning; columns without a known meaning are skipped."""
    return {FIELD[column]: value for name, value in row.items() if (column := str(name).strip().lower()) in FIELD}


def take(history: ImportedHistory, row: HistoryRow, benchmark: str, otherwise: str) -> None:
    """Add the row's value. benchmark, otherwise: its benchmark and its session if the row names none.

    Rows of one session, or else of one commit at one time, are processes of it, in their order.
    """
    metric, unit = text(row.get("metric")) or "value", text(row.get("unit"))
    unit_match = UNIT_AT_END.search(metric)
    key = Key(text(row.get("benchmark")) or benchmark, metric, _name(row.get("machine")), _name(row.get("config")))
    moment = row.get("time")
    session = _name(row.get("session")) or "-".join(filter(None, (_name(row.get("commit")), _name(moment))))
    history.add(key, session or otherwise, row["value"], unit or (unit_match[1] if unit_match else ""),
                time_ns=instant_ns(moment), process=_process(history, key, session, row.get("process")),
                iterations=count(_int_of_digits(row.get("iterations"))), direction=_direction(row.get("direction")),
                commit=_name(row.get("commit")), branch=_name(row.get("branch")))


def _process(history: ImportedHistory, key: Key, session: str, stated: Any) -> int:
    """Return the process number of the row, or the number of earlier rows of its session."""
    number = _int_of_digits(stated)
    if number is not None or not session:
        return count(number, 0)
    before = history.processes[key, session]
    history.processes[key, session] += 1
    return before


def _name(value: Any) -> str:
    return text(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _int_of_digits(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 19 else value


def _direction(value: Any) -> Direction:
    return "higher_is_better" if isinstance(value, str) and value.lower() in HIGHER else "lower_is_better"
