"""Distinct values of long columns, found by hashing or by one plain sort.

numpy's `unique` takes ten times as long where it must also say which value each row has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def values(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct integers of a column, ascending."""
    if len(column) and (column == column[0]).all():
        return column[:1].copy()
    ordered = np.sort(column)
    fresh = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


def counts(column: NDArray[np.int64]) -> dict[int, int]:
    """How often each integer occurs."""
    found = pa.array(column).value_counts()
    return dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True))


def combinations(*columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """The distinct rows of some integer columns in order of appearance, and for every row which of them it is."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        one = pa.array(column).dictionary_encode()
        both = code * max(1, len(one.dictionary)) + one.indices.to_numpy()
        code = pa.array(both).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.zeros(int(code.max(initial=-1)) + 1, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return [tuple(int(column[row]) for column in columns) for row in first], code
