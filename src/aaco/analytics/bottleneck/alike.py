"""Kernels by name for their classes, in one pass: launches alike are counted together, so that memory grows with the
kinds of launches alone. A median is the least value that half of a name's launches do not exceed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.lanes import NONE, Flags, Ints, Keys, Names, grow, integers

COLUMNS = ("kernel_name", "family", "device_id", "dur_ns", "grid_x", "grid_y", "grid_z", "occupancy_pct")
Reals = NDArray[np.float64]


class Alike:
    """Takes in kernels of devices; those without a name or a duration count only in total_ns."""

    def __init__(self) -> None:
        self.names, self._families = Names(), Names()
        self.total_ns = 0
        self._family_of = np.zeros(0, np.int64)  # by name
        self._keys = Keys()  # name, and as their 64 bits the work-items and the occupancy
        self._calls, self._ns = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def feed(self, rows: pa.Table | pa.RecordBatch) -> Ints:
        """Rows with COLUMNS, in any order; returns the number of each one's name, NONE where it has none."""
        name, family, length = self.names.numbers(rows["kernel_name"]), self._families.numbers(rows["family"]), \
            integers(rows["dur_ns"])
        counted = (integers(rows["device_id"]) != NONE) & (length != NONE)
        self.total_ns += int(length[counted].sum())
        counted &= name != NONE
        self._family_of = grow(self._family_of, len(self.names), NONE)
        told = counted & (family != NONE)
        self._family_of[name[told]] = family[told]
        items, occupancy = _items(rows), pc.cast(rows["occupancy_pct"], pa.float64()).to_numpy(zero_copy_only=False)
        alike = self._keys.numbers(name[counted], _bits(items[counted]), _bits(np.asarray(occupancy)[counted]))
        self._calls, self._ns = (grow(kept, len(self._keys), 0) for kept in (self._calls, self._ns))
        self._calls += np.bincount(alike, minlength=len(self._keys))
        np.add.at(self._ns, alike, length[counted])
        return name

    def rows(self, most: int, median_ns: Mapping[str, float]) -> list[dict[str, Any]]:
        """The names that took most time, the longest first, as kernel_classes.facts_of takes them; median_ns: by name.
        """
        if not len(self._keys):
            return []
        name, *bits = (np.array(column, np.int64) for column in zip(*self._keys.known, strict=True))
        items, occupancy = (column.view(np.float64) for column in bits)
        found = [self._row(number, name == number, items, occupancy) for number in np.unique(name).tolist()]
        found.sort(key=lambda row: (-row["total_ns"], row["kernel_name"]))
        return [row | {"median_ns": median_ns[row["kernel_name"]]} for row in found[:most]]

    def _row(self, number: int, mine: Flags, items: Reals, occupancy: Reals) -> dict[str, Any]:
        calls, family = self._calls[mine], int(self._family_of[number])
        return {"kernel_name": self.names.known[number], "family": None if family == NONE else
                self._families.known[family], "calls": int(calls.sum()), "total_ns": int(self._ns[mine].sum()),
                "occupancy_pct": _median(occupancy[mine], calls), "items": _median(items[mine], calls)}


def _items(rows: pa.Table | pa.RecordBatch) -> Reals:
    """Work-items of each launch; NaN where its grid is not known. An axis that is not known counts 1."""
    axes = [integers(rows[f"grid_{axis}"]) for axis in "xyz"]
    first = np.where(axes[0] == NONE, np.nan, axes[0].astype(np.float64))
    items: Reals = first * np.maximum(axes[1], 1) * np.maximum(axes[2], 1)
    return items


def _bits(values: Reals) -> Ints:
    return np.ascontiguousarray(np.where(np.isnan(values), np.nan, values)).view(np.int64)  # one NaN for all


def _median(values: Reals, calls: Ints) -> float | None:
    """The value in the middle of all calls; None where none has one."""
    known = ~np.isnan(values)
    order = np.argsort(values[known], kind="stable")
    so_far = np.cumsum(calls[known][order])
    if not len(so_far):
        return None
    return float(values[known][order][np.searchsorted(2 * so_far, so_far[-1])])
