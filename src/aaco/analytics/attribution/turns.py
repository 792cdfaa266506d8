"""Compute how long the device worked in each turn of a comparison.

A turn's run ends when its device has finished: ONNX Runtime waits for the device at the end of an inference and copies
the outputs to the host. On an H200 the last kernel ended 28 us or more before its inference did, and the first began 90
us after it, so a microsecond between the clocks moves no kernel to another turn.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from aaco.analytics.attribution.spans import TOLERANCE_NS
from aaco.core.arrays import Ints
from aaco.core.inputs import union_ns
from aaco.core.readings import Absent


def busy_ns(starts: Ints, ends: Ints, begins: Ints, finishes: Ints) -> Ints:
    """Return per turn [begin, finish] the ns in which at least one piece of work, [start, end], ran. Turns in order.

    Work that ended before the first turn belongs to the warm-up. Raise Absent if any later work is not inside one turn,
    or a turn has none.
    """
    if not len(begins):
        raise Absent("it measured no turn")
    later = ends > begins[0]
    starts, ends = starts[later], ends[later]
    turn = np.searchsorted(begins, starts + (ends - starts) // 2, side="right") - 1
    fits = (turn >= 0) & (starts >= begins[turn] - TOLERANCE_NS) & (ends <= finishes[turn] + TOLERANCE_NS)
    if not fits.all():
        raise Absent(f"{int((~fits).sum()):,} of {len(fits):,} pieces of the device's work lie in no turn: its runs "
                     "do not wait for the device, or the clocks are apart")
    order = np.argsort(turn, kind="stable")
    edges = np.searchsorted(turn[order], np.arange(len(begins) + 1))
    parts = (order[first:last] for first, last in pairwise(edges))
    busy = np.array([union_ns(starts[part], ends[part]) for part in parts], np.int64)
    if (busy <= 0).any():
        raise Absent(f"the device did nothing in {int((busy <= 0).sum()):,} of {len(busy):,} turns")
    return busy
