"""Which candidate cuts are steps of the level: Student's t on whitened values, the weakest cut removed until all hold.

Noise with memory rho wanders, and a wandering mean looks like a step to any test that takes values as independent.
So the test is one of generalised least squares for noise that forgets exponentially (Prais & Winsten 1954): of the
innovations y[i] - rho y[i-1], those of a segment of m values are worth m (1 - rho) / (1 + rho) independent values to
its mean, the effective n, and a sharp step is seen in the one innovation where it happens, drawn in like any outlier.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.core import statistics
from aaco.core.arrays import Ints, Reals
from aaco.governance.changepoints import noise
from aaco.governance.changepoints.segmentation import LEAST

ALPHA = 3e-6  # of one cut; with the choice of the place, one false alarm in far more than 1000 values of noise
LIBERAL = 0.01  # of the first pass, whose steps are only taken out of the noise: else they would count as its memory
LONG_TAIL = 0.9  # the quantile that scales are read at once the steps are known: sees noise that comes now and then
PRIOR = 10  # values that the noise of the whole series counts for beside that of a stretch
SHIFTED = 8  # how far from its candidate a step may be placed


class Step(Struct, frozen=True):
    """A step at `index`, the first value of the new level: its size in the values' unit and its two-sided p-value."""

    index: int
    size: float
    p_value: float


class Whitened:
    """A series as innovations of its noise, with the sums that any test needs.

    rho, sigma: the memory of the noise and the scale of its innovations, at this quantile of their sizes.
    """

    def __init__(self, values: Reals, residuals: Reals, share: float) -> None:
        self.values = values
        self.rho = noise.memory(residuals, share)
        keep = 1 - self.rho
        level = keep * noise.running_median(values, noise.SPIKE)
        raw = np.concatenate(([level[0]], values[1:] - self.rho * values[:-1])) - level
        self.sigma = max(noise.scale(raw[1:], share), noise.FLAT)  # between exact repeats any change is one
        drawn = np.clip(raw, -noise.DRAWN_IN * self.sigma, noise.DRAWN_IN * self.sigma)
        self.innovations = level + drawn
        self._sum = np.concatenate(([0.0], np.cumsum(self.innovations)))
        self._square = np.concatenate(([0.0], np.cumsum(drawn**2)))

    def step(self, begin: int, index: Ints | int, end: int) -> tuple[Reals, Reals]:
        """Size and t of a step at each index within [begin, end), by least squares over the innovations."""
        at = np.asarray(index, dtype=np.int64)
        keep, count, after = 1 - self.rho, end - begin, end - at
        levels = 1 - self.rho**2 + (count - 1) * keep**2
        both, steps = keep + (after - 1) * keep**2, 1 + (after - 1) * keep**2
        level = (1 - self.rho**2) * self.values[begin] + keep * (self._sum[end] - self._sum[begin + 1])
        step = self.innovations[at] + keep * (self._sum[end] - self._sum[at + 1])
        determinant = levels * steps - both**2
        size = (levels * step - both * level) / determinant
        return size, size * np.sqrt(determinant / levels) / self._noise(begin, end)

    def _noise(self, begin: int, end: int) -> float:
        """Return the noise of the whole series or of this stretch, whichever is larger."""
        here = (PRIOR * self.sigma**2 + self._square[end] - self._square[begin]) / (PRIOR + end - begin)
        return float(np.sqrt(max(self.sigma**2, here)))


def merge(white: Whitened, cuts: Sequence[int], least: float, alpha: float = ALPHA) -> list[Step]:
    """Return the cuts that remain when the weakest, by its t between its two segments, is removed until all hold.

    least: the smallest step that counts. Each is placed, within a few values, where its t is largest. O(k log k).
    """
    size = len(white.values)
    before, after = _neighbours(cuts, size)
    version = dict.fromkeys(cuts, 0)
    limit = statistics.t_quantile(1 - alpha / 2, size - 2)

    def strength(cut: int) -> float:
        height, t = white.step(before[cut], cut, after[cut])
        return float(abs(t)) if abs(height) >= least else 0.0

    heap = [(strength(cut), cut, 0) for cut in cuts]
    heapq.heapify(heap)
    while heap:
        t, cut, known = heapq.heappop(heap)
        if version.get(cut) != known:
            continue
        if t > limit:
            break
        left, right = before.pop(cut), after.pop(cut)
        after[left], before[right] = right, left
        del version[cut]
        for side in (left, right):
            if side in version:
                version[side] += 1
                heapq.heappush(heap, (strength(side), side, version[side]))
    return _placed(white, sorted(version))


def residuals(values: Reals, cuts: Sequence[int]) -> Reals:
    """Return the values less the median of their segment."""
    found = values.copy()
    for begin, end in segments(cuts, len(values)):
        found[begin:end] -= np.median(found[begin:end])
    return found


def segments(cuts: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Begin and end of every segment."""
    return list(zip((0, *cuts), (*cuts, size), strict=True))


def _neighbours(cuts: Sequence[int], size: int) -> tuple[dict[int, int], dict[int, int]]:
    spans = segments(cuts, size)
    return {end: begin for begin, end in spans}, dict(spans)


def _placed(white: Whitened, cuts: list[int]) -> list[Step]:
    found: list[Step] = []
    for number, cut in enumerate(cuts):
        begin = found[-1].index if found else 0
        end = cuts[number + 1] if number + 1 < len(cuts) else len(white.values)
        places = np.arange(max(begin + LEAST, cut - SHIFTED), min(end - LEAST, cut + SHIFTED) + 1, dtype=np.int64)
        if not len(places):
            places = np.array([cut], np.int64)
        sizes, t = white.step(begin, places, end)
        best = int(np.abs(t).argmax())
        p_value = 2 * statistics.t_cdf(-abs(float(t[best])), len(white.values) - 2)
        found.append(Step(int(places[best]), float(sizes[best]), p_value))
    return found
