"""Two sequences of integers aligned: which stretches are the same, which were replaced, inserted or removed.

The longest common subsequence is found by a bit-parallel algorithm (Hyyrö 2004, as rapidfuzz implements it). Its memory
grows with the product of the lengths. Longer sequences are therefore cut first, at stretches that occur exactly once on
both sides and in the same order (the anchors of patience diff), and in proportion if there are none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq

from aaco.core.arrays import Ints

LONGEST = 16_384  # tokens a side in one alignment: 32 MB of bits
GRAM = 24  # tokens that make a stretch unmistakable


class Stretch(NamedTuple):
    """a[a0:a1] and b[b0:b1]: the same tokens one by one where `same`, otherwise one in place of the other."""

    same: bool
    a0: int
    a1: int
    b0: int
    b1: int


def align(a: Ints, b: Ints) -> list[Stretch]:
    """Return the stretches that tile both sequences in order; equal and different stretches alternate."""
    stretches: list[Stretch] = []
    for a0, a1, b0, b1 in _pieces(a, b):
        for op in LCSseq.opcodes(a[a0:a1].tolist(), b[b0:b1].tolist()):
            piece = Stretch(op.tag == "equal", a0 + op.src_start, a0 + op.src_end, b0 + op.dest_start, b0 + op.dest_end)
            if stretches and stretches[-1].same == piece.same:
                last = stretches.pop()
                piece = Stretch(piece.same, last.a0, piece.a1, last.b0, piece.b1)
            stretches.append(piece)
    return stretches


def _pieces(a: Ints, b: Ints) -> Iterator[tuple[int, int, int, int]]:
    """Yield pairs of ranges of at most LONGEST tokens that tile both sequences."""
    end = len(a), len(b)
    anchors = _anchors(a, b) if max(end) > LONGEST else []
    kept = [(0, 0)]
    for cut, after in pairwise([*anchors, end]):
        if max(after[0] - kept[-1][0], after[1] - kept[-1][1]) > LONGEST:
            kept.append(cut)
    for (a0, b0), (a1, b1) in pairwise([*kept, end]):
        parts = max(1, -(-max(a1 - a0, b1 - b0) // LONGEST))
        for part in range(parts):
            yield (a0 + (a1 - a0) * part // parts, a0 + (a1 - a0) * (part + 1) // parts,
                   b0 + (b1 - b0) * part // parts, b0 + (b1 - b0) * (part + 1) // parts)


def _anchors(a: Ints, b: Ints) -> list[tuple[int, int]]:
    """Return the positions (in a, in b) of stretches of GRAM tokens that occur once in each, increasing on both sides.
    """
    (grams_a, at_a), (grams_b, at_b) = _unique_grams(a), _unique_grams(b)
    _, in_a, in_b = np.intersect1d(grams_a, grams_b, assume_unique=True, return_indices=True)
    order = np.argsort(at_a[in_a])
    return _increasing(at_a[in_a][order].tolist(), at_b[in_b][order].tolist())


def _unique_grams(codes: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """Return the hashes of the stretches of GRAM tokens that occur exactly once, and where they begin."""
    mixed = codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    hashed = np.zeros(max(0, len(codes) - GRAM + 1), np.uint64)
    for offset in range(GRAM if len(hashed) else 0):
        hashed = hashed * np.uint64(0xBF58476D1CE4E5B9) + mixed[offset:offset + len(hashed)]
    grams, first, counts = np.unique(hashed, return_index=True, return_counts=True)
    return grams[counts == 1], first[counts == 1]


def _increasing(at_a: list[int], at_b: list[int]) -> list[tuple[int, int]]:
    """Return the longest run of pairs that increases in b; at_a increases already."""
    tops: list[int] = []  # the smallest last b of a run of each length
    piles: list[int] = []
    previous: list[int] = []
    for index, position in enumerate(at_b):
        pile = bisect_left(tops, position)
        previous.append(piles[pile - 1] if pile else -1)
        tops[pile:pile + 1] = [position]
        piles[pile:pile + 1] = [index]
    index = piles[-1] if piles else -1
    run = []
    while index >= 0:
        run.append((at_a[index], at_b[index]))
        index = previous[index]
    return run[::-1]
