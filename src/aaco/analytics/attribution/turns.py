"""How long the device worked in each turn of a comparison.

A turn's run ends when its device has: ONNX Runtime waits for the device at the end of an inference, and copies the
outputs to the host. On an H200 the last kernel ended 28 us or more before its inference did, and the first began 90 us
after it, so a microsecond between the clocks puts none into another turn.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from aaco.analytics.attribution.spans import TOLERANCE_NS
from aaco.analytics.inputs import union_ns
from aaco.analytics.lanes import Ints
from aaco.core.readings import Absent


def busy_ns(starts: Ints, ends: Ints, begins: Ints, finishes: Ints) -> Ints:
    """Per turn [begin, finish] the time in which at least one piece of work, [start, end], ran. Turns in order; ns.

    Work that ended before the first turn is of the warm-up. Raises Absent where any later work does not lie in one
    turn, or a turn has none: then nobody knows whose it is.
    """
    if not len(begins):
        raise Absent("it measured no turn")
    later = ends > begins[0]
    starts, ends = starts[later], ends[later]
    turn = np.searchsorted(begins, starts + (ends - starts) // 2, side="right") - 1
    held = (turn >= 0) & (starts >= begins[turn] - TOLERANCE_NS) & (ends <= finishes[turn] + TOLERANCE_NS)
    if not held.all():
        raise Absent(f"{int((~held).sum()):,} of {len(held):,} pieces of the device's work lie in no turn: its runs do "
                     "not wait for the device, or the clocks are apart")
    order = np.argsort(turn, kind="stable")
    edges = np.searchsorted(turn[order], np.arange(len(begins) + 1))
    parts = (order[first:last] for first, last in pairwise(edges))
    busy = np.array([union_ns(starts[part], ends[part]) for part in parts], np.int64)
    if (busy <= 0).any():
        raise Absent(f"the device did nothing in {int((busy <= 0).sum()):,} of {len(busy):,} turns")
    return busy
