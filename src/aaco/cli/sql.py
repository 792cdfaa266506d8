"""`aaco sql`: ask the tables of sessions."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.core.files import finite
from aaco.report.format import cells, cut, pad, plural

if TYPE_CHECKING:
    from aaco.core.session import Session
    from aaco.tracelake.sql import Answer

SHOWN = 50  # rows of a table on a terminal
WIDEST = 60  # columns of the terminal that a value may take


@manual.command()
@click.argument("query")
@click.option("--session", "references", multiple=True, metavar="SESSION", help="Ask this one; may be given again.",
              shell_complete=options.of_kind("session"))
@click.option("--all", "every", is_flag=True, help="Ask every session; the column session_id tells them apart.")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json", "arrow"]), default="table",
              show_default=True, help="Form of the answer; arrow is an Arrow IPC stream.")
@click.option("--limit", type=options.COUNT, help="Rows at most.  [default: 50 of a table, else all]")
@options.with_settings
@options.as_json
def sql(query: str, references: tuple[str, ...], every: bool, form: str, limit: int | None, settings: options.Settings,
        as_json: bool) -> None:
    """Answer QUERY, a SELECT over the tables of the latest session: kernels, copies, api_calls, counters, ...

    `events` is everything that has a time, in one table. Nothing can be changed, and no other file be read.
    """
    from aaco.tracelake.sql import ask

    root = settings.config.storage.sessions_dir
    writers = {"table": _table, "csv": _csv, "json": _json, "arrow": _arrow}
    form = "json" if as_json else form
    with ask(_sessions(references, every, root), query, spelt=form != "arrow") as answer:
        writers[form](answer, limit)


def _sessions(references: tuple[str, ...], every: bool, root: Path) -> list[Session]:
    from aaco.core.session import find, sessions

    if every:
        return list(sessions(root))
    return [find(reference, root) for reference in references or ("latest",)]


def _rows(answer: Answer) -> Iterator[tuple[Any, ...]]:
    for batch in answer.batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _table(answer: Answer, most: int | None) -> None:
    limit = SHOWN if most is None else most
    rows = list(islice(_rows(answer), limit + 1))
    texts = [[cut(_text(value), WIDEST) for value in row] for row in rows[:limit]]
    header = [cut(name, WIDEST) for name in answer.schema.names]
    widths = [max(map(cells, column)) for column in zip(header, *texts, strict=True)]
    numeric = [all(isinstance(row[at], int | float | Decimal | None) for row in rows) for at in range(len(header))]
    for line in (header, ["─" * width for width in widths], *texts):
        parts = [" " * (width - cells(text)) + text if right else pad(text, width)
                 for text, width, right in zip(line, widths, numeric, strict=True)]
        say.line("  ".join(parts).rstrip())
    if len(rows) > limit:
        say.aside(f"the first {plural(limit, 'row')}; --limit shows more, --format csv all")


def _csv(answer: Answer, limit: int | None) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.schema.names)
    writer.writerows(islice(_rows(answer), limit))


def _json(answer: Answer, limit: int | None) -> None:
    say.text('{"schema_version": 1, "columns": ' + json.dumps(answer.schema.names) + ', "rows": [')
    rows = _rows(answer)
    for number, row in enumerate(islice(rows, limit)):
        say.text(("," if number else "") + "\n  " + json.dumps(finite(row), default=_plain, allow_nan=False))
    more = limit is not None and next(rows, None) is not None
    say.text(f'\n], "truncated": {json.dumps(more)}}}\n')


def _arrow(answer: Answer, limit: int | None) -> None:
    import pyarrow as pa

    left = sys.maxsize if limit is None else limit
    with pa.ipc.new_stream(sys.stdout.buffer, answer.schema) as writer:
        for batch in answer.batches:
            writer.write_batch(batch.slice(0, left))
            left -= batch.num_rows
            if left <= 0:
                break


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _plain(value: Any) -> Any:
    """What JSON has no word for: sums come as decimals, times as text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)
