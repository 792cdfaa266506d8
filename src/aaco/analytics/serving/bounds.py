"""Where the layers of a step begin and end.

The kernels between two anchors end one layer and begin the next. Where to cut is decided by what precedes the first
anchor and follows the last one: the right side of the cut must be there as the beginning of the first layer and the
left side as the end of the last layer, best at a norm that feeds a GEMM.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from aaco.analytics.serving.anchors import LayerAnchors, LayerKernels
from aaco.analytics.serving.scores import prefix_scores
from aaco.core.arrays import Flags, Ints, Reals

SAME, SIMILAR, OTHER = 2.0, 1.0, -2.0  # gain of matching kernels of the same name, the same role, other roles
OTHER_GEMM = 0.5  # of the same role: the head of the model is a GEMM, too
AT_NORM = 4.0  # gain of a cut at a norm that feeds a GEMM
COMPLETE = 0.9  # of the score of an ending whose kernels are all there
TWICE = 1.5  # of the median length: perhaps two layers
RARE = 0.2  # of the blocks: more are not two layers, but long
COMMON = 8  # commonest gaps that are examined
SURPLUS = 2  # kernels between layers that make a break
LONGEST_GAP = 1000  # kernels between two anchors
REACH = 64  # kernels beyond twice the length of a gap in which the ends of a layer are looked for


class _LayerGaps(Struct, frozen=True):
    """The kernels between anchors: those of each gap, a key by their roles, how often a key occurs, the commonest."""

    kernels: list[Ints]
    keys: list[bytes]
    counts: Counter[bytes]
    common: list[Ints]

    @property
    def reach(self) -> int:
        """Return among how many kernels the beginning or end of a layer is looked for."""
        return 2 * max(map(len, self.common)) + REACH


class _Ending(NamedTuple):
    """The first kernels matched with an ending of a layer: score, how many they are, and the ending's length."""

    score: float
    length: int
    expected: int


def layer_bounds(step: LayerKernels, anchors: LayerAnchors) -> tuple[Ints, Ints] | None:
    """Return the first kernel of each layer and that after its last; None if too many kernels are between anchors."""
    gaps = _gaps(step, anchors)
    if not gaps.common:
        return None
    starts = _starts(step, anchors, gaps)
    return _split(step, starts, _ends(step, anchors, gaps, starts))


def _gaps(step: LayerKernels, anchors: LayerAnchors) -> _LayerGaps:
    """Return the gaps between anchors."""
    kernels = [np.arange(last + 1, first) for last, first in zip(anchors.last[:-1], anchors.first[1:], strict=True)]
    keys = [step.roles[gap].tobytes() for gap in kernels]
    gap_by_key = {key: gap for key, gap in zip(keys, kernels, strict=True) if len(gap) <= LONGEST_GAP}
    counts = Counter(keys)
    common = [gap_by_key[key] for key, _ in counts.most_common() if key in gap_by_key]
    return _LayerGaps(kernels, keys, counts, common[:COMMON])


def _starts(step: LayerKernels, anchors: LayerAnchors, gaps: _LayerGaps) -> Ints:
    """Return the first kernel of each layer."""
    head = np.arange(anchors.first[0])[-gaps.reach:]
    tail = np.arange(anchors.last[-1] + 1, len(step.roles))[:gaps.reach]
    _, beginning = max((_cut(step, gap, head, tail) for gap in gaps.common), key=lambda cut: cut[0])
    gap_by_key = dict(zip(gaps.keys, gaps.kernels, strict=True))
    before = {key: _head(step, beginning, gap[-gaps.reach:]) for key, gap in gap_by_key.items()}
    starts: Ints = anchors.first - np.array([_head(step, beginning, head), *(before[key] for key in gaps.keys)])
    return starts


def _ends(step: LayerKernels, anchors: LayerAnchors, gaps: _LayerGaps, starts: Ints) -> Ints:
    """Return the kernel after the last of each layer: the next layer's first, or that after a known ending of a layer
    in the last one, before another step, and in an odd gap that holds all of an ending and more."""
    breaks = _breaks(step, starts)
    endings = _endings(gaps, starts, breaks)
    odd = [COMPLETE * SAME if gaps.counts[key] == 1 else np.inf for key in gaps.keys]
    least = np.append(np.where(breaks, SIMILAR, odd), -np.inf)  # score per kernel of the ending
    ends = np.append(starts[1:], len(step.roles))
    for layer in np.flatnonzero(least < np.inf).tolist():
        first = int(anchors.last[layer]) + 1
        length = int(ends[layer]) - first
        kernels = np.arange(first, first + min(length, gaps.reach))
        ending = max((_matched(step, ending, kernels) for ending in endings), key=lambda fit: fit.score)
        surplus = length - ending.length >= SURPLUS or layer == len(starts) - 1
        if surplus and ending.score >= least[layer] * max(1, ending.expected):
            ends[layer] = first + ending.length
    return ends


