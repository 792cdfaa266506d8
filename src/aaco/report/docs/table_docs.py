"""docs/reference/tables.md, generated from the table specs."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core import tables


def render() -> str:
    """Return the page: every table with its file, meaning and columns."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Tables of a session"
    yield ""
    yield "Written from the code by `./scripts/docs`; do not edit. Times are int64 nanoseconds on CLOCK_MONOTONIC."
    yield "A column that a source cannot fill is null, never 0. Columns are added, never renamed."
    for spec in tables.ALL.values():
        yield from ("", f"## {spec.name}", "", f"`{spec.file}`, version {spec.version}. {spec.meaning}", "",
                    "| column | type | meaning |", "|---|---|---|")
        yield from (f"| {name} | {_plain(kind)} | {meaning} |" for name, (kind, meaning) in spec.columns.items())


def _plain(kind: object) -> str:
    """Return Arrow's name of a type; `string` for a dictionary-encoded string."""
    return "string" if str(kind).startswith("dictionary") else str(kind).replace("item: ", "")

