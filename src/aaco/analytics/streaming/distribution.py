"""The distribution of very many durations in little memory: counts in bins that widen with the value.

Each octave is cut into equal bins, so a quantile read from the bins is off by at most half a bin: with 128 bins to the
octave by 0.4 % of itself, and not at all below 128 ns. Count, sum, smallest and largest are exact.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Ints
from aaco.core.readings import Absent
from aaco.core.statistics import interval_ranks, smallest_sample

BITS = 7  # 2**BITS bins to the octave
OCTAVES = 64
EXACT_RANKS = 20_000  # up to here the ranks of an interval are exact binomial, above by its normal approximation


def bins(values: Ints, bits: int = BITS) -> Ints:
    """Return the bin of each value; values below 0 count as 0."""
    fraction, octave = np.frexp(np.maximum(values, 0).astype(np.float64))
    return np.asarray((octave.astype(np.int64) << bits) + ((2 * fraction - 1) * 2**bits).clip(0).astype(np.int64),
                      np.int64)


def lower_edge(number: int, bits: int = BITS) -> float:
    """Return the least value of a bin."""
    octave, part = number >> bits, number & (2**bits - 1)
    return (1 + part / 2**bits) * 2.0 ** (octave - 1) if number else 0.0


def upper_edge(number: int, bits: int = BITS) -> float:
    """Return the value at which the next bin begins."""
    return lower_edge(number + 1, bits) if number else 0.5


class Quantile(Struct, frozen=True):
    """A quantile in ns and the ends of its 95 % interval, None where the sample is too small for one."""

    value_ns: float
    ci_low_ns: float | None
    ci_high_ns: float | None


class DurationSummary(Struct, frozen=True):
    """A distribution in a few numbers, all in ns. Quantiles that the sample does not support are None.

    beyond: how many values exceed the outer fence, the upper quartile + 1.5 interquartile ranges (Tukey 1977).
    negative: how many are below 0, possible only if clocks disagree; they count as 0 in the quantiles.
    """

    count: int
    sum_ns: int
    min_ns: int
    max_ns: int
    mean_ns: float
    p50: Quantile | None
    p90: Quantile | None
    p99: Quantile | None
    fence_ns: float | None
    beyond: int | None
    negative: int


class Distribution:
    """Takes in values and counts them by bin."""

    def __init__(self) -> None:
        self.counts = np.zeros(OCTAVES << BITS, np.int64)
        self.count, self.sum, self.negative = 0, 0, 0
        self.least, self.most = 0, 0

    def add(self, values: Ints) -> None:
        """Add values in ns."""
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        self.least, self.most = (min(self.least, low), max(self.most, high)) if self.count else (low, high)
        self.count += len(values)
        self.sum += int(values.sum())
        self.negative += int((values < 0).sum())
        bin_numbers = bins(values)
        self.counts[:int(bin_numbers.max()) + 1] += np.bincount(bin_numbers)

    def absorb(self, addend: Distribution) -> None:
        """Take in all that another has taken in."""
        if addend.count:
            self.least, self.most = ((min(self.least, addend.least), max(self.most, addend.most)) if self.count
                                     else (addend.least, addend.most))
            self.count, self.sum = self.count + addend.count, self.sum + addend.sum
            self.negative += addend.negative
            self.counts += addend.counts

    def quantile(self, q: float) -> Quantile:
        """Return the q-quantile with its order-statistic interval. Raise Absent if the sample does not support it."""
        if self.count < smallest_sample(q):
            raise Absent(f"p{100 * q:g} needs at least {smallest_sample(q)} values, there are {self.count}")
        ends = _ranks(self.count, q)
        low, high = (self._value(ends[0]), self._value(ends[1])) if ends else (None, None)
        return Quantile(self._value(round(q * (self.count - 1))), low, high)

    def summary(self) -> DurationSummary | None:
        """Return the distribution in a few numbers; None of an empty one."""
        if not self.count:
            return None
        fence, beyond = self._fence() if self.count >= smallest_sample(0.25) else (None, None)
        return DurationSummary(self.count, self.sum, self.least, self.most, self.sum / self.count, self._or_none(0.5),
                               self._or_none(0.9), self._or_none(0.99), fence, beyond, self.negative)

    def _or_none(self, q: float) -> Quantile | None:
        return self.quantile(q) if self.count >= smallest_sample(q) else None

    def _fence(self) -> tuple[float, int]:
        low, high = self.quantile(0.25).value_ns, self.quantile(0.75).value_ns
        first = int(bins(np.array([int(high + 1.5 * (high - low))]))[0]) + 1
        return lower_edge(first), int(self.counts[first:].sum())

    def _value(self, rank: int) -> float:
        """Return the value of this 0-based rank, to the resolution of the bins."""
        number = int(np.searchsorted(np.cumsum(self.counts), rank, side="right"))
        low, high = lower_edge(number), upper_edge(number)
        middle = low if high - low <= 1 else (low + high) / 2
        return float(min(max(middle, self.least), self.most))


def _ranks(count: int, q: float) -> tuple[int, int] | None:
    if count <= EXACT_RANKS:
        return interval_ranks(count, q, 0.95)
    half = 1.96 * (count * q * (1 - q)) ** 0.5
    return max(0, int(count * q - half)), min(count - 1, int(count * q + half) + 1)