def _endings(gaps: _LayerGaps, starts: Ints, breaks: Flags) -> list[Ints]:
    """Return the commonest kernels that end a layer, not before another step."""
    ending_by_key = {key: np.arange(gap[0], start) for key, gap, start, broken
                     in zip(gaps.keys, gaps.kernels, starts[1:].tolist(), breaks, strict=True)
                     if 0 < len(gap) <= LONGEST_GAP and not broken}
    endings = [ending_by_key[key] for key, _ in gaps.counts.most_common() if key in ending_by_key]
    return endings[:COMMON] or [starts[:0]]


def _breaks(step: LayerKernels, starts: Ints) -> Flags:
    """Return which of the later layers follow the same kernels as the first layer does: there another step begins."""
    marks = step.roles[np.maximum(starts, SURPLUS)[:, None] - np.arange(1, SURPLUS + 1)]
    alike: Flags = (marks[1:] == marks[0]).all(axis=1) & (starts[0] >= SURPLUS)
    return alike & (alike.mean() < 0.5)  # else layers end so


def _gains(step: LayerKernels, block: Ints, kernels: Ints) -> Reals:
    """Return the gain of matching each kernel of a block with each of the kernels."""
    same = step.names[block][:, None] == step.names[kernels]
    similar = step.roles[block][:, None] == step.roles[kernels]
    weak = np.where(step.gemm[block], OTHER_GEMM, SIMILAR)[:, None]
    return np.where(same, SAME, np.where(similar, weak, OTHER))


def _cut(step: LayerKernels, gap: Ints, head: Ints, tail: Ints) -> tuple[float, Ints]:
    """Return how well the best cut of a gap agrees with both ends of the step, and the beginning of a layer after it.

    Of equally good cuts it is the last: before the first layer there may be the end of one without its attention.
    """
    ending = _edge(prefix_scores(_gains(step, gap, tail)))
    beginning = _edge(prefix_scores(_gains(step, gap[::-1], head[::-1])))[::-1]
    scores = ending + beginning + AT_NORM * np.append(step.opens[gap], 0)
    return float(scores.max()) - SAME * len(gap), gap[int(np.flatnonzero(scores == scores.max())[-1]):]


def _edge(scores: Reals) -> Reals:
    """Return the best score of each beginning of the rows with any beginning of the columns; what is after the end of
    the columns costs nothing."""
    return np.maximum(scores.max(axis=1), np.maximum.accumulate(scores[:, -1]))


def _head(step: LayerKernels, block: Ints, kernels: Ints) -> int:
    """Return how many of the last kernels are the beginning of a layer, as the block is."""
    if not len(block) or not len(kernels):
        return 0
    scores = prefix_scores(_gains(step, block[::-1], kernels[::-1]))[-1]
    begins_alike = step.roles[kernels[::-1]] == step.roles[block[0]]
    if begins_alike.any():
        scores[1:][~begins_alike] = -np.inf
        return int(np.argmax(scores[1:])) + 1
    return int(np.argmax(scores))


def _matched(step: LayerKernels, ending: Ints, kernels: Ints) -> _Ending:
    """Return how well the first kernels match an ending of a layer."""
    scores = prefix_scores(_gains(step, ending, kernels))
    length = int(np.argmax(scores[-1]))
    cut_off = float(scores[:, -1].max())  # the step ends within the layer
    if cut_off > scores[-1, length]:
        return _Ending(cut_off, len(kernels), len(ending))
    return _Ending(float(scores[-1, length]), length, len(ending))


def _split(step: LayerKernels, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the bounds with each block that is two layers split: in one of them, the attention or GEMMs were lost."""
    blocks = [np.arange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    lengths = ends - starts
    longer = np.flatnonzero(lengths >= TWICE * np.median(lengths))
    modal = blocks[int(np.argsort(lengths, kind="stable")[len(lengths) // 2])]
    if not 0 < len(longer) <= RARE * len(starts):
        return starts, ends
    cuts = [cut for block in longer.tolist() if (cut := _second(step, modal, blocks[block]))]
    return np.sort(np.append(starts, cuts)).astype(np.int64), np.sort(np.append(ends, cuts)).astype(np.int64)


def _second(step: LayerKernels, layer: Ints, block: Ints) -> int:
    """Return the first kernel of the second layer of a block; 0 if it is not two layers."""
    block = block[:2 * len(layer) + REACH]
    first = _matched(step, layer, block)
    second = _matched(step, layer, block[first.length:])
    both = min(first.score, second.score) >= SIMILAR * len(layer)
    return int(block[first.length]) if both else 0
