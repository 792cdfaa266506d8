"""Credentials are taken out of what a profiler wrote: it keeps the environment and the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from aaco.collectors.inventory import environment
from aaco.core import files
from aaco.core.redaction import redact
from aaco.core.redaction.command_line import RedactedCommand, redact_command
from aaco.profiler.formats import ranks
from aaco.profiler.io import sqlite
from aaco.tracelake import raw

Change = Callable[[str], str | None]  # None: the row goes
HOST = "Hostname"


def redact_folder(folder: Path, closed: Sequence[Path], command: RedactedCommand) -> list[str]:
    """Redact every file below the folder. Return what had to go altogether, and why.

    closed: files in a form that only their tool knows; removed. command: what was recorded, and its credentials.
    """
    for path in closed:
        path.unlink(missing_ok=True)
    gone = list[str]()
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        if not files.is_text(path.name):
            path.rename(path.with_name(files.readable(path.name)))  # no manifest could name it
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            database = file.read(len(sqlite.MAGIC)) == sqlite.MAGIC
        if not database:
            if raw.is_text(path):
                raw.write_redacted(path, path)
            continue
        try:
            _redact_rows(path, command)
        except sqlite3.Error as error:  # cut short, mostly: nothing could be read of it either
            path.unlink()
            gone.append(f"{path.name} was removed because it could not be redacted: {error}")
    return gone


def _command(text: str) -> str:
    return " ".join(redact_command(text.split()).words)


def _environment(text: str) -> str:
    """Return the variables that a bundle may hold, and those that give a rank."""
    try:
        variables = json.loads(text)
    except ValueError:
        return "{}"
    there = {str(key): str(value) for key, value in variables.items()} if isinstance(variables, dict) else {}
    rank_variables = {key: value for key, value in there.items() if key in (*ranks.RANK, *ranks.WORLD)}
    return json.dumps(environment.variables(there) | {key: redact(value) for key, value in rank_variables.items()})


# Tables of rocpd (their names end in an identity), and of Nsight Systems' export: column -> how it is changed.
ROCPD: Mapping[str, Change] = {"command": _command, "environment": _environment}


def _redact_rows(path: Path, command: RedactedCommand) -> None:
    """VACUUM, so that no free page holds what was changed (an SQLite without SECURE_DELETE leaves it there)."""
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        changed = sum(_change(database, name, column, change) for name in names
                      for column, change in _text_columns(name, command))
        database.commit()
        if changed:
            database.execute("VACUUM")


def _text_columns(table: str, command: RedactedCommand) -> Iterator[tuple[str, Change]]:
    """Yield the columns of a table that may hold credentials, and how each value is changed."""
    def redact_words(text: str) -> str:
        return command.redact_output(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    if table.startswith("rocpd_info_process"):
        yield from ROCPD.items()
    elif table in ("StringIds", "META_DATA_CAPTURE", "META_DATA_EXPORT"):
        yield "value", redact_words
    elif table == "TARGET_INFO_SYSTEM_ENV":
        yield "value", lambda text: None


def _change(database: sqlite3.Connection, table: str, column: str, change: Change) -> int:
    """Apply the change to every value of the column; a row without a value left is removed. Return how many."""
    name = '"' + table.replace('"', '""') + '"'
    there = {row[1] for row in database.execute(f"PRAGMA table_info({name})")}
    if column not in there:
        return 0
    kept = f" WHERE name IS NOT '{HOST}'" if "name" in there else ""
    rows = database.execute(f"SELECT {column}, rowid FROM {name}{kept}").fetchall()
    new = [(text, change(str(text or "")), key) for text, key in rows]
    database.executemany(f"DELETE FROM {name} WHERE rowid = ?", [(key,) for _, value, key in new if value is None])
    changes = [(value, key) for text, value, key in new if value is not None and value != text]
    database.executemany(f"UPDATE {name} SET {column} = ? WHERE rowid = ?", changes)
    return len(changes) + sum(value is None for _, value, _ in new)
