"""Makers of columns that every parser needs: names (constant, by code, as texts), integers, bare kernel names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import TypeVar

import numpy as np
import pyarrow as pa

# What tools append to a kernel's symbol: the kernel descriptor's suffix, and how a compiler marks a clone of it.
FEW_NAMES = 1024
DESCRIPTORS = (" [clone .kd]", " (.kd)", ".kd")

V = TypeVar("V", bound=Hashable)


def constant(name: str | None, count: int) -> pa.Array:
    """Return a NAME column with the same name in every row."""
    return coded(np.full(count, -1 if name is None else 0, np.int32), pa.array([name or ""], pa.string()))


def coded(codes: np.ndarray, names: pa.Array) -> pa.Array:
    """Return a NAME column: row i holds names[codes[i]], or null if the code is negative or that name is null."""
    absent = codes < 0
    if len(names) > max(FEW_NAMES, len(codes)):  # a piece need not carry every name of the capture
        codes, names = _drop_unused_names(codes, names)
    if names.null_count:  # Arrow cannot merge dictionaries that hold null
        absent |= names.is_null().to_numpy(zero_copy_only=False)[codes]
        names = names.fill_null("")
    indices = pa.array(codes.astype(np.int32, copy=False), mask=absent if absent.any() else None)
    return pa.DictionaryArray.from_arrays(indices, names)


def titled(titles: pa.Array, codes: np.ndarray, names: pa.Array) -> pa.Array:
    """Return a NAME column: row i holds titles[i], or names[codes[i]] if that is null."""
    distinct = titles.dictionary_encode()
    codes, names = _drop_unused_names(codes, names)
    title_codes = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    codes = np.where(title_codes >= 0, len(names) + title_codes, codes)
    return coded(codes, pa.concat_arrays([names, distinct.dictionary]))


def _drop_unused_names(codes: np.ndarray, names: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return codes and names without the names that no code refers to."""
    used_codes, new_codes = np.unique(codes, return_inverse=True)
    missing = int((used_codes < 0).sum())
    return np.where(codes < 0, -1, new_codes - missing), names.take(pa.array(used_codes[missing:]))


def encoded(names: Sequence[str | None]) -> pa.Array:
    """Return a NAME column of texts; each distinct text is stored once."""
    codes, distinct = numbered(names)
    return coded(codes, pa.array(distinct, pa.string()))


def numbered(values: Sequence[V | None]) -> tuple[np.ndarray, list[V]]:
    """Return the number of each value, -1 of None, and the distinct values in the order of their numbers."""
    numbers: defaultdict[V | None, int] = defaultdict(count().__next__, {None: -1})
    rows = np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))
    return rows, [value for value in numbers if value is not None]


def integers(values: Sequence[int | None]) -> pa.Array:
    """Return an int64 column; integers that do not fit are null."""
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([value if value is not None and -1 << 63 <= value < 1 << 63 else None for value in values],
                        pa.int64())


def renamed(names: pa.Array, rename: Callable[[str], str]) -> pa.Array:
    """Return a NAME column with each of its distinct names changed."""
    changed = pa.array([rename(name) for name in names.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(names.indices, changed)


def bare(kernel: str) -> str:
    """Return the kernel's name without the suffixes that tools append to its symbol."""
    name = kernel.strip().strip('"').strip()
    while (shorter := _strip_suffix(name)) != name:
        name = shorter
    return name


def _strip_suffix(name: str) -> str:
    return next((name.removesuffix(suffix).rstrip() for suffix in DESCRIPTORS if name.endswith(suffix)), name)
