"""Programs repeat themselves: where kernel x nearly always runs between a and b, an a followed by b has lost its x.

What runs before a and after b must be as usual, too: other kernels follow the last layer of a model than the inner
layers. Kernels with a recorded launch each are left to the check of launches (launches.py), which sees a missing one;
this check is for kernels of graph launches and for traces of only kernels. Where such kernels follow each other in that
way, it is a path of the program, for others, too. On 36 real traces of six GPU types it finds
nothing; of 1 % of the kernels taken out at random it finds most places in every trace with a sequence that repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.stream_ids import NameIds
from aaco.analytics.truth.finding import Finding, Slice, weigh
from aaco.core import distinct
from aaco.core.arrays import Flags, Ints

OFTEN = 8  # times that p-a-x-b-c must be seen before p-a-b-c is a gap
EXCEPTION = 0.1  # p-a-b-c more often than this share of it is another path of the program, not a loss
BITS = 12  # of a name's code, so that five fit one integer
SPAN = 5  # kernels in a row: two before and two behind the one that may be missing


class SequenceCheck:
    """Kernels that are missing from where they always are."""

    def __init__(self) -> None:
        self._names = NameIds()
        self._tail: dict[tuple[int, ...], Ints] = {}
        self._gaps: Counter[int] = Counter()  # four in a row
        self._whole: Counter[int] = Counter()  # five in a row
        self._paths: set[int] = set()  # four in a row whose launches say that nothing is missing
        self.count = 0

    def add(self, piece: Slice) -> None:
        """Count which kernels follow which on each queue."""
        # Past 2**BITS names they share the last code; no name is a name of its own.
        names = np.minimum(1 + self._names.numbers(piece.kernels.table["kernel_name"]), (1 << BITS) - 1)
        codes = names << 1 | (piece.launch_part == CallKind.LAUNCH)
        self.count += len(codes)
        queues, place = distinct.combinations(*(piece.kernels[name] for name in ("device_id", "queue_id", "stream_id")))
        for index, key in enumerate(queues):
            before = self._tail.get(key, np.zeros(0, np.int64))
            run = np.concatenate((before, codes[place == index]))
            self._count(run >> 1, run & 1 == 1, len(before))
            self._tail[key] = run[1 - SPAN:]

    def _count(self, names: Ints, launched: Flags, before: int) -> None:
        """Count the rows of four and five that end after the first `before`: the others were counted already."""
        whole, four = _rows(names, SPAN), _rows(names, SPAN - 1)
        self._whole.update(distinct.counts(whole[max(0, before - SPAN + 1):]))
        by_itself = np.logical_and.reduce([launched[at:len(launched) - SPAN + 2 + at] for at in (1, 2)])
        first = max(0, before - SPAN + 2)
        self._gaps.update(distinct.counts(four[first:]))
        self._paths.update(distinct.values(four[first:][by_itself[first:]]).tolist())

    def findings(self) -> Iterator[Finding]:
        """Gaps where a kernel is always found."""
        usual: dict[int, int] = {}
        low = (1 << 2 * BITS) - 1
        for five, times in self._whole.items():
            four = five >> 3 * BITS << 2 * BITS | five & low
            usual[four] = max(usual.get(four, 0), times)
        gaps = sum(times for four, times in self._gaps.items()
                   if usual.get(four, 0) >= OFTEN and times <= max(1, EXCEPTION * usual[four])
                   and four not in self._paths)
        if gaps:
            yield Finding("gaps_in_a_repeated_sequence", weigh(gaps, self.count, "lost"), gaps, self.count,
                          f"in {gaps} places a kernel is missing that is always found between its neighbours",
                          "compare with another recording: a program that takes another path at times looks alike")


def _rows(names: Ints, length: int) -> Ints:
    """Return a number for every `length` names in a row."""
    numbers = np.zeros(max(0, len(names) - length + 1), np.int64)
    for at in range(length if len(numbers) else 0):
        numbers = numbers << BITS | names[at:at + len(numbers)]
    return numbers
