"""A history as a plain CSV file, rows in the order of time: a column `value`, or one column of numbers per metric.

Other columns count if their names are in `plain.NAMES`: time, commit, benchmark, unit, and so on. A file without a
header is one column of numbers. Commas, semicolons and tabs divide; bytes that are not UTF-8 are replaced.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from aaco.core.errors import BadCapture
from aaco.profiler.histories.plain import FIELD, fields, take
from aaco.profiler.histories.samples import MOST_BYTES, ImportedHistory
from aaco.profiler.io import jsonfile

FORMAT = "csv"
_FIX = "a header such as time,commit,benchmark,value,unit; or one number to the line"


def recognises(path: Path) -> bool:
    """Return whether the file begins with a row that can be a header or a number. Never raise."""
    head = jsonfile.head(path, 1 << 16).decode("utf-8-sig", "replace").partition("\n")[0].strip()
    if not head or "\0" in head or head[0] in "{[":
        return False
    names = [name.strip().strip('"').lower() for name in head.split(_divider(head))]
    return _parse_number(head) is not None or (any(name in FIELD for name in names)
                                               and len(names) > 1) or names == ["value"]


def parse(path: Path, name: str) -> ImportedHistory:
    """Return the samples of a file, row by row. Raise BadCapture.

    name: of the benchmark and, numbered, of the sessions, if the file names none.
    """
    history = ImportedHistory(FORMAT)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadCapture(f"{path}: more than {MOST_BYTES >> 20} MiB", "import a part of the history")
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            for index, row in enumerate(_read_rows(file, history)):
                take(history, row, name, f"{name}-{index}")
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror}", "check the file and its permissions") from error
    except csv.Error as error:
        raise BadCapture(f"{path}: {error}", _FIX) from error
    if not history.samples and not history.left_out:
        raise BadCapture(f"{path}: no values", _FIX)
    return history


def _read_rows(file: TextIO, history: ImportedHistory) -> Iterator[dict[str, Any]]:
    """Yield every value of the file with the other fields of its row."""
    head = file.readline(1 << 16)
    file.seek(0)
    reader = csv.reader(file, delimiter=_divider(head))
    header = next(reader, [])
    if len(header) == 1 and _parse_number(header[0]) is not None:
        yield {"value": _parse_number(header[0])}
        header = ["value"]
    header = [name.strip() for name in header]
    header_fields = fields(dict.fromkeys(header))
    metrics = [] if "value" in header_fields else [name for name in header if name.lower() not in FIELD and name]
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            history.left_out["a row with more or fewer fields than the header"] += 1
            continue
        row = dict(zip(header, cells, strict=True))
        values = fields(row)
        if not metrics:
            yield values | {"value": _parse_number(str(values.get("value", "")))}
        for metric in metrics:
            if row[metric].strip():
                yield values | {"metric": metric, "value": _parse_number(row[metric])}


def _divider(head: str) -> str:
    return max(",;\t", key=head.count)


def _parse_number(cell: str) -> float | None:
    try:
        return float(cell.strip())
    except ValueError:
        return None
