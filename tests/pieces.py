"""What a parser hands over, put together: whole tables by name, and the Facts."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from aaco.profiler.capture import CaptureFacts


def together(pieces: Iterable[pa.Table | CaptureFacts]) -> tuple[dict[str, pa.Table], CaptureFacts]:
    """The tables of all pieces by name, and the Facts, which must come last and once."""
    *tables, facts = pieces
    assert isinstance(facts, CaptureFacts)
    apart: dict[str, list[pa.Table]] = {}
    for table in tables:
        apart.setdefault(table.schema.metadata[b"aaco.table"].decode(), []).append(table)
    return {name: pa.concat_tables(parts).unify_dictionaries() for name, parts in apart.items()}, facts


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, with what they do not say left away."""
    return [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
