"""Ways to damage a capture by its structure, for benchmarks.hostile: fields, cells, rows, tables, lines and bytes."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from tests.contract.hostile import cut, flipped

NUMBERS = (0, -1, 1, 5, 2**31, 2**53, 2**53 + 1, 10**17, 10**18, 2**60, 2**61, 2**62, 2**62 + 1, 2**63 - 1, -2**63,
           2**64, 10**30)
VALUES: tuple[Any, ...] = (*NUMBERS, 0.5, 1e300, float("nan"), float("inf"), "", "x", "0", "kernel\0", "\ud7ff\x1b[31m",
                           "n" * 5000, None, True, [], {}, [None], {"a": []})
TIME = re.compile(r"ts|dur|start|end|begin|time", re.IGNORECASE)
NUMBER = re.compile(rb"\d{1,19}")


def mutate(path: Path, chance: Random) -> str:
    """Damage the file, once to three times; return what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = path.read_bytes()
        change = _bytes if chance.random() < 0.1 else _sqlite if content.startswith(b"SQLite") else \
            _json if content[:1] in b"{[" else _csv if path.suffix == ".csv" else \
            _bytes if b"\0" in content else _text
        try:
            done.append(change(path, content, chance))
        except (ValueError, LookupError, RecursionError, sqlite3.Error, csv.Error):
            done.append(_bytes(path, path.read_bytes(), chance))  # what was damaged before is no such structure now
    return "; ".join(done)


def _bytes(path: Path, content: bytes, chance: Random) -> str:
    if not content:
        return "nothing left"
    kind = chance.choice((flipped, cut, _one_bit, _one_bit))
    path.write_bytes(kind(content, chance.randrange(1 << 30)))
    return kind.__name__


def _one_bit(content: bytes, seed: int) -> bytes:
    at = seed % (8 * len(content))
    return content[:at // 8] + bytes([content[at // 8] ^ 1 << at % 8]) + content[at // 8 + 1:]


def _json(path: Path, content: bytes, chance: Random) -> str:
    whole = json.loads(content)
    places = [*_places(whole, ())]
    timed = [place for place in places if place and TIME.fullmatch(str(place[-1]).lower().replace("_timestamp", ""))]
    place = chance.choice(timed if timed and chance.random() < 0.5 else places)
    if not place:
        raise ValueError("the whole document")
    *above, last = place
    holder = whole
    for key in above:
        holder = holder[key]
    how = chance.choice(("set", "set", "set", "drop", "repeat"))
    value = chance.choice(VALUES)
    if how == "drop":
        del holder[last]
    elif how == "repeat" and isinstance(holder, list):
        holder.insert(last, holder[last])
    else:
        holder[last] = str(value) if isinstance(holder[last], str) and chance.random() < 0.5 else value
    path.write_text(json.dumps(whole), errors="replace")
    return f"{how} {'.'.join(map(str, place))} {value!r:.40}"


def _places(value: Any, at: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in _places(item, (*at, key)))]


def _csv(path: Path, content: bytes, chance: Random) -> str:
    whole = content.decode()
    before = max(0, whole.find('\n"') + 1) if not whole.startswith('"') else 0  # what ncu prints above its table
    rows = list(csv.reader(io.StringIO(whole[before:])))
    timed = [index for index, name in enumerate(rows[0]) if TIME.search(name)]
    row, how = chance.randrange(len(rows)), chance.choice(("set", "set", "set", "row", "repeat", "short", "column"))
    column = chance.choice(timed) if timed and chance.random() < 0.6 else chance.randrange(len(rows[0]))
    value = chance.choice(VALUES)
    if how == "set":
        rows[row][column] = str(value)
    elif how == "row":
        del rows[row]
    elif how == "repeat":
        rows.insert(row, rows[row])
    elif how == "short":
        rows[row] = rows[row][:column]
    else:
        rows = [[cell for index, cell in enumerate(cells) if index != column] for cells in rows]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL if whole[before] == '"' else csv.QUOTE_MINIMAL).writerows(rows)
    path.write_text(whole[:before] + text.getvalue(), errors="replace")
    return f"{how} row {row} column {column} {value!r:.40}"


def _text(path: Path, content: bytes, chance: Random) -> str:
    lines = content.split(b"\n")
    row = chance.randrange(len(lines))
    how = chance.choice(("number", "number", "number", "drop", "repeat"))
    numbers = list(NUMBER.finditer(lines[row]))
    value = str(chance.choice(NUMBERS)).encode()
    if how == "drop":
        del lines[row]
    elif how == "repeat" or not numbers:
        lines.insert(row, lines[row])
    else:
        match = chance.choice(numbers)
        lines[row] = lines[row][:match.start()] + value + lines[row][match.end():]
    path.write_bytes(b"\n".join(lines))
    return f"{how} line {row} {value.decode()}"


def _sqlite(path: Path, content: bytes, chance: Random) -> str:
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                 if database.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone()]
        work = [name for name in names if re.search("kern|dispatch|_op$", name, re.IGNORECASE)]
        table = chance.choice(work) if work and chance.random() < 0.5 else chance.choice(names)
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        timed = [name for name in columns if TIME.fullmatch(name.lower().removesuffix("ns"))]
        column = chance.choice(timed) if timed and chance.random() < 0.6 else chance.choice(columns)
        how, change = chance.choice(SQL)
        value = chance.choice([value for value in VALUES if not isinstance(value, list | dict) and not (
            isinstance(value, int) and abs(value) > 1 << 62)] + [2**63 - 1, -2**63])
        change(database, table, column, value, chance)
        database.commit()
    return f"{how} {table}.{column} {value!r:.40}"


def _cell(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    rows = [row for (row,) in database.execute(f'SELECT rowid FROM "{table}"')]
    database.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, chance.choice(rows)))


def _column(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    database.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ?', (value,))


def _row(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    rows = [row for (row,) in database.execute(f'SELECT rowid FROM "{table}"')]
    database.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (chance.choice(rows),))


def _rename(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    suffix = chance.choice(("_V2", "_V3", "_EXT", "2", "x"))
    database.execute(f'ALTER TABLE "{table}" RENAME TO "{table}{suffix}"')


def _rename_column(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}x"')


def _drop(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    database.execute(f'DROP TABLE "{table}"')


def _view(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    database.execute(f'ALTER TABLE "{table}" RENAME TO "zz_{table}"')
    database.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "zz_{table}"')


def _root(database: sqlite3.Connection, table: str, column: str, value: Any, chance: Random) -> None:
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (chance.choice((0, -1, 2, 9999)), table))


Change = Callable[[sqlite3.Connection, str, str, Any, Random], None]
SQL: tuple[tuple[str, Change], ...] = (
    ("cell", _cell), ("cell", _cell), ("cell", _cell), ("cell", _cell), ("column", _column), ("row", _row),
    ("rename", _rename), ("rename column", _rename_column), ("drop", _drop), ("view", _view), ("root", _root))
