"""Kernels summed by name, exactly and in flat memory: the kernel_groups table from any number of batches.

Counts, sums and extremes grow with each batch. A quantile needs every duration in order: `Grouping.add` gives those of
its batch back, the caller sorts them all, on disk where they are many, and `Grouping.table` reads them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.streaming.stream_ids import TupleIds, grow, integers
from aaco.core.arrays import Ints, Reals, joined
from aaco.core.tables import KERNEL_GROUPS, replaced

FEWEST_FOR_P99 = 100
COLUMNS = ("family", "kernel_name", "dur_ns")
QUANTILES = {"p50_ns": 0.5, "p99_ns": 0.99}
_LARGEST = int(np.iinfo(np.int64).max)

Batches = Callable[[], Iterable[pa.RecordBatch]]


def group(batches: Batches, window_ns: int | None, iterations: int | None = None) -> pa.Table:
    """Return the kernel_groups table of kernels that fit in memory, largest total first.

    batches: gives the kernels; every batch has the COLUMNS, and the same dictionaries. window_ns: wall time of the
    profiled window, or None if there is no such thing. iterations: inferences that all the kernels are of, or None.
    """
    grouping = Grouping()
    parts = [grouping.add(batch) for batch in batches()]
    number, duration = (joined(columns) for columns in zip(*parts, strict=True)) \
        if parts else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    return grouping.table([duration[np.lexsort((~duration, number))]], window_ns, iterations)


def by_family(groups: pa.Table) -> pa.Table:
    """Return a kernel_groups table summed by family, largest total first: family, total_ns, calls, kernels (distinct
    names), pct_of_kernel_time, skew_ns, mean_ns. Totals are null if no kernel of the family has a duration."""
    plain = groups.set_column(0, "family", groups["family"].cast(pa.string()))
    summed = plain.group_by("family").aggregate([("total_ns", "sum"), ("calls", "sum"), ("kernel_name", "count"),
                              ("pct_of_kernel_time", "sum"), ("skew_ns", "sum")])
    summed = summed.select(["family", "total_ns_sum", "calls_sum", "kernel_name_count", "pct_of_kernel_time_sum",
                            "skew_ns_sum"])
    summed = summed.rename_columns(["family", "total_ns", "calls", "kernels", "pct_of_kernel_time", "skew_ns"])
    mean = pc.divide(summed["total_ns"].cast(pa.float64(), safe=False), summed["calls"].cast(pa.float64(), safe=False))
    return summed.append_column("mean_ns", mean).sort_by([("total_ns", "descending"), ("family", "ascending")])


def with_skew(groups: pa.Table, skew_ns: Mapping[str, int]) -> pa.Table:
    """Return a kernel_groups table with the waits of first collectives, ns by kernel name: of a name of several
    families at the row with the longest kernel."""
    longest: dict[str, int] = {}
    names, most = (groups[name].to_pylist() for name in ("kernel_name", "max_ns"))
    for row in sorted(range(groups.num_rows), key=lambda row: most[row] or 0):
        longest[names[row]] = row
    column: list[int | None] = [None] * groups.num_rows
    for name, ns in skew_ns.items():
        column[longest[name]] = ns
    return replaced(groups, "skew_ns", pa.array(column, pa.int64()))


class Grouping:
    """Takes in kernels batch by batch. A kernel without a duration counts as a call, and in nothing else."""

    def __init__(self) -> None:
        self._keys = TupleIds()  # (code of the family, code of the kernel's name), one more than the last for null
        self._families: pa.Array = pa.array([], pa.string())
        self._kernels: pa.Array = pa.array([], pa.string())
        self._calls, self._timed, self._total, self._least, self._most = (np.zeros(0, np.int64) for _ in range(5))

    def add(self, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Take in a batch that has the COLUMNS; returns the group's number and the duration of each timed kernel."""
        family, kernel = (batch.column(name) for name in COLUMNS[:2])
        self._families, self._kernels = family.dictionary, kernel.dictionary
        number = self._keys.numbers(_codes(family), _codes(kernel))
        groups = len(self._keys)
        self._calls, self._timed, self._total = (grow(kept, groups, 0)
                                                 for kept in (self._calls, self._timed, self._total))
        self._least, self._most = grow(self._least, groups, _LARGEST), grow(self._most, groups, ~_LARGEST)
        self._calls += np.bincount(number, minlength=groups)
        is_timed = np.asarray(batch.column("dur_ns").is_valid())
        number, duration = number[is_timed], integers(batch.column("dur_ns"))[is_timed]
        self._timed += np.bincount(number, minlength=groups)
        np.add.at(self._total, number, duration)
        np.minimum.at(self._least, number, duration)
        np.maximum.at(self._most, number, duration)
        return number, duration

    def table(self, durations: Iterable[Ints], window_ns: int | None, iterations: int | None = None) -> pa.Table:
        """Return the kernel_groups table, largest total first.

        durations: all that `add` gave, in pieces: by the group's number, of each group the longest first.
        """
        some = np.flatnonzero(self._timed)
        count, total = self._timed[some], self._total[some]
        quantiles, squares = _in_order(durations, count, total / np.maximum(count, 1))
        statistics = {"total_ns": total, "mean_ns": total / np.maximum(count, 1), "min_ns": self._least[some],
                      "max_ns": self._most[some], "p50_ns": quantiles[0],
                      "p99_ns": np.where(count < FEWEST_FOR_P99, np.nan, quantiles[1]),
                      "std_ns": np.where(count < 2, np.nan, np.sqrt(squares / np.maximum(count - 1, 1)))}
        columns = {name: _spread(values, some, len(self._calls)) for name, values in statistics.items()}
        family, kernel = (np.array(codes, np.int64) for codes in zip(*self._keys.known, strict=True)) \
            if len(self._keys) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        names = _lookup(self._kernels, kernel)
        table = KERNEL_GROUPS.build(family=_lookup(self._families, family), kernel_name=names, calls=self._calls,
                                    **columns, **_shares(columns["total_ns"], window_ns),
                                    **_each(self._calls, columns["total_ns"], iterations))
        return table.take(_largest_first(columns["total_ns"], names))


