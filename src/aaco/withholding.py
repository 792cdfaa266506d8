"""Credentials are taken out of what a profiler wrote: it keeps the environment and the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from aaco.collectors import arguments, environment
from aaco.core import files
from aaco.core.secrets import redact
from aaco.profiler import ranks, sqlite
from aaco.tracelake import raw

Change = Callable[[str], str | None]  # None: the row goes
HOST = "Hostname"


def withhold(folder: Path, closed: Sequence[Path], shown: arguments.Shown) -> list[str]:
    """Take the credentials out of every file below the folder; returns what had to go altogether, and why.

    closed: files whose form only their tool knows; they go. shown: the command, with the words that are secret in it.
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
                raw.keep(path, path)
            continue
        try:
            _withhold_rows(path, shown)
        except sqlite3.Error as error:  # cut short, mostly: nothing could be read of it either
            path.unlink()
            gone.append(f"{path.name} was removed, as what is secret in it could not be withheld: {error}")
    return gone


def _command(text: str) -> str:
    return " ".join(arguments.shown(text.split()).words)


def _environment(text: str) -> str:
    """The variables that a bundle may hold, and those that tell a rank."""
    try:
        found = json.loads(text)
    except ValueError:
        return "{}"
    there = {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
    told = {key: value for key, value in there.items() if key in (*ranks.RANK, *ranks.WORLD)}
    return json.dumps(environment.variables(there) | {key: redact(value) for key, value in told.items()})


# Tables of rocpd (their names end in an identity), and of Nsight Systems' export: column -> how it is changed.
ROCPD: Mapping[str, Change] = {"command": _command, "environment": _environment}


def _withhold_rows(path: Path, shown: arguments.Shown) -> None:
    """VACUUM, so that no free page holds what was changed (an SQLite without SECURE_DELETE leaves it there)."""
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        changed = sum(_change(database, name, column, change) for name in names
                      for column, change in _secret(name, shown))
        database.commit()
        if changed:
            database.execute("VACUUM")


def _secret(table: str, shown: arguments.Shown) -> Iterator[tuple[str, Change]]:
    """The columns of a table that may hold credentials, and how each value is changed."""
    def hidden(text: str) -> str:
        return shown.hide(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    if table.startswith("rocpd_info_process"):
        yield from ROCPD.items()
    elif table in ("StringIds", "META_DATA_CAPTURE", "META_DATA_EXPORT"):
        yield "value", hidden
    elif table == "TARGET_INFO_SYSTEM_ENV":
        yield "value", lambda text: None


def _change(database: sqlite3.Connection, table: str, column: str, change: Change) -> int:
    """Change every value of the column that it changes; a row whose value goes, goes with it. Returns how many."""
    name = '"' + table.replace('"', '""') + '"'
    there = {row[1] for row in database.execute(f"PRAGMA table_info({name})")}
    if column not in there:
        return 0
    kept = f" WHERE name IS NOT '{HOST}'" if "name" in there else ""
    rows = database.execute(f"SELECT {column}, rowid FROM {name}{kept}").fetchall()
    new = [(text, change(str(text or "")), key) for text, key in rows]
    database.executemany(f"DELETE FROM {name} WHERE rowid = ?", [(key,) for _, value, key in new if value is None])
    other = [(value, key) for text, value, key in new if value is not None and value != text]
    database.executemany(f"UPDATE {name} SET {column} = ? WHERE rowid = ?", other)
    return len(other) + sum(value is None for _, value, _ in new)
