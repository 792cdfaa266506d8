"""Group the launches of kernels for their classes, in one pass. Equal launches are counted together, so memory grows
only with the kinds of launches. A median is the least value that half of a name's launches do not exceed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, grow, integers
from aaco.core.arrays import Ints, Reals

COLUMNS = ("kernel_name", "family", "device_id", "dur_ns", "grid_x", "grid_y", "grid_z", "occupancy_pct")


class Alike:
    """Takes in kernels of devices. Those without a name or a duration count only in total_ns."""

    def __init__(self) -> None:
        self.names, self._families = NameIds(), NameIds()
        self.total_ns = 0
        self._family_of = np.zeros(0, np.int64)  # by name
        self._keys = TupleIds()  # name, and as their 64 bits the work-items and the occupancy
        self._calls, self._ns = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def feed(self, rows: pa.Table | pa.RecordBatch) -> Ints:
        """Count rows with COLUMNS, in any order, and return the number of each one's name, NONE if it has none."""
        name, family, length = self.names.numbers(rows["kernel_name"]), self._families.numbers(rows["family"]), \
            integers(rows["dur_ns"])
        counted = (integers(rows["device_id"]) != NONE) & (length != NONE)
        self.total_ns += int(length[counted].sum())
        counted &= name != NONE
        self._family_of = grow(self._family_of, len(self.names), NONE)
        has_family = counted & (family != NONE)
        self._family_of[name[has_family]] = family[has_family]
        items, occupancy = _items(rows), pc.cast(rows["occupancy_pct"], pa.float64()).to_numpy(zero_copy_only=False)
        launch_kinds = self._keys.numbers(name[counted], _bits(items[counted]), _bits(np.asarray(occupancy)[counted]))
        self._calls, self._ns = (grow(sums, len(self._keys), 0) for sums in (self._calls, self._ns))
        self._calls += np.bincount(launch_kinds, minlength=len(self._keys))
        np.add.at(self._ns, launch_kinds, length[counted])
        return name

    def rows(self, median_ns: Mapping[str, float]) -> list[dict[str, Any]]:
        """Return the names, those that took most time first, as kernel_classes.facts_of takes them. median_ns: by
        name.
        """
        if not len(self._keys):
            return []
        name, *bits = (np.array(column, np.int64) for column in zip(*self._keys.known, strict=True))
        items, occupancy = (column.view(np.float64) for column in bits)
        order = np.argsort(name, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(name[order])) + 1)
        rows = [self._row(int(name[group[0]]), group, items, occupancy) for group in groups]
        rows.sort(key=lambda row: (-row["total_ns"], row["kernel_name"]))
        return [row | {"median_ns": median_ns[row["kernel_name"]]} for row in rows]

    def _row(self, number: int, is_named: Ints, items: Reals, occupancy: Reals) -> dict[str, Any]:
        calls, family = self._calls[is_named], int(self._family_of[number])
        return {"kernel_name": self.names.known[number], "family": None if family == NONE else
                self._families.known[family], "calls": int(calls.sum()), "total_ns": int(self._ns[is_named].sum()),
                "occupancy_pct": _median(occupancy[is_named], calls), "items": _median(items[is_named], calls)}


def _items(rows: pa.Table | pa.RecordBatch) -> Reals:
    """Return the work-items of each launch, NaN if its grid is unknown. An unknown axis counts 1."""
    axes = [integers(rows[f"grid_{axis}"]) for axis in "xyz"]
    first = np.where(axes[0] == NONE, np.nan, axes[0].astype(np.float64))
    items: Reals = first * np.maximum(axes[1], 1) * np.maximum(axes[2], 1)
    return items


def _bits(values: Reals) -> Ints:
    return np.ascontiguousarray(np.where(np.isnan(values), np.nan, values)).view(np.int64)  # one NaN for all


def _median(values: Reals, calls: Ints) -> float | None:
    """Return the value in the middle of all calls, None if no call has one."""
    is_known = ~np.isnan(values)
    order = np.argsort(values[is_known], kind="stable")
    so_far = np.cumsum(calls[is_known][order])
    if not len(so_far):
        return None
    return float(values[is_known][order][np.searchsorted(2 * so_far, so_far[-1])])
