"""What a parser yields, gathered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from aaco.profiler.capture import CaptureFacts


def gather(pieces: Iterable[pa.Table | CaptureFacts]) -> tuple[dict[str, pa.Table], CaptureFacts]:
    """The tables by name, and the Facts, which must come last."""
    *parts, facts = pieces
    assert isinstance(facts, CaptureFacts)
    found: dict[str, list[pa.Table]] = {}
    for part in parts:
        found.setdefault(part.schema.metadata[b"aaco.table"].decode(), []).append(part)
    return {name: pa.concat_tables(tables).unify_dictionaries() for name, tables in found.items()}, facts


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of some columns."""
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))
