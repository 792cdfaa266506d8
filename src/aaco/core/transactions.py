"""Writes to a SQLite file that happen as a whole, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaco.core.errors import BadBundle, StorageError

_WAIT, _CHECK = "another program holds it: try again when it has ended", "check its permissions and the disk's room"
# What is the system's refusal, by SQLite's code, and what to do; everything else is the file's fault.
REFUSALS = {sqlite3.SQLITE_BUSY: _WAIT, sqlite3.SQLITE_LOCKED: _WAIT, sqlite3.SQLITE_PROTOCOL: _WAIT} | dict.fromkeys(
    (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
     sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOMEM), _CHECK)


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


@contextmanager
def explained(path: Path | str, fix: str) -> Iterator[None]:
    """Turn what SQLite raises into StorageError where the system refuses, and into BadBundle where the file is damaged.

    fix: what to do about a damaged file.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if (code := getattr(error, "sqlite_errorcode", 0) & 0xFF) not in REFUSALS:
            raise BadBundle(f"{path}: damaged: {error}", fix) from error
        raise StorageError(f"{path}: {error}", REFUSALS[code]) from error
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):  # ours, not the file's
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise BadBundle(f"{path}: damaged: {error}", fix) from error
