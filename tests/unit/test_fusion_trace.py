"""Chains of kernels on a stream whose operators hand on a tensor of one size."""

from __future__ import annotations

import numpy as np
import pytest

from aaco.analytics.fusion.fusion_trace import LONGEST, document, made
from aaco.core.tables import OPERATORS

NUMBER = '["float","Scalar","Scalar"]'
PAIR = '["float","float","Scalar"]'
BIG = 4 * 1000


@pytest.fixture
def known():
    rows = [("aten::mul", "[[1000],[],[]]", NUMBER), ("aten::add", "[[1000],[1000],[]]", PAIR),
            ("aten::relu", "[[10,100]]", '["float"]'), ("aten::mul", "[[7],[],[]]", NUMBER),
            ("aten::mm", "[[10,5],[5,100]]", '["float","float"]'),
            ("aten::copy_", "[[1000],[1000]]", '["float","float"]')]
    names, shapes, dtypes = zip(*rows, strict=True)
    return made(OPERATORS.build(operator_id=range(len(rows)), operator=names, shapes=shapes, dtypes=dtypes,
                                inputs=['["","2","1"]'] * len(rows), calls=[1] * len(rows), kernels=[1] * len(rows),
                                device_ns=[0] * len(rows)))


def chains(known, operators, streams=None, each=100):
    streams = streams or [0] * len(operators)
    found = document(np.array(operators), np.array(streams), np.full(len(operators), each), known)
    return found["opportunities"] if found else []


def test_a_chain_saves_its_links(known):
    """Mutation: counting a link twice or the last result too."""
    row, = chains(known, [0, 1, 2])
    assert row["op_types"] == ["aten::mul", "aten::add", "aten::relu"] and row["saved_bytes"] == 2 * 2 * BIG
    moved = 2 * BIG + 3 * BIG + 2 * BIG
    assert row["own_ns"] == 300 and row["saved_ns_at_most"] == pytest.approx(300 * 4 * BIG / moved)
    assert row["saved_share_at_most"] == pytest.approx(4 * BIG / moved)


def test_alike_chains_are_one_row(known):
    row, = chains(known, [0, 1, 3, 0, 1])
    assert row["times"] == 2 and row["own_ns"] == 400


@pytest.mark.parametrize("operators", [[0, 3], [0, 5, 1], [0, -1, 1], [1, 4], [0]])
def test_what_does_not_hand_on_is_no_chain(known, operators):
    """Another size, a copy between, a kernel of no operator, a product behind. Mutation: not looking at the sizes."""
    assert chains(known, operators) == []


def test_streams_are_apart(known):
    """Mutation: linking over streams."""
    assert chains(known, [0, 1], [0, 1]) == []
    found = chains(known, [0, 4, 1, 2], [0, 1, 0, 1])
    assert sorted(row["op_types"] for row in found) == [["aten::mm", "aten::relu"], ["aten::mul", "aten::add"]]


def test_kernels_of_operators_without_a_model_change_no_chain(known):
    """Mutation: taking an operator that no one knows for the next one that is known."""
    rows = chains(known, [-1, 1, 3, 0, 1])
    assert [(row["op_types"], row["times"]) for row in rows] == [(["aten::mul", "aten::add"], 1)]


def test_chains_longer_than_the_longest_are_cut(known):
    """Mutation: one piece too few, or pieces that share a kernel."""
    rows = chains(known, [0] * LONGEST + [1] * LONGEST + [0, 3])
    assert sorted((*row["op_types"], row["times"], row["own_ns"]) for row in rows) == [
        (*[name] * LONGEST, 1, 100 * LONGEST) for name in ("aten::add", "aten::mul")]


def test_a_product_takes_its_epilogue_along(known):
    row, = chains(known, [4, 2])
    assert row["pattern"] == "product + epilogue" and row["saved_bytes"] == 2 * BIG


def test_nothing_is_promised_beyond_the_kernels_own_time(known):
    assert all(row["saved_ns_at_most"] <= row["own_ns"] for row in chains(known, [0, 1, 2, 0, 0, 0, 1]))
