"""Fingerprints: what makes a kernel the same one in another recording, and how it behaved in this.

The id is of what does not change from run to run: the short name (families.KernelName.normalised), and grid and block.
The signature is of this recording: how its durations are distributed, how often it was launched, how long its stream
had been idle before it, the means of its counters. Durations are kept as counts in logarithmic bins, so memory grows
only with distinct kernels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.kernels.families import decode
from aaco.analytics.streaming.stream_ids import (
    NONE,
    NameIds,
    TupleIds,
    ValueByName,
    grow,
    integers,
    latest_end_before,
    rows_by_stream,
)
from aaco.core.arrays import Ints, Reals
from aaco.core.tables import FINGERPRINTS

GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
LANE = ("capture", "device_id", "stream_id")
COLUMNS = ("kernel_name", "t_start_ns", "dur_ns", *LANE, *GEOMETRY)
BINS_PER_OCTAVE = 64  # a bin is 1.1 % wide
QUANTILES = {"p05_ns": 0.05, "p25_ns": 0.25, "p50_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95}
NOTHING = -1  # the bin of 0 ns
_BINS = 64 * BINS_PER_OCTAVE + 1  # that a number of 63 bits can be in, NOTHING among them
ID_LETTERS = 16
FEWEST_PAIRS = 1 << 18  # that are added up together: sorting more pieces at once takes less time


class FingerprintCollector:
    """Takes in kernels a piece at a time, those with times in their order."""

    def __init__(self) -> None:
        self._names, self._short = NameIds(), dict[str, int]()
        self._short_of = ValueByName(self._names, self._short_number, NONE)
        self._families: list[str] = []  # of short names
        self._keys, self._lanes = TupleIds(), TupleIds()
        self._calls, self._total = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._durations, self._gaps = _Histogram(), _Histogram()
        self._reach = np.zeros(0, np.int64)
        self._first: int | None = None
        self._last: int | None = None
        self._counters, self._counter_names = TupleIds(), NameIds()
        self._counted, self._summed = np.zeros(0, np.int64), np.zeros(0)

    def add(self, kernels: pa.Table) -> Ints:
        """Take in kernels that have the COLUMNS; returns the number of each one's fingerprint."""
        short = self._short_of.of(self._names.numbers(kernels["kernel_name"]))
        number = self._keys.numbers(short, *(integers(kernels[column]) for column in GEOMETRY))
        start, duration = integers(kernels["t_start_ns"]), integers(kernels["dur_ns"])
        self._calls, self._total = (grow(kept, len(self._keys), 0) for kept in (self._calls, self._total))
        self._calls += np.bincount(number, minlength=len(self._keys))
        timed = duration >= 0
        np.add.at(self._total, number[timed], duration[timed])
        self._durations.add(number[timed], duration[timed])
        placed = timed & (start != NONE)
        if placed.any():
            self._place(number[placed], start[placed], start[placed] + duration[placed],
                        self._lanes.numbers(*(integers(kernels[column])[placed] for column in LANE)))
        return number

    def add_counters(self, number: Ints, counter: pa.ChunkedArray | pa.Array, value: Reals) -> None:
        """Take in counters: the number of each one's fingerprint (-1: of no kernel), its name and value."""
        is_valid = (number >= 0) & np.isfinite(value)
        pair = self._counters.numbers(number[is_valid], self._counter_names.numbers(counter)[is_valid])
        self._counted, self._summed = (grow(kept, len(self._counters), 0) for kept in (self._counted, self._summed))
        self._counted += np.bincount(pair, minlength=len(self._counters))
        self._summed += np.bincount(pair, value[is_valid], minlength=len(self._counters))

    def table(self) -> pa.Table:
        """Return the fingerprints table, largest total first."""
        shorts = list(self._short)
        keys = self._keys.known
        names = [shorts[key[0]] if key[0] != NONE else "" for key in keys]
        launches = [tuple(None if size == NONE else size for size in key[1:]) for key in keys]
        durations, gaps = self._durations.of(len(keys)), self._gaps.of(len(keys))
        span = (self._last - self._first) if self._first is not None and self._last is not None else 0
        table = FINGERPRINTS.build(
            fingerprint=[identity(name, launch) for name, launch in zip(names, launches, strict=True)],
            normalised=names, family=[self._families[key[0]] if key[0] != NONE else None for key in keys],
            **{column: [launch[at] for launch in launches] for at, column in enumerate(GEOMETRY)}, calls=self._calls,
            total_ns=pa.array(self._total, mask=durations.lengths == 0),
            **{column: durations.quantiles(share) for column, share in QUANTILES.items()},
            per_s=[calls / span * 1e9 if span > 0 else None for calls in self._calls.tolist()],
            gap_p50_ns=gaps.quantiles(0.5), counters=self._means(len(keys)), log_bins=durations.listed(durations.bins),
            bin_counts=durations.listed(durations.counts))
        return table.sort_by([("total_ns", "descending"), ("fingerprint", "ascending")])

    def _short_number(self, name: str) -> int:
        """Return the number of the short name of a kernel, a new one if need be."""
        kernel_name = decode(name)
        if kernel_name.normalised not in self._short:
            self._short[kernel_name.normalised] = len(self._short)
            self._families.append(kernel_name.family)
        return self._short[kernel_name.normalised]

    def _place(self, number: Ints, start: Ints, end: Ints, lane: Ints) -> None:
        """Add the idle time of the stream before each kernel, and extend the span of all."""
        order = rows_by_stream(lane)
        self._reach = grow(self._reach, len(self._lanes), NONE)
        before = latest_end_before(lane[order], end[order], self._reach)
        has_previous = before != NONE
        self._gaps.add(number[order][has_previous], np.maximum(0, start[order] - before)[has_previous])
        self._first = min(int(start.min()), self._first) if self._first is not None else int(start.min())
        self._last = max(int(end.max()), self._last) if self._last is not None else int(end.max())

    def _means(self, count: int) -> list[str | None]:
        """Return the mean of each counter of each fingerprint, as JSON."""
        means: list[dict[str, float]] = [{} for _ in range(count)]
        for (number, counter), many, total in zip(self._counters.known, self._counted, self._summed, strict=True):
            means[number][self._counter_names.known[counter]] = float(total / many)
        return [json.dumps(mean_by_counter, sort_keys=True) if mean_by_counter else None for mean_by_counter in means]


