"""Two recordings of kernels compared: the shares of families, which kernels are new or gone, and changed durations.

Kernels are paired by fingerprint (the same), else within a family by likeness of name, block and duration, at most one
to one, so that the sum of likenesses is largest (scipy's assignment).

Distance of two samples of durations: Wasserstein's first, of log2 duration, in octaves; 2 ** distance is the factor by
which the durations changed. Its null behaviour: two samples of n and m independent durations of one distribution F
differ by about sqrt(2 / pi) sqrt(1 / n + 1 / m) times the integral of sqrt(F (1 - F)), because the difference of two
empirical distributions is nearly normal at each point; that is `null_octaves`. The two-sample Kolmogorov-Smirnov test
decides whether the samples differ at all (asymptotic; on binned values it errs to the safe side), with Holm's
correction over all pairs. Both take calls as independent. Calls of one recording are not quite, and two recordings
differ in clocks, temperature and co-tenants too: `drifted` says that recordings differ, `aaco diff` of repeated runs
says whether versions do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from rapidfuzz import fuzz
from scipy.optimize import linear_sum_assignment
from scipy.special import kolmogorov

from aaco.analytics.kernels.fingerprints import BINS_PER_OCTAVE, quantile
from aaco.core.arrays import Reals

ALPHA = 0.05
FEWEST_CALLS = 8  # of either side, for the asymptotic test to hold
ALIKE = 0.7  # likeness from which two kernels are taken for one
MOST_CANDIDATES = 300  # per family and side, by total time: the rest is new or gone
WEIGHTS = {"name": 0.6, "block": 0.2, "duration": 0.2}

Row = dict[str, Any]  # of a fingerprints table


class FamilyShare(Struct, frozen=True):
    """A family's share of all kernel time before and after, 0-1, and its time in ns."""

    family: str
    before: float
    after: float
    before_ns: int
    after_ns: int


class Pair(Struct, frozen=True):
    """A kernel of both sides. likeness: 1 where the fingerprint is the same. factor: median after / before.

    octaves: distance of the durations; null_octaves: what it would be about if nothing had changed; p_value: Holm's.
    All three are None with fewer than FEWEST_CALLS calls on a side.
    """

    normalised_before: str
    normalised: str
    family: str
    fingerprint_before: str
    fingerprint: str
    likeness: float
    calls_before: int
    calls: int
    total_before_ns: int
    total_ns: int
    factor: float | None
    octaves: float | None = None
    null_octaves: float | None = None
    p_value: float | None = None

    @property
    def drifted(self) -> bool:
        """Return whether the durations differ beyond chance, were all calls independent."""
        return self.p_value is not None and self.p_value <= ALPHA


class KernelDrift(Struct, frozen=True):
    """What differs between two recordings. families_moved: half the sum of the differences of shares, 0-1: the part of
    kernel time that is elsewhere. new, gone: rows of the fingerprints tables, largest total first."""

    families: tuple[FamilyShare, ...]
    families_moved: float
    pairs: tuple[Pair, ...]
    new: pa.Table
    gone: pa.Table


def drift(before: pa.Table, after: pa.Table) -> KernelDrift:
    """Return the drift between two fingerprints tables."""
    families = shares(before, after)
    old, new = before.to_pylist(), after.to_pylist()
    matched = match(before, after)
    pairs = _corrected([_pair(old[old_row], new[new_row], likeness) for old_row, new_row, likeness in matched])
    return KernelDrift(families, sum(abs(share.after - share.before) for share in families) / 2,
                       tuple(sorted(pairs, key=lambda pair: (-pair.total_ns - pair.total_before_ns, pair.fingerprint))),
                       new=_rest(after, {new_row for _, new_row, _ in matched}),
                       gone=_rest(before, {old_row for old_row, _, _ in matched}))


def shares(before: pa.Table, after: pa.Table) -> tuple[FamilyShare, ...]:
    """Return each family's share of the kernel time of both sides, what moved most first."""
    sides = [_by_family(table) for table in (before, after)]
    whole = [max(1, sum(side.values())) for side in sides]
    rows = [FamilyShare(family, sides[0].get(family, 0) / whole[0], sides[1].get(family, 0) / whole[1],
                        sides[0].get(family, 0), sides[1].get(family, 0))
            for family in sides[0].keys() | sides[1].keys()]
    return tuple(sorted(rows, key=lambda share: (-abs(share.after - share.before), share.family)))


def match(before: pa.Table, after: pa.Table) -> list[tuple[int, int, float]]:
    """Return (row before, row after, likeness 0-1) of the kernels that are on both sides; each row at most once."""
    rows_of = {key: row for row, key in enumerate(before["fingerprint"].to_pylist())}
    exact = [(rows_of[key], row, 1.0) for row, key in enumerate(after["fingerprint"].to_pylist()) if key in rows_of]
    taken = {old_row for old_row, _, _ in exact}, {new_row for _, new_row, _ in exact}
    left, right = (_candidates(table, used) for table, used in zip((before, after), taken, strict=True))
    return exact + [pair for family in sorted(left.keys() & right.keys())
                    for pair in _assigned(left[family], right[family])]


