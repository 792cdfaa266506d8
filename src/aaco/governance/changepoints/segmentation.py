"""Where a series may have changed: kernel segmentation in overlapping windows, in linear time and memory.

In every window the cuts are those that minimise the within-segment scatter in the feature space of a Gaussian kernel
plus a penalty per cut, exactly (Harchaoui & Cappe 2007; Arlot, Celisse & Harchaoui 2019, by dynamic programming). The
kernel sees any change of the distribution and is bounded, so an outlier costs no more than one segment's worth. What
comes out are candidates; whether the level changed is decided by `steps.merge`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from aaco.core.arrays import Ints, Reals

WINDOW = 64  # values
AT_ONCE = 256  # windows: bounds the memory to some ten MB
LEAST = 2  # values of a segment: a change needs one more value that confirms it
PENALTY = 5.0  # per cut, in units of the kernel's largest value: a segment of three values far off is worth it
COARSER = 8  # values that one of the next coarser series is the mean of: small changes of long stretches


def candidates_of(series: Sequence[tuple[Reals, float]], penalty: float = PENALTY) -> list[Ints]:
    """Return the indices of each series at which a new segment may begin, ascending.

    series: finite values, and the bandwidth of the kernel in their unit, above 0; the means of coarser series are held
    to a kernel as much narrower as their noise would be. Where the newest two values begin is always one: news need not
    wait for a third. Windows of one width are segmented together.
    """
    cuts_of = [[np.array([len(values) - LEAST] if len(values) >= 2 * LEAST else [], np.int64)] for values, _ in series]
    coarser = [(number, step, means, width) for number, (values, bandwidth) in enumerate(series)
               for step, means, width in _coarser(values, bandwidth)]
    cut = windowed([(means, width) for _, _, means, width in coarser], penalty)
    for (number, step, _, _), cuts in zip(coarser, cut, strict=True):
        cuts_of[number].append(step * cuts)
    return [np.unique(np.concatenate(cuts)) for cuts in cuts_of]


def _coarser(values: Reals, bandwidth: float) -> Iterator[tuple[int, Reals, float]]:
    """Yield a series and its means over more and more values, each with how many these are and its bandwidth."""
    yield 1, values, bandwidth
    step = COARSER
    while len(values) >= 2 * LEAST * step:
        yield step, values[:len(values) // step * step].reshape(-1, step).mean(axis=1), bandwidth / np.sqrt(step)
        step *= COARSER


def windowed(series: Sequence[tuple[Reals, float]], penalty: float = PENALTY) -> list[Ints]:
    """Return the cuts of every window of each series with its bandwidth, windows overlapping by half, ascending and
    each once."""
    cuts_of: list[list[int]] = [[] for _ in series]
    by_width: dict[int, list[tuple[int, Ints]]] = defaultdict(list)
    for number, (values, _) in enumerate(series):
        by_width[min(WINDOW, len(values))].append((number, _starts(len(values))))
    for width, members in by_width.items():
        owners = np.concatenate([np.full(len(starts), number) for number, starts in members])
        starts = np.concatenate([starts for _, starts in members])
        for begin in range(0, len(starts), AT_ONCE):
            chunk = slice(begin, begin + AT_ONCE)
            part = list(zip(owners[chunk].tolist(), starts[chunk].tolist(), strict=True))
            windows = np.stack([series[owner][0][start:start + width] for owner, start in part])
            bandwidths = np.array([series[owner][1] for owner, _ in part])
            for (owner, start), origins in zip(part, _optimal(_sums(windows, bandwidths), penalty), strict=True):
                cuts_of[owner] += [start + cut for cut in _traced(origins)]
    return [np.unique(np.array(cuts, np.int64)) for cuts in cuts_of]


def _starts(count: int) -> Ints:
    """Return where the windows of a series of so many values begin; of too few values there is none."""
    width = min(WINDOW, count)
    if width < 2 * LEAST:
        return np.empty(0, np.int64)
    return np.unique(np.append(np.arange(0, count - width + 1, max(1, width // 2)), count - width))


def _sums(windows: Reals, bandwidths: Reals) -> Reals:
    """Per window (n, w), with its bandwidth (n), the sums of its kernel matrix over [0, i) x [0, j): (n, w + 1, w + 1).
    """
    gram = np.exp(-0.5 * ((windows[:, :, None] - windows[:, None, :]) / bandwidths[:, None, None]) ** 2)
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
    windows, corner = np.arange(count), np.einsum("nii->ni", sums)
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
