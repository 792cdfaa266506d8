"""A history as a table of a PostgreSQL database, named `postgresql:TABLE` or `postgresql:SCHEMA.TABLE`.

Its columns are those of a plain CSV file, `value` and a time among them: a table has no order of its own. Server,
database, user and password come from libpq's environment only (PGHOST, PGDATABASE, PGUSER, PGPASSWORD or PGPASSFILE).
Rows are read in a transaction that cannot write.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from aaco.core.errors import BadCapture, StorageError, UsageError, first_line
from aaco.profiler.histories.plain import FIELD, fields, take
from aaco.profiler.histories.samples import ImportedHistory, instant_ns

FORMAT = "postgresql"
NAME = re.compile(r"postgresql:((?:[A-Za-z_][\w$]{0,62}\.)?[A-Za-z_][\w$]{0,62})", re.ASCII)
LIMITS = "-c default_transaction_read_only=on -c statement_timeout=120000"
PATIENCE_S = 10  # for a connection


def recognises(path: Path) -> bool:
    """Return whether a path is a name of a table."""
    return str(path).startswith(f"{FORMAT}:")


def parse(path: Path) -> ImportedHistory:
    """Return the samples of a table in the order of time. Raise UsageError, BadCapture, StorageError."""
    match = NAME.fullmatch(str(path))
    if match is None:  # the text may hold a password
        raise UsageError("no name of a PostgreSQL table", "postgresql:TABLE or postgresql:SCHEMA.TABLE; the server, "
                         "the database and the account in PGHOST, PGDATABASE, PGUSER and PGPASSWORD")
    import psycopg

    try:
        with psycopg.connect(connect_timeout=PATIENCE_S, options=LIMITS) as connection:
            return _read(connection, match[1])
    except psycopg.OperationalError as error:
        raise StorageError(f"{match[0]}: {first_line(error)}", "check PGHOST, PGPORT, PGDATABASE, PGUSER and "
                           "PGPASSWORD, and that the server runs") from error
    except psycopg.Error as error:
        raise BadCapture(f"{match[0]}: {first_line(error)}",
                         "check the table's name, and that it may be read") from error


def _read(connection: Any, table: str) -> ImportedHistory:
    from psycopg import sql

    name = sql.Identifier(*table.split("."))
    columns = [column.name for column in
               connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(name)).description]
    meanings = {FIELD.get(column.lower()): column for column in columns}
    if missing := [meaning for meaning in ("value", "time") if meaning not in meanings]:
        raise BadCapture(f"{FORMAT}:{table}: no column of a {missing[0]}",
                         "make a view with the columns time and value")
    history = ImportedHistory(FORMAT)
    with connection.cursor(name="aaco_history") as cursor:  # on the server: rows come in parts
        cursor.execute(sql.SQL("SELECT * FROM {} ORDER BY {}").format(name, sql.Identifier(meanings["time"])))
        for index, values in enumerate(cursor):
            row = fields(dict(zip(columns, map(plain, values), strict=True)))
            if instant_ns(row["time"]):
                take(history, row, table, f"{table}-{index}")
            else:
                history.left_out["without a time"] += 1
    return history


def plain(value: Any) -> Any:
    """Return a value of a column as a plain file would hold it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