def distance(before: tuple[list[int], list[int]], after: tuple[list[int], list[int]]) -> tuple[float, float, float]:
    """Return the distance in octaves, the distance expected of no change, and the p-value of no change, of two
    histograms.

    A histogram is (bins, counts), as in the fingerprints table; neither may be empty.
    """
    bins = np.union1d(before[0], after[0])
    first, second = (_distribution(bins, *side) for side in (before, after))
    width = np.diff(bins) / BINS_PER_OCTAVE
    n_before, n_after = sum(before[1]), sum(after[1])
    pooled = (first * n_before + second * n_after) / (n_before + n_after)
    scatter = (np.sqrt(pooled * (1 - pooled))[:-1] * width).sum()
    expected = np.sqrt(2 / np.pi) * np.sqrt(1 / n_before + 1 / n_after) * scatter
    reach = float(np.abs(first - second).max(initial=0.0)) * np.sqrt(n_before * n_after / (n_before + n_after))
    return float((np.abs(first - second)[:-1] * width).sum()), float(expected), float(kolmogorov(reach))


def _distribution(bins: NDArray[np.int64], occupied: list[int], counts: list[int]) -> Reals:
    """Return the share of values up to each bin."""
    at = np.zeros(len(bins))
    at[np.searchsorted(bins, occupied)] = counts
    cumulative: Reals = np.cumsum(at) / max(1, sum(counts))
    return np.minimum(cumulative, 1.0)


def _pair(old: Row, new: Row, likeness: float) -> Pair:
    sides = [(side["log_bins"] or [], side["bin_counts"] or []) for side in (old, new)]
    medians = [quantile(*side, 0.5) for side in sides]
    factor = medians[1] / medians[0] if medians[0] and medians[1] is not None else None
    pair = Pair(old["normalised"], new["normalised"], new["family"] or "unknown", old["fingerprint"],
                new["fingerprint"], likeness, old["calls"], new["calls"], old["total_ns"] or 0, new["total_ns"] or 0,
                factor)
    if min(sum(side[1]) for side in sides) < FEWEST_CALLS:
        return pair
    octaves, null_octaves, p_value = distance(*sides)
    return replace(pair, octaves=octaves, null_octaves=null_octaves, p_value=p_value)


def _corrected(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs with Holm's p-values."""
    tested = sorted((pair.p_value, row) for row, pair in enumerate(pairs) if pair.p_value is not None)
    corrected, least = list(pairs), 0.0
    for rank, (p_value, row) in enumerate(tested):
        least = max(least, min(1.0, p_value * (len(tested) - rank)))
        corrected[row] = replace(pairs[row], p_value=least)
    return corrected


def _by_family(table: pa.Table) -> dict[str, int]:
    ns_by_family: dict[str, int] = {}
    for family, total in zip(table["family"].to_pylist(), table["total_ns"].to_pylist(), strict=True):
        ns_by_family[family or "unknown"] = ns_by_family.get(family or "unknown", 0) + (total or 0)
    return ns_by_family


def _candidates(table: pa.Table, taken: set[int]) -> dict[str, list[tuple[int, Row]]]:
    """Return the rows not taken yet by family, those of most time."""
    rows_by_family: dict[str, list[tuple[int, Row]]] = {}
    columns = ["family", "normalised", "block_x", "block_y", "block_z", "p50_ns", "total_ns"]
    for row, kernel in enumerate(table.select(columns).to_pylist()):
        if row not in taken:
            rows_by_family.setdefault(kernel["family"] or "unknown", []).append((row, kernel))
    return {family: sorted(rows, key=lambda pair: -(pair[1]["total_ns"] or 0))[:MOST_CANDIDATES]
            for family, rows in rows_by_family.items()}


def _assigned(left: list[tuple[int, Row]], right: list[tuple[int, Row]]
              ) -> list[tuple[int, int, float]]:
    """Return the pairs of one family with the largest sum of likenesses, of those that reach ALIKE."""
    likeness = np.array([[_likeness(old, new) for _, new in right] for _, old in left])
    return [(left[row][0], right[column][0], float(likeness[row, column]))
            for row, column in zip(*linear_sum_assignment(likeness, maximize=True), strict=True)
            if likeness[row, column] >= ALIKE]


def _likeness(old: Row, new: Row) -> float:
    """Return a likeness 0-1: the names' edit similarity, whether the blocks are the same, how near the median durations
    are."""
    name = fuzz.ratio(old["normalised"], new["normalised"]) / 100
    block = all(old[axis] == new[axis] for axis in ("block_x", "block_y", "block_z"))
    times = old["p50_ns"], new["p50_ns"]
    near = np.exp(-abs(np.log(times[0] / times[1]))) if all(times) else 0.0
    return float(WEIGHTS["name"] * name + WEIGHTS["block"] * block + WEIGHTS["duration"] * near)


def _rest(table: pa.Table, taken: set[int]) -> pa.Table:
    rows = [row for row in range(table.num_rows) if row not in taken]
    return table.take(pa.array(rows, pa.int64())).sort_by([("total_ns", "descending"), ("fingerprint", "ascending")])
