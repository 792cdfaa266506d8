"""The block that a sequence repeats: found on integers, in O(n log n), with other elements before, after and between.

Candidates: every run of 1, 4 and 16 elements that occurs again is an anchor; its occurrences cut the sequence into
blocks. The anchors with the most regular distances are examined, the best of each distance. The modal block of an
anchor is the content that occurs most often. A block matches as far as its beginning and its end agree with the modal
block, so one insertion, loss or change costs only itself; elements before the first anchor and after the last count if
they are an end or a beginning of the modal block. The elements that match are the candidate's coverage.

Which of nested repetitions: the shortest with a coverage within NEARLY of the best. Layers repeat inside a step, but
the step has elements of its own (embedding, head, sampling), which its layers leave uncovered, so the step wins; a
group of steps that differs from them by a rare extra element covers hardly more than they do, so the step wins again.

Contents are compared by polynomial hashes modulo 2**64 of random values; a collision could only make a wrong block.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core import distinct
from aaco.core.arrays import Ints, UInts64

WIDTHS = (1, 4, 16)
CANDIDATES = 24
NEARLY = 1 / 400  # of the sequence
LEAST_COVERAGE = 0.5  # of the sequence
REGULAR = 0.02  # distances this near to their median count as regular
ALIKE = 0.9  # of a block's elements
BITS = 19
LONGEST = 2**BITS  # elements; positions and distances fit BITS bits
_BASE = 0x9E3779B97F4A7C15


class Repetition(Struct, frozen=True):
    """A repeated block.

    length: elements of the modal block. starts, ends: first element of each block and that after its last.
    matched: how many of its elements agree with the modal block; identical: whether all do and nothing else is in it.
    coverage: share of the whole sequence that matches.
    """

    length: int
    starts: Ints
    ends: Ints
    matched: Ints
    identical: NDArray[np.bool_]
    coverage: float

    @property
    def alike(self) -> NDArray[np.bool_]:
        """Return which blocks agree with the modal block in nearly all of it."""
        return (self.matched >= ALIKE * self.length) & (self.ends - self.starts <= (2 - ALIKE) * self.length)


class _AnchorCut(Struct, frozen=True):
    """A sequence cut at the occurrences of an anchor, and the modal block's place."""

    anchors: Ints
    modal: int
    length: int


def find(codes: Ints) -> Repetition | None:
    """Return the block that the sequence repeats, at most LONGEST elements long; None if nothing that repeats covers
    half of it. Blocks begin at the anchor that was found first; `aligned` moves them."""
    if not 4 <= len(codes) <= LONGEST:
        return None
    sums = _Sums(codes)
    cuts = [(cut, *_matches(sums, cut)) for cut in _candidates(sums)]
    if not cuts:
        return None
    coverage = [_covered(cut, matched, edge) for cut, matched, edge in cuts]
    enough = max(max(coverage) - NEARLY * len(codes), LEAST_COVERAGE * len(codes))
    good = [index for index, covered in enumerate(coverage) if covered >= enough]
    if not good:
        return None
    best = min(good, key=lambda index: (cuts[index][0].length, -coverage[index]))
    return _repetition(sums, cuts[best][0], coverage[best] / len(codes))


def aligned(repetition: Repetition, codes: Ints, offset: int) -> Repetition:
    """Return the same repetition with blocks that begin `offset` elements later, and a block more where one fits
    before."""
    sums = _Sums(codes)
    modal = int(repetition.starts[int(repetition.identical.argmax())])  # the first block if none is identical
    begin, finish = _agreement(sums, repetition.starts, repetition.ends, modal, repetition.length)
    from_end = repetition.ends - (repetition.length - offset)
    starts = np.where((offset > begin) & (offset >= repetition.length - finish), from_end, repetition.starts + offset)
    starts = starts[(starts < len(codes)) & (starts >= 0)]
    before = starts[0] - repetition.length
    if before >= 0 and _agreement(sums, np.array([before]), np.array([starts[0]]), int(starts[0]),
                                  min(repetition.length, len(codes) - int(starts[0])))[0][0] == repetition.length:
        starts = np.r_[before, starts]
    starts = distinct.values(starts)
    length = repetition.length
    modal = modal + offset if modal + offset + length <= len(codes) else modal + offset - length
    return _repetition(sums, _AnchorCut(starts, modal, length), repetition.coverage)


class _Sums:
    """Prefix sums from which the hash of any stretch is one subtraction and one product."""

    def __init__(self, codes: Ints) -> None:
        self.count = len(codes)
        base = np.full(self.count + 1, _BASE, np.uint64)
        inverse = np.full(self.count + 1, pow(_BASE, -1, 2**64), np.uint64)
        base[0] = inverse[0] = 1
        self._down = np.cumprod(inverse, dtype=np.uint64)
        terms = _scrambled(codes) * np.cumprod(base, dtype=np.uint64)[:-1]
        self._sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])

    def of(self, start: Ints, length: Ints | int) -> UInts64:
        """Return the hash of codes[start:start + length], for each start."""
        hashes: UInts64 = (self._sums[start + length] - self._sums[start]) * self._down[start]
        return hashes


