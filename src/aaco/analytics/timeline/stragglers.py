"""Which rank the others wait for in collective operations, how long, and whether that is its habit or chance.

A participant waits from its own start to that of the last one, within its own kernel. The first operation of a
participant is excluded: a profiler does not start everywhere at once, and its wait is that skew.

A rank is named the straggler if it is late through the whole recording: of BLOCKS stretches with as many operations
each, all but one must show it late on balance (what the others wait for it, in the mean, less what it waits itself),
and the median stretch must cost LEAST_PCT of the time or more. Chance makes ranks late in turns: in a two-rank
recording with nothing planted one rank is last in 23 of 35 operations, and in 5 of 8 stretches
(python -m benchmarks.diagnosis --only windows). No rank is named for waits within what the clocks may differ by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.timeline.arrivals import Arrivals
from aaco.core.arrays import Ints
from aaco.core.words import in_time

BLOCKS = 8
LEAST_PCT = 15.0


class Lateness(Struct, frozen=True):
    """One participant. last: operations in which it starts last; others_waited_ns: how long all others waited in those,
    together; waited_ns: how long it waited itself. Excluded operations are counted in the other fields.
    """

    capture: int | None
    device_id: int
    rank: int | None
    last: int
    others_waited_ns: int
    waited_ns: int
    apart_last: int
    apart_others_waited_ns: int
    apart_waited_ns: int


class Stragglers(Struct, frozen=True):
    """Which rank is late. operation: its name where all are of one kind, else empty. operations: those with several
    participants, without the excluded ones (`apart`). late: index of `ranks`, None if no rank is named, for the
    reason why_none. share_pct: what the median stretch costs. clock_ns: how far the clocks may differ; shifted: whether
    captures were aligned to one clock by the ends of operations."""

    operation: str
    operations: int
    ranks: tuple[Lateness, ...]
    apart: int
    late: int | None
    share_pct: float | None
    clock_ns: int
    shifted: bool
    why_none: str


def stragglers(arrivals: Arrivals, devices: Sequence[tuple[int | None, int]], ranks: Mapping[int | None, int]
               ) -> Stragglers:
    """Return which rank is late, and what that costs. devices: (capture, device) by number in the arrivals; ranks:
    by capture."""
    numbers = np.unique(arrivals.device).tolist()
    first = _firsts(arrivals)
    kept = ~np.isin(arrivals.operation, first)
    rows = tuple(_lateness(arrivals, kept, number, devices[number], ranks) for number in numbers)
    operations = np.unique(arrivals.operation[kept])
    kinds = {arrivals.names[operation] for operation in np.unique(arrivals.operation).tolist()}
    late, share, why = _named(arrivals, operations, numbers)
    return Stragglers(kinds.pop() if len(kinds) == 1 else "", len(operations), rows, len(first), late, share,
                      arrivals.clock_ns, arrivals.shifted, why)


def _firsts(arrivals: Arrivals) -> Ints:
    """Return the operations that are the first of one of their participants."""
    order = np.lexsort((arrivals.start, arrivals.device))
    device = arrivals.device[order]
    return np.unique(arrivals.operation[order][np.r_[True, device[1:] != device[:-1]]])


def _lateness(arrivals: Arrivals, kept: NDArray[np.bool_], number: int, key: tuple[int | None, int],
              ranks: Mapping[int | None, int]) -> Lateness:
    return Lateness(*key, ranks.get(key[0]), *_counted(arrivals, kept, number), *_counted(arrivals, ~kept, number))


def _counted(arrivals: Arrivals, rows: NDArray[np.bool_], number: int) -> tuple[int, int, int]:
    """Return in how many operations of these rows a participant is last, what the others waited in them, and it."""
    late = rows & (arrivals.late == number)
    return (len(np.unique(arrivals.operation[late])), int(arrivals.wait[late].sum()),
            int(arrivals.wait[rows & (arrivals.device == number)].sum()))


def _named(arrivals: Arrivals, operations: Ints, numbers: Sequence[int]) -> tuple[int | None, float | None, str]:
    """Return the straggler's place in numbers, its cost in the median stretch, and why none is named."""
    if len(operations) < BLOCKS:
        return None, None, f"{len(operations)} operations behind the first are too few to tell habit from chance"
    balance, began, ended = _balances(arrivals, operations, numbers)
    in_order = np.argsort(began, kind="stable")
    span = int(ended.max() - began.min())
    stretches = np.array_split(in_order, BLOCKS)
    sums = np.array([balance[:, rows].sum(axis=1) for rows in stretches])  # (stretch, rank)
    share = 100 * BLOCKS * np.median(sums, axis=0) / max(span, 1)
    worst = int(np.argmax(share))
    costs = float(share[worst])
    if (sums[:, worst] > 0).sum() < BLOCKS - 1 or costs < LEAST_PCT:
        return None, costs, (f"no rank is late throughout: the latest costs {max(costs, 0.0):.1f} % in the median "
                             f"stretch, and is late in {int((sums[:, worst] > 0).sum())} of {BLOCKS}")
    if np.median(balance[worst]) <= arrivals.clock_ns:
        return None, costs, ("the waits are within what the captures' clocks may be apart "
                             f"({in_time(arrivals.clock_ns)})")
    return worst, costs, ""


def _balances(arrivals: Arrivals, operations: Ints, numbers: Sequence[int]
              ) -> tuple[NDArray[np.float64], Ints, Ints]:
    """Return what the others wait for each rank in the mean less what it waits, (rank, operation); first start and last
    end of each operation."""
    rows = np.flatnonzero(np.isin(arrivals.operation, operations))
    place = np.searchsorted(operations, arrivals.operation[rows])
    total, count = np.zeros(len(operations)), np.bincount(place, minlength=len(operations))
    np.add.at(total, place, arrivals.wait[rows])
    began, ended = np.full(len(operations), np.iinfo(np.int64).max), np.full(len(operations), np.iinfo(np.int64).min)
    np.minimum.at(began, place, arrivals.start[rows])
    np.maximum.at(ended, place, arrivals.end[rows])
    balance = np.zeros((len(numbers), len(operations)))
    for index, number in enumerate(numbers):
        mine = arrivals.device[rows] == number
        balance[index, place[mine]] -= arrivals.wait[rows][mine]
        last = arrivals.late[rows] == number
        balance[index, place[last]] = (total / np.maximum(count - 1, 1))[place[last]]
    return balance, began, ended
