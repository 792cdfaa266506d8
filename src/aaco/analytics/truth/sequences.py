"""Programs repeat themselves: where kernel x nearly always runs between a and b, an a followed by b has lost its x.

This needs no launch records, so it also watches over what a graph launch hides and over traces of kernels alone. On 36
real traces of six GPU types it finds nothing in 35 and one place in the last; of 1 % of the kernels taken out at random
it finds most places in every trace whose sequence repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from aaco.analytics.streaming.stream_ids import NameIds
from aaco.analytics.truth.finding import Finding, Slice, weigh
from aaco.core import distinct
from aaco.core.arrays import Ints

OFTEN = 8  # times that a-x-b must be seen before a-b is a gap
EXCEPTION = 0.1  # a-b more often than this share of a-x-b is another path of the program, not a loss
BITS = 20  # of a name's code, so that three fit one integer


class SequenceCheck:
    """Kernels that are missing from where they always are."""

    def __init__(self) -> None:
        self._names = NameIds()
        self._tail: dict[tuple[int, ...], Ints] = {}
        self._pairs: Counter[int] = Counter()
        self._triples: Counter[int] = Counter()
        self.count = 0

    def add(self, piece: Slice) -> None:
        """Count which kernels follow which on each queue."""
        # Past 2**BITS names they share the last code; no name is a name of its own.
        codes = np.minimum(1 + self._names.numbers(piece.kernels.table["kernel_name"]), (1 << BITS) - 1)
        self.count += len(codes)
        queues, place = distinct.combinations(*(piece.kernels[name] for name in ("device_id", "queue_id", "stream_id")))
        for index, key in enumerate(queues):
            before = self._tail.get(key, np.zeros(0, np.int64))
            run = np.concatenate((before, codes[place == index]))
            fresh = len(before)
            _count(self._pairs, run[:-1] << BITS | run[1:], fresh - 1)
            _count(self._triples, run[:-2] << 2 * BITS | run[1:-1] << BITS | run[2:], fresh - 2)
            self._tail[key] = run[-2:]

    def findings(self) -> Iterator[Finding]:
        """Gaps where a kernel is always found."""
        usual: dict[int, int] = {}
        low = (1 << BITS) - 1
        for triple, times in self._triples.items():
            pair = triple >> 2 * BITS << BITS | triple & low
            usual[pair] = max(usual.get(pair, 0), times)
        gaps = sum(times for pair, times in self._pairs.items()
                   if usual.get(pair, 0) >= OFTEN and times <= max(1, EXCEPTION * usual[pair]))
        if gaps:
            yield Finding("gaps_in_a_repeated_sequence", weigh(gaps, self.count, "lost"), gaps, self.count,
                          f"in {gaps} places a kernel of a repeated sequence is missing",
                          "compare with another recording: a program that takes another path at times looks alike")


def _count(counter: Counter[int], keys: Ints, skip: int) -> None:
    """Add the keys from `skip` on: those before were counted with the slice before."""
    counter.update(distinct.counts(keys[max(0, skip):]))
