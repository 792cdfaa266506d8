"""Writes to a SQLite file that happen as a whole, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exclusive(connection: sqlite3.Connection) -> Iterator[None]:
    """Write everything inside the block or nothing, as the only writer. The connection must be in autocommit mode."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
