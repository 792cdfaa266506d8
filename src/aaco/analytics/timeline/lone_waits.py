"""Waiting inside collectives without another recorded participant, from their durations.

A collective occupies the device from the arrival of its own rank to the end. If it takes FAR times as long as is usual
for its kind (one kernel name, grid and message size on one device), what exceeds the usual time is waiting for another
rank, not work. The first collective of a device may wait for a rank with a profiler that started later; it is compared
with the longest that follows. Steady waits do not show here: captures of all ranks show them (arrivals.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.core import distinct
from aaco.core.arrays import Ints

# Of 14 recordings of ranks on H100 the first took 383 and 3894 times as long in two, up to 4 times in the others.
FAR = 10
LATER = 4  # collectives that tell how long one takes


class LoneWaits(Struct, frozen=True):
    """kernel_id, sorted, and arrived: collectives that waited, and the time at which the last participant can have
    arrived. first: by device, start and end of a first collective that waited."""

    kernel_id: Ints
    arrived: Ints
    first: dict[int, tuple[int, int]]


def is_start_skew(first_ns: int, later: int, longest_later_ns: int) -> bool:
    """Return whether the first collective of a device waited for a rank that was not there yet."""
    return later >= LATER and first_ns > FAR * longest_later_ns


def start_skews(start: Ints, took: Ints, device: Ints) -> dict[int, tuple[int, int]]:
    """Return by device the row of a first collective that waited for a rank that was not there yet, and the longest
    time, ns, that a later one took."""
    skews = {}
    for number in np.unique(device).tolist():
        rows = np.flatnonzero(device == number)
        rows = rows[np.argsort(start[rows], kind="stable")]
        longest = int(took[rows[1:]].max(initial=0))
        if is_start_skew(int(took[rows[0]]), len(rows) - 1, longest):
            skews[number] = int(rows[0]), longest
    return skews


def find(kernel_id: Ints, start: Ints, end: Ints, device: Ints, kind: Sequence[Ints]) -> LoneWaits:
    """Return the waits of the collectives in these columns. kind: columns that distinguish kinds."""
    took, usual = end - start, np.full(len(start), np.iinfo(np.int64).max // FAR)
    kinds, _ = distinct.coded(device, *kind)
    for number in range(int(kinds.max(initial=-1)) + 1):
        rows = np.flatnonzero(kinds == number)
        if len(rows) > LATER:
            usual[rows] = int(np.median(took[rows]))
    first = {}
    for number, (row, longest) in start_skews(start, took, device).items():
        usual[row] = min(usual[row], longest)
        first[number] = int(start[row]), int(end[row])
    waits = np.flatnonzero(took > FAR * usual)
    waits = waits[np.argsort(kernel_id[waits])]
    return LoneWaits(kernel_id[waits], (end - usual)[waits], first)
