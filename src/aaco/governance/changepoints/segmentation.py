"""Where a series may have changed: kernel segmentation in overlapping windows, in linear time and memory.

In every window the cuts are those that minimise the within-segment scatter in the feature space of a Gaussian kernel
plus a penalty per cut, exactly (Harchaoui & Cappe 2007; Arlot, Celisse & Harchaoui 2019, by dynamic programming). The
kernel sees any change of the distribution and is bounded, so an outlier costs no more than one segment's worth. What
comes out are candidates; whether the level changed is decided by `steps.merge`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aaco.core.arrays import Ints, Reals

WINDOW = 64  # values
AT_ONCE = 256  # windows: bounds the memory to some ten MB
LEAST = 2  # values of a segment: a change needs one more value that confirms it
PENALTY = 5.0  # per cut, in units of the kernel's largest value: a segment of three values far off is worth it
COARSER = 8  # values that one of the next coarser series is the mean of: small changes of long stretches


def candidates(values: Reals, bandwidth: float, penalty: float = PENALTY) -> Ints:
    """Return the indices at which a new segment may begin, ascending.

    values: finite. bandwidth: of the kernel, in the unit of the values, above 0; the means of coarser series are held
    to a kernel as much narrower as their noise would be. Where the newest two values begin is always one: news need not
    wait for a third.
    """
    newest = [len(values) - LEAST] if len(values) >= 2 * LEAST else []
    found, step = [np.array(newest, np.int64), windowed(values, bandwidth, penalty)], COARSER
    while len(values) >= 2 * LEAST * step:
        whole = len(values) // step * step
        means = values[:whole].reshape(-1, step).mean(axis=1)
        found.append(step * windowed(means, bandwidth / np.sqrt(step), penalty))
        step *= COARSER
    return np.unique(np.concatenate(found))


def windowed(values: Reals, bandwidth: float, penalty: float = PENALTY) -> Ints:
    """Return the cuts of every window of a series, windows overlapping by half, ascending and each once."""
    width = min(WINDOW, len(values))
    if width < 2 * LEAST:
        return np.empty(0, np.int64)
    starts = np.unique(np.append(np.arange(0, len(values) - width + 1, max(1, width // 2)), len(values) - width))
    found = [start + cut for begin in range(0, len(starts), AT_ONCE)
             for start, cuts in _some(values, starts[begin:begin + AT_ONCE], width, bandwidth, penalty)
             for cut in cuts]
    return np.unique(np.array(found, np.int64))


def _some(values: Reals, starts: Ints, width: int, bandwidth: float, penalty: float) -> Iterator[tuple[int, list[int]]]:
    windows = values[starts[:, None] + np.arange(width)]
    for start, origins in zip(starts.tolist(), _optimal(_sums(windows, bandwidth), penalty), strict=True):
        yield start, _traced(origins)


def _sums(windows: Reals, bandwidth: float) -> Reals:
    """Per window (n, w), the sums of its kernel matrix over [0, i) x [0, j): (n, w + 1, w + 1)."""
    gram = np.exp(-0.5 * ((windows[:, :, None] - windows[:, None, :]) / bandwidth) ** 2)
    sums = np.zeros((len(windows), windows.shape[1] + 1, windows.shape[1] + 1))
    sums[:, 1:, 1:] = gram.cumsum(axis=1).cumsum(axis=2)
    return sums


def _optimal(sums: Reals, penalty: float) -> Ints:
    """Per window and end, where the last segment of the best segmentation up to that end begins: (n, w + 1).

    The scatter of [s, t) is its length less the sum of its block of the kernel matrix divided by the length.
    """
    count, width = len(sums), sums.shape[1] - 1
    best = np.full((count, width + 1), np.inf)
    best[:, 0] = -penalty  # the first segment costs no cut
    origin = np.zeros((count, width + 1), np.int64)
    windows = np.arange(count)
    corner = np.einsum("nii->ni", sums)
    for end in range(LEAST, width + 1):
        begins = np.concatenate(([0], np.arange(LEAST, end - LEAST + 1)))
        lengths = end - begins
        block = corner[:, [end]] - 2 * sums[:, begins, end] + corner[:, begins]
        total = best[:, begins] + lengths - block / lengths + penalty
        chosen = total.argmin(axis=1)
        best[:, end] = total[windows, chosen]
        origin[:, end] = begins[chosen]
    return origin


def _traced(origins: Ints) -> list[int]:
    found, end = [], len(origins) - 1
    while end := int(origins[end]):
        found.append(end)
    return found
