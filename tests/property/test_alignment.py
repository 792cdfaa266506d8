"""Alignment of integer sequences: stretches tile both sides, `same` means the same, and nothing common is missed."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming import alignment
from aaco.analytics.streaming.alignment import align

sequences = st.lists(st.integers(0, 4), max_size=60).map(lambda found: np.array(found, np.int64))


def longest_common(a: list[int], b: list[int]) -> int:
    """The textbook table, one cell at a time."""
    row = [0] * (len(b) + 1)
    for left in a:
        before = 0
        for column, right in enumerate(b, 1):
            before, row[column] = row[column], before + 1 if left == right else max(row[column], row[column - 1])
    return row[-1]


def check_tiling(a: np.ndarray, b: np.ndarray) -> int:
    """Asserts what must hold of any alignment; returns how many tokens it calls the same."""
    found = align(a, b)
    assert [piece.same for piece in found[1:]] == [not piece.same for piece in found[:-1]]
    at = (0, 0)
    same = 0
    for piece in found:
        assert (piece.a0, piece.b0) == at
        at = piece.a1, piece.b1
        if piece.same:
            assert a[piece.a0:piece.a1].tolist() == b[piece.b0:piece.b1].tolist()
            same += piece.a1 - piece.a0
    assert at == (len(a), len(b))
    return same


@given(sequences, sequences)
def test_as_much_is_the_same_as_can_be(a, b):
    """Mutation: without the merge of neighbours two stretches of one kind follow each other."""
    assert check_tiling(a, b) == longest_common(a.tolist(), b.tolist())


@given(sequences, sequences, st.integers(3, 20), st.integers(2, 4))
def test_sequences_cut_into_pieces_still_tile(a, b, longest, gram):
    """Mutation: cutting at anchors that are not increasing on both sides breaks the tiling."""
    with mock.patch.multiple(alignment, LONGEST=longest, GRAM=gram):
        check_tiling(a, b)


def test_anchors_keep_long_sequences_exact():
    """40,000 tokens with 200 of them removed: every other one is found the same, across the cuts.

    Mutation: with no anchors (cuts in proportion) some are missed.
    """
    generator = np.random.default_rng(7)
    a = generator.integers(0, 50, 40_000)
    b = np.delete(a, np.sort(generator.choice(len(a), 200, replace=False)))
    assert check_tiling(a, b) == len(b)
