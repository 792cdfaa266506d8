"""The SQL of queries/, and the DuckDB that runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import duckdb

MEMORY = "500MB"


@contextmanager
def connected() -> Iterator[Any]:
    """Open a DuckDB that loads nothing by itself; what does not fit into MEMORY goes to a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        connection: Any = duckdb.connect(config={
            "memory_limit": MEMORY, "threads": 2, "autoinstall_known_extensions": False,
            "autoload_known_extensions": False, "python_enable_replacements": False,
            "preserve_insertion_order": False, "temp_directory": str(Path(folder) / "spill")})
        try:
            connection.execute("SET parquet_metadata_cache = true")  # each map opens all files again
            yield connection
        finally:
            connection.close()


def text(name: str) -> str:
    """Return the text of queries/NAME.sql."""
    return resources("aaco.fleet").joinpath("queries", f"{name}.sql").read_text()


def quoted(content: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + content.replace("'", "''") + "'"


def listed(values: Sequence[str]) -> str:
    """Return texts as a list of SQL."""
    return f"[{', '.join(map(quoted, values))}]"


def column(name: str, values: Sequence[str]) -> str:
    """Return a SELECT of a column of texts."""
    return f"SELECT unnest({listed(values)}::VARCHAR[]) AS {name}"
