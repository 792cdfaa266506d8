"""A history as plain JSON: numbers in the order of time, or rows with the fields of a plain CSV file's columns.

    [12.1, 12.0, 12.3]
    [{"time": "2026-01-31T12:00:00Z", "commit": "ab12", "benchmark": "decode", "value": 12.1, "unit": "ms"}, ...]
    {"benchmark": "decode", "unit": "ms", "values": [12.1, 12.0, 12.3]}
    {"series": [{"benchmark": "decode", "values": [...]}, ...]}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aaco.profiler.histories.plain import HistoryRow, fields, take
from aaco.profiler.histories.samples import ImportedHistory, mapping, rows

FORMAT = "json"


def recognises(document: Any) -> bool:
    """Return whether a JSON document has this format."""
    return any(True for _ in _read_rows(document))


def parse(document: Any, name: str) -> ImportedHistory:
    """Return the samples of a document.

    name: of the benchmark and, numbered, of the sessions, if the document names none.
    """
    history = ImportedHistory(FORMAT)
    for index, row in enumerate(_read_rows(document)):
        take(history, row, name, f"{name}-{index}")
    return history


def _read_rows(document: Any) -> Iterator[HistoryRow]:
    if isinstance(document, list):
        for entry in document:
            if isinstance(entry, dict):
                if "value" in (row := fields(entry)):
                    yield row
            elif entry is None or isinstance(entry, int | float):
                yield {"value": entry}
        return
    outer = mapping(document)
    common = {name: value for name, value in fields(outer).items() if name != "value"}
    for value in rows(outer.get("values")):
        yield common | {"value": value}
    for inner in rows(outer.get("series")):
        yield from (common | dict(row) for row in _read_rows(inner) if isinstance(inner, dict))