def _in_order(durations: Iterable[Ints], count: Ints, mean: Reals) -> tuple[list[Reals], Reals]:
    """Return the QUANTILES of each group, and the sum of squares about its mean, from all durations in order.

    A quantile is linear between the two nearest values (Hyndman and Fan's type 7).
    """
    after = np.cumsum(count)
    places = [share * (count - 1) for share in QUANTILES.values()]  # ranks, ascending; the order descends
    below = [np.floor(place).astype(np.int64) for place in places]
    ranks = np.stack([after - 1 - rank for low in below for rank in (low, np.minimum(low + 1, count - 1))])
    ascending = np.argsort(ranks, axis=None)
    ranks, shape = ranks.ravel()[ascending], ranks.shape
    values_at_rank, squares, at = np.zeros(len(ranks), np.int64), np.zeros(len(count)), 0
    for piece in filter(len, durations):
        here = slice(*np.searchsorted(ranks, [at, at + len(piece)]))
        values_at_rank[ascending[here]] = piece[ranks[here] - at]
        first, last = np.searchsorted(after, [at, at + len(piece) - 1], "right")
        edges = np.r_[at, after[first:last]] - at
        for number, (low, high) in enumerate(pairwise([*edges, len(piece)]), start=first):
            squares[number] += ((piece[low:high] - mean[number]) ** 2).sum()
        at += len(piece)
    ends = values_at_rank.reshape(shape)
    return [lower + (upper - lower) * (place - low) for lower, upper, place, low
            in zip(ends[::2], ends[1::2], places, below, strict=True)], squares


def _codes(column: pa.DictionaryArray) -> Ints:
    """Return the codes; one more than the last means null."""
    return np.asarray(column.indices.cast(pa.int64()).fill_null(len(column.dictionary)))


def _lookup(names: pa.Array, codes: Ints) -> pa.Array:
    return names.take(pa.array(codes, mask=codes == len(names)))


def _spread(values: NDArray[Any], where: Ints, size: int) -> pa.Array:
    """Return the values at these places of an array, null elsewhere; NaN is null."""
    whole, absent = np.zeros(size, values.dtype), np.ones(size, bool)
    whole[where], absent[where] = values, np.isnan(values)
    return pa.array(whole, mask=absent)


def _each(calls: Ints, total: pa.Array, iterations: int | None) -> dict[str, pa.Array | None]:
    """Return the calls and time of one inference."""
    if not iterations:
        return {}
    return {"calls_per_iteration": pa.array(calls / iterations),
            "ns_per_iteration": pc.divide(total.cast(pa.float64(), safe=False), float(iterations))}


def _shares(total: pa.Array, window_ns: int | None) -> dict[str, pa.Array | None]:
    everything = pc.sum(total).as_py()
    part = pc.multiply(total.cast(pa.float64(), safe=False), 100.0)
    return {"pct_of_kernel_time": pc.divide(part, float(everything)) if everything else None,
            "pct_of_window": pc.divide(part, float(window_ns)) if window_ns else None}


def _largest_first(total: pa.Array, kernel: pa.Array) -> pa.Array:
    order = [("total", "descending"), ("kernel", "ascending")]
    return pc.sort_indices(pa.table({"total": total, "kernel": kernel}), sort_keys=order)
