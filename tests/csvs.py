"""CSV files and a plain, slow reader of them: the csv module and int."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a well-formed file by header."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        return list(csv.DictReader(file))


def text(table: Iterable[Sequence[object]], quoting: int = csv.QUOTE_NONNUMERIC, newline: str = "\n") -> str:
    """The rows as CSV, the header first."""
    written = io.StringIO()
    csv.writer(written, quoting=quoting, lineterminator=newline).writerows(table)
    return written.getvalue()


def write(path: Path, table: Iterable[Sequence[object]], quoting: int = csv.QUOTE_NONNUMERIC) -> Path:
    """A file of these rows."""
    path.write_text(text(table, quoting), newline="")
    return path
