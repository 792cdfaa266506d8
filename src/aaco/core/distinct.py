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
    if len(column) and (low := int(column.min())) + len(column) > int(column.max()):
        return low + np.flatnonzero(np.bincount(column - low))  # in a tenth of the time that sorting takes
    ordered = np.sort(column)
    fresh = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


def numbers(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct numbers of a column, ascending: few of them, from 0 on."""
    return np.flatnonzero(np.bincount(column))


def counts(column: NDArray[np.int64]) -> dict[int, int]:
    """How often each integer occurs."""
    value_counts = pa.array(column).value_counts()
    return dict(zip(value_counts.field(0).to_pylist(), value_counts.field(1).to_pylist(), strict=True))


def combinations(*columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """The distinct rows of some integer columns in order of appearance, and for every row which of them it is."""
    code, first = coded(*columns)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), code


def coded(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Per row the number of its tuple among those of these columns, by first appearance, and the first row of each."""
    code, first = _encoded(columns[0])
    for column in columns[1:]:
        if not _alike(column) and not (column == column[first][code]).all():  # else it tells no more rows apart
            more, seen = _encoded(column)
            code *= len(seen)
            code += more
            code, first = _encoded(code)
    return code, first


def ascending(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same with the tuples numbered in ascending order."""
    code, first = coded(*columns)
    order = np.lexsort([column[first] for column in reversed(columns)])
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return number[code], first[order]


def _alike(column: NDArray[Any]) -> bool:
    return not len(column) or bool(column[0] == column[-1] and (column == column[0]).all())


def _encoded(column: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if _alike(column):
        return np.zeros(len(column), np.int64), np.zeros(min(1, len(column)), np.int64)
    encoded = pa.array(column).dictionary_encode()
    code = encoded.indices.to_numpy()
    first = np.searchsorted(np.maximum.accumulate(code), np.arange(len(encoded.dictionary), dtype=code.dtype))
    return code.astype(np.int64), first
