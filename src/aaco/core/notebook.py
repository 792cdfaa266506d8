"""What a notebook shows of an object: a small HTML table, everything in it escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def table(rows: Iterable[tuple[str, object]]) -> str:
    """Return the rows that have a text, as (label, text)."""
    cells = "".join(f"<tr><th style='text-align:left'>{escape(label)}</th><td style='text-align:left'>"
                    f"{escape(str(text))}</td></tr>" for label, text in rows if text not in (None, ""))
    return f"<table>{cells}</table>"
