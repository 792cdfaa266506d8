"""Layers of random models, and alignments of short steps against all possible ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.serving import alignment
from aaco.analytics.serving.alignment import BASES, GAINS, LEAST_MARGIN
from aaco.analytics.serving.layers import layer_blocks
from aaco.analytics.serving.scores import GAP, prefix_scores, suffix_scores
from tests.serving_steps import ADD_NORM, COPY, FULL, NORM, OUT, QKV, gemm

WORDS = st.integers(0, 10**6)


@st.composite
def models(draw: st.DrawFn) -> tuple[list[str], list[int]]:
    """Names of kernels without known families, and the layer of each."""
    block = [f"layer_{word}" for word in draw(st.lists(WORDS, min_size=4, max_size=15, unique=True))]
    block += draw(st.lists(st.sampled_from(block), max_size=len(block) // 4))
    prefix, suffix = ([f"{place}_{word}" for word in draw(st.lists(WORDS, max_size=8, unique=True))]
                      for place in ("prefix", "suffix"))
    count = draw(st.integers(2, 40))
    names = [*prefix, *block * count, *suffix]
    layers = [-1] * len(prefix) + [number for number in range(count) for _ in block] + [-1] * len(suffix)
    return names, layers


@st.composite
def transformers(draw: st.DrawFn) -> tuple[list[str], list[int]]:
    """Names of kernels of one or two kinds of layers in turn, the first of them fused otherwise."""
    tiles = st.integers(0, 3).map(str).map(gemm)
    before, behind = (draw(st.lists(WORDS.map("before_{}".format), max_size=4)),
                      draw(st.lists(WORDS.map("behind_{}".format), max_size=4)))
    kinds = [[f"act_{kind}", *(f"expert_{kind}_{word}" for word in draw(st.lists(WORDS, max_size=5)))]
             for kind in range(draw(st.integers(1, 2)))]
    names, layers = ["embedding_lookup", COPY], [-1, -1]
    count = draw(st.integers(4, 40))
    for number in range(count):
        layer = [ADD_NORM if number else NORM, draw(tiles), *before, FULL, OUT, ADD_NORM, draw(tiles), *behind,
                 *kinds[number % len(kinds)], draw(tiles)]
        names += layer
        layers += [number] * len(layer)
    return [*names, ADD_NORM, gemm("head"), "argmax_kernel"], layers + [-1] * 3


@given(models())
def test_every_layer_of_any_repeated_block_is_counted(model: tuple[list[str], list[int]]) -> None:
    names, layers = model
    blocks = layer_blocks(names, ["unknown"] * len(names))
    assert blocks.count == max(layers) + 1
    lengths = np.bincount(blocks.layer[blocks.layer >= 0])
    assert (lengths == lengths[0]).all()


@given(transformers())
def test_every_kernel_of_any_transformer_is_in_its_layer(model: tuple[list[str], list[int]]) -> None:
    names, layers = model
    known = {QKV: "gemm", OUT: "gemm", FULL: "attention", NORM: "norm", ADD_NORM: "norm"}
    families = [known.get(name, "gemm" if name.startswith("nvjet") else "unknown") for name in names]
    assert layer_blocks(names, families).layer.tolist() == layers


def possible(rows: int, columns: int) -> Iterator[list[int]]:
    """All alignments: per row its column or -1."""
    if not rows:
        yield []
        return
    for earlier in possible(rows - 1, columns):
        yield [*earlier, -1]
        yield from ([*earlier, column] for column in range(max(earlier, default=-1) + 1, columns))


def score(gains: np.ndarray, columns: list[int]) -> float:
    """The score of one alignment."""
    matched = [(row, column) for row, column in enumerate(columns) if column >= 0]
    return sum(gains[pair] for pair in matched) - GAP * (sum(gains.shape) - 2 * len(matched))


tables = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: st.lists(
    st.integers(0, len(BASES) - 1), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
        lambda bases: np.array(bases).reshape(shape)))


@given(tables)
def test_margins_are_those_of_all_possible_alignments(bases: np.ndarray) -> None:
    gains = np.array(list(GAINS.values()))[bases]
    scores = [(columns, score(gains, columns)) for columns in possible(*bases.shape)]
    best = max(total for _, total in scores)
    matches = alignment._matches(bases)
    assert prefix_scores(gains)[-1, -1] == suffix_scores(gains)[0, 0] == best
    for row, (column, margin) in enumerate(zip(matches.index.tolist(), matches.margin.tolist(), strict=True)):
        with_it = max((total for columns, total in scores if column >= 0 and columns[row] == column), default=None)
        if with_it is not None:
            assert margin == with_it - max(total for columns, total in scores if columns[row] != column)
        if margin >= LEAST_MARGIN and column >= 0:
            assert all(columns[row] == column for columns, total in scores if total == best)


@given(tables)
def test_kept_matches_are_in_order(bases: np.ndarray) -> None:
    matches = alignment._matches(bases)
    assert (np.diff(matches.index[matches.certain]) > 0).all()