class _Histograms(Struct, frozen=True):
    """The histograms of fingerprints, one behind another. offsets: where each begins, and where the last one ends."""

    bins: Ints
    counts: Ints
    offsets: Ints

    @property
    def lengths(self) -> Ints:
        """How many bins each has."""
        return np.diff(self.offsets)

    def listed(self, values: Ints) -> pa.ListArray:
        """Return the bins or the counts as a list for each."""
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), pa.array(values))

    def quantiles(self, share: float) -> list[float | None]:
        """Return of each the value below which this share is, to the width of a bin; None without values."""
        until = np.r_[0, np.cumsum(self.counts)]
        before, total = until[self.offsets[:-1]], np.diff(until[self.offsets])
        wanted = before + np.ceil(share * total).astype(np.int64)
        place = np.maximum(np.searchsorted(until[1:], wanted), self.offsets[:-1])
        reached = self.bins[np.minimum(place, self.offsets[1:] - 1)] if len(self.bins) else place
        return [_value(at) if many else None for at, many in zip(reached.tolist(), total.tolist(), strict=True)]


class _Histogram:
    """How many values of each fingerprint fall in each bin: pairs of both, as one number each, in ascending order.

    What comes in is added up when there is as much of it as of what is there already.
    """

    def __init__(self) -> None:
        self._pairs, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._more: list[tuple[Ints, Ints]] = []

    def add(self, number: Ints, value: Ints) -> None:
        self._more.append(np.unique(number * _BINS + log_bin(value) - NOTHING, return_counts=True))
        if sum(len(pairs) for pairs, _ in self._more) > max(FEWEST_PAIRS, len(self._pairs)):
            self._add_up()

    def of(self, count: int) -> _Histograms:
        """Return the histograms of so many fingerprints: their bins, ascending, and how many values are in each."""
        self._add_up()
        offsets = np.searchsorted(self._pairs, np.arange(count + 1) * _BINS)
        return _Histograms(self._pairs % _BINS + NOTHING, self._counts, offsets)

    def _add_up(self) -> None:
        pairs, counts = (np.concatenate(parts) for parts in zip((self._pairs, self._counts), *self._more, strict=True))
        self._more.clear()
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
        first = np.flatnonzero(np.diff(pairs, prepend=NONE))
        self._pairs, self._counts = pairs[first], np.add.reduceat(counts[order], first) if len(first) else counts


def identity(normalised: str, launch: Sequence[int | None]) -> str:
    """Return the id of a kernel: a hash of its short name and its grid and block."""
    text = "\x1f".join([normalised, *("" if size is None else str(size) for size in launch)])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:ID_LETTERS]


def log_bin(value: Ints) -> Ints:
    """Return the bin of each number of ns; NOTHING for 0."""
    return np.where(value > 0, np.floor(np.log2(np.maximum(value, 1)) * BINS_PER_OCTAVE), NOTHING).astype(np.int64)


def quantile(bins: list[int], counts: list[int], share: float) -> float | None:
    """Return the value below which this share is, to the width of a bin; None without values."""
    only = _Histograms(np.array(bins, np.int64), np.array(counts, np.int64), np.array([0, len(bins)]))
    return only.quantiles(share)[0]


def _value(log_bin: int) -> float:
    """Return the number of ns in the middle of a bin."""
    return 0.0 if log_bin == NOTHING else float(2 ** ((log_bin + 0.5) / BINS_PER_OCTAVE))
