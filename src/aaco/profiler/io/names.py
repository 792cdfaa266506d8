"""Names by id: the small tables of text that trace databases refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.profiler.io.columns import coded
from aaco.profiler.io.lookup import Lookup
from aaco.profiler.io.record_accounting import integers
from aaco.profiler.io.sqlite import LONGEST_NAME, Database, SqliteTable, quoted

# Names are read whole before the long tables are streamed: this bounds the memory they take.
MOST_CHARACTERS = 1 << 29


class NamesById:
    """Names by id, as Arrow strings for dictionary columns."""

    def __init__(self, ids: Sequence[int], names: Sequence[str | None]) -> None:
        self.ids, self.names, self._lookup = ids, pa.array(names, pa.string()), Lookup(ids)

    def rows(self, ids: pa.Array) -> np.ndarray:
        """Return the index into `names` of each id, -1 if there is none."""
        return self._lookup.rows(integers(ids))

    def of(self, ids: pa.Array) -> pa.Array:
        """Return a NAME column: the name of each id."""
        return coded(self.rows(ids), self.names)

    def each(self, change: Callable[[str], str]) -> NamesById:
        """Return the same ids with every name changed."""
        return NamesById(self.ids, [None if name is None else change(name) for name in self.names.to_pylist()])

    def ids_of(self, *names: str) -> list[int]:
        """Return the ids that have one of these names."""
        return [key for key, name in zip(self.ids, self.names.to_pylist(), strict=True) if name in names]


def read(database: Database, table: SqliteTable | None, columns: Sequence[str], where: str = "1") -> NamesById:
    """Return the names in a table with a column `id`: in each row the first of the columns that holds text.

    `where` is an SQL condition on `t`. Raise BadCapture.
    """
    present_columns = [column for column in columns if table is not None and column in table]
    if table is None or not present_columns or "id" not in table:
        return NamesById([], [])
    texts = ", ".join(f"substr(t.{quoted(table.columns[name])}, 1, {LONGEST_NAME})" for name in present_columns)
    ids, names, size = [], [], 0
    for key, *choices in database.rows(f"SELECT t.id, {texts} FROM {quoted(table.name)} t NOT INDEXED WHERE {where}"):
        name = next((text for text in choices if isinstance(text, str) and text), None)
        size += len(name or "")
        if size > MOST_CHARACTERS:
            raise BadCapture(f"{database.path}: its names are longer than {MOST_CHARACTERS:,} characters in all",
                             "record a shorter stretch")
        if type(key) is int:
            ids.append(key)
            names.append(name)
    return NamesById(ids, names)
