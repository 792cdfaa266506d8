"""A history as plain JSON: numbers in the order of time, or rows with the fields that a plain CSV file's columns have.

    [12.1, 12.0, 12.3]
    [{"time": "2026-01-31T12:00:00Z", "commit": "ab12", "benchmark": "decode", "value": 12.1, "unit": "ms"}, ...]
    {"benchmark": "decode", "unit": "ms", "values": [12.1, 12.0, 12.3]}
    {"series": [{"benchmark": "decode", "values": [...]}, ...]}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aaco.profiler.histories.plain import Row, fields, take
from aaco.profiler.histories.samples import History, mapping, rows

FORMAT = "json"


def recognises(document: Any) -> bool:
    """Whether a JSON document is of this form."""
    return any(True for _ in _rows(document))


def parse(document: Any, name: str) -> History:
    """The samples of a document.

    name: of the benchmark and, numbered, of the sessions, where the document gives none.
    """
    history = History(FORMAT)
    for place, row in enumerate(_rows(document)):
        take(history, row, name, f"{name}-{place}")
    return history


def _rows(document: Any) -> Iterator[Row]:
    if isinstance(document, list):
        for item in document:
            if isinstance(item, dict):
                if "value" in (row := fields(item)):
                    yield row
            elif item is None or isinstance(item, int | float):
                yield {"value": item}
        return
    found = mapping(document)
    common = {name: value for name, value in fields(found).items() if name != "value"}
    for value in rows(found.get("values")):
        yield common | {"value": value}
    for inner in rows(found.get("series")):
        yield from (common | dict(row) for row in _rows(inner) if isinstance(inner, dict))
