"""Ways to damage a bundle: every JSON document, table and capture of it, seeded, one damage at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import files

Damage = tuple[str, Callable[[], None]]
SCALARS = (None, True, False, 0, -1, 1, 10**19, 10**400, 0.5, math.nan, math.inf, 1e300, "", "x", "\x1b[31m\x00\ud800",
           "n" * 5000, [], {}, [None], [[]], [1, "a"], {"a": None}, {"": {}}, {"name": None, "shape": None})


def document(path: Path, chance: Random) -> Damage:
    """One change somewhere in a JSON document."""
    whole = json.loads(path.read_text())
    at = chance.choice(list(_places(whole)))
    value = chance.choice((*SCALARS, "dropped", "deep"))
    if value == "deep":
        value = _deep(chance.choice((60, 900, 3000)))
    changed = _set(whole, at, value)
    return f"{path.name}: {'.'.join(map(str, at))} = {repr(value)[:40]}", lambda: _write(path, changed)


def table(path: Path, chance: Random) -> Damage:
    """One change of a table: values, types, columns or rows."""
    whole = pq.read_table(path)
    name = chance.choice(whole.column_names)
    position = whole.column_names.index(name)
    kind, changed = chance.choice([*_changes(whole, name, position, chance)])
    return f"{path.name}: {name} {kind}", lambda: pq.write_table(changed(), path)


def content(path: Path, chance: Random) -> Damage:
    """One change of a file's bytes."""
    raw = path.read_bytes()
    at = chance.randrange(max(1, len(raw)))
    flipped = bytearray(raw)
    if raw:
        flipped[at] ^= 1 << chance.randrange(8)
    kind, changed = chance.choice([("cut", raw[:at]), ("flipped", bytes(flipped)), ("emptied", b""),
                                   ("garbage", chance.randbytes(200)), ("grown", raw + b"\x00\xff{")])
    return f"{path.name}: {kind} at {at}", lambda: _replace(path, changed)


def removed(path: Path, chance: Random) -> Damage:
    """No file, or something else of its name."""
    kind = chance.choice(["missing", "a folder", "a dangling link", "unreadable"])

    def remove() -> None:
        path.unlink()
        if kind == "a folder":
            path.mkdir()
        elif kind != "missing":  # reading one's own memory from its beginning is refused to everyone, root included
            path.symlink_to("/nowhere/at/all" if kind == "a dangling link" else "/proc/self/mem")

    return f"{path.name}: {kind}", remove


def reseal(folder: Path, name: str) -> None:
    """Give a damaged file the hash that it now has, as one would who wants to be believed."""
    manifest, path = folder / "manifest.json", folder / name
    whole = json.loads(manifest.read_text())
    if path.is_file() and not path.is_symlink():
        whole["files"][name] = {"sha256": files.sha256(path), "bytes": path.stat().st_size, "rows": None}
    else:
        whole["files"].pop(name, None)
    manifest.write_text(json.dumps(whole))


def _changes(whole: pa.Table, name: str, position: int,
             chance: Random) -> Iterator[tuple[str, Callable[[], pa.Table]]]:
    column, rows = whole[name], whole.num_rows
    row = chance.randrange(max(1, rows))

    def put(values: Any, kind: pa.DataType | None = None) -> Callable[[], pa.Table]:
        return lambda: whole.set_column(position, name, pa.array(values, kind))

    yield "has a null", put([value if index != row else None for index, value in enumerate(column.to_pylist())],
                            _plain(column.type))
    yield "is null", put([None] * rows, _plain(column.type))
    yield "is of no type", put([None] * rows)
    yield "is dropped", lambda: whole.drop_columns([name])
    yield "is text", put([str(value) for value in column.to_pylist()])
    yield "is lists", put([[value] for value in column.to_pylist()])
    yield "is whole numbers", put([0] * rows)
    for number in (-1, 2**63 - 1, -2**63, 2**62, 10**15):
        yield f"is {number}", put([number] * rows)
        if pa.types.is_integer(column.type):
            yield f"has {number}", put([value if index != row else number
                                        for index, value in enumerate(column.to_pylist())], pa.int64())
    for real in (math.nan, math.inf, -math.inf, 1e308, 0.0):
        yield f"is {real}", put([real] * rows)
    yield "is hostile", put(["\x1b[31m\x00<b>" * 9] * rows)
    yield "is not UTF-8", lambda: whole.set_column(
        position, name, pa.array([b"\xff\xfe"] * rows, pa.binary()).view(pa.string()))
    yield "is there twice", lambda: whole.append_column(name, column)
    yield "has no rows", lambda: whole.slice(0, 0)
    yield "has one row", lambda: whole.slice(row, 1)
    yield "has every row twice", lambda: pa.concat_tables([whole, whole])
    yield "is alone", lambda: whole.select([name])
    yield "has no columns", lambda: whole.select([])


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*at, key))


def _set(whole: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    *above, last = at
    holder = whole
    for key in above:
        holder = holder[key]
    if value == "dropped":
        del holder[last]
    else:
        holder[last] = value
    return whole


def _deep(levels: int) -> Any:
    return f"deep {levels}"


def _write(path: Path, value: Any) -> None:
    text = json.dumps(value)
    for levels in (60, 900, 3000):
        text = text.replace(f'"deep {levels}"', '{"a":[' * levels + "]}" * levels)
    _replace(path, text.encode())


def _replace(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