def _scrambled(codes: Ints) -> UInts64:
    """Return a random-looking value for each code (the finaliser of splitmix64)."""
    value = codes.astype(np.uint64) * np.uint64(_BASE) + np.uint64(_BASE)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: UInts64 = value ^ (value >> np.uint64(31))
    return scrambled


def _candidates(sums: _Sums) -> list[_AnchorCut]:
    """Return the most regular anchors, one for each distance."""
    anchors_by_width: list[tuple[int, int, Ints]] = []  # rough coverage, distance, anchors
    for width in WIDTHS:
        if width < sums.count:
            anchors_by_width += _regular(sums.of(np.arange(sums.count - width + 1), width))
    best: dict[int, tuple[int, Ints]] = {}
    for rough, distance, anchors in sorted(anchors_by_width, key=lambda row: -row[0]):
        best.setdefault(distance, (rough, anchors))
    return [_cut(sums, anchors) for _, anchors in list(best.values())[:CANDIDATES]]


def _regular(hashes: UInts64) -> list[tuple[int, int, Ints]]:
    """Return (rough coverage, median distance, positions) of the anchors that are most regular, the best of each
    distance."""
    bits = np.uint64(BITS)
    keys = np.sort((hashes >> bits << bits) | np.arange(len(hashes), dtype=np.uint64))
    positions = (keys & np.uint64(2**BITS - 1)).astype(np.int64)
    same = (keys[1:] >> bits) == (keys[:-1] >> bits)
    group = np.cumsum(np.r_[True, ~same]) - 1
    distances = np.diff(positions)[same]
    owner = group[1:][same]
    if not len(distances):
        return []
    ordered = np.sort(owner.astype(np.uint64) << bits | distances.astype(np.uint64))
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    count = np.diff(np.r_[first, len(owner)])
    median = (ordered[first + (count - 1) // 2] & np.uint64(2**BITS - 1)).astype(np.int64)
    of_each = np.repeat(median, count)
    regular = np.abs(distances - of_each) <= np.maximum(1, REGULAR * of_each)
    rough = np.add.reduceat(np.where(regular, np.minimum(distances, of_each), 0), first)
    starts = np.searchsorted(group, owner[first])
    order = np.argsort(-rough, kind="stable")
    _, earliest = np.unique(median[order], return_index=True)
    best_rows = order[np.sort(earliest)[:CANDIDATES]]
    return [(int(rough[row]), int(median[row]), positions[starts[row]:starts[row] + count[row] + 1])
            for row in best_rows.tolist()]


def _cut(sums: _Sums, anchors: Ints) -> _AnchorCut:
    """Return the blocks between the anchors, and the content that occurs most often; of several the shortest."""
    lengths = np.diff(anchors)
    contents = sums.of(anchors[:-1], lengths)
    _, first, count = np.unique(contents, return_index=True, return_counts=True)
    best = int(np.lexsort((anchors[first], lengths[first], -count))[0])
    return _AnchorCut(anchors, int(anchors[first[best]]), int(lengths[first[best]]))


def _matches(sums: _Sums, cut: _AnchorCut) -> tuple[Ints, int]:
    """Return the elements of each block that match the modal block, and those before the first anchor."""
    ends = np.r_[cut.anchors[1:], min(int(cut.anchors[-1]) + cut.length, sums.count)]
    begin, finish = _agreement(sums, cut.anchors, ends, cut.modal, cut.length)
    matched = np.minimum(begin + finish, np.minimum(ends - cut.anchors, cut.length))
    matched[-1] = begin[-1]  # what follows the last anchor is the beginning of a block, or something else
    _, head = _agreement(sums, np.zeros(1, np.int64), cut.anchors[:1], cut.modal, cut.length)
    return matched, int(head[0])


def _covered(cut: _AnchorCut, matched: Ints, head: int) -> int:
    """Return the elements that the cut explains; none where no second block is like the modal one."""
    return int(matched.sum()) + head if (matched >= ALIKE * cut.length).sum() > 1 else 0


def _agreement(sums: _Sums, starts: Ints, ends: Ints, modal: int, length: int) -> tuple[Ints, Ints]:
    """Return how many elements of each block agree with the modal block from its beginning, and from its end."""
    most = np.minimum(ends - starts, length)
    begin, finish = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    step = 1 << max(0, int(most.max()).bit_length() - 1) if len(most) else 0
    while step:
        more = np.minimum(begin + step, most)
        begin = np.where(sums.of(starts, more) == sums.of(np.full(len(starts), modal), more), more, begin)
        more = np.minimum(finish + step, most)
        finish = np.where(sums.of(ends - more, more) == sums.of(modal + length - more, more), more, finish)
        step >>= 1
    return begin, finish


def _repetition(sums: _Sums, cut: _AnchorCut, coverage: float) -> Repetition:
    matched, _ = _matches(sums, cut)
    ends = np.r_[cut.anchors[1:], min(int(cut.anchors[-1]) + cut.length, sums.count)]
    whole = ends - cut.anchors == cut.length
    return Repetition(cut.length, cut.anchors, ends, matched, whole & (matched == cut.length), coverage)
