"""The layers of one serving step, found by repetition in the sequence of its kernels.

An anchor occurs once in each layer: the mixing of tokens (attention or a state-space scan) where kernel families tell,
else a name as frequent as most others. Kernels between two anchors end one layer and begin the next. Where to cut is
decided by what precedes the first anchor and follows the last one: the cut's right side must be there as the beginning
of the first layer and its left side as the end of the last layer, best at a norm that feeds a GEMM.

GEMMs count as alike whatever their names, as do norms: autotuning chooses other GEMMs in some layers, and the first
norm of a model is rarely fused with an addition. Blocks whose kernels agree are of one kind. If most kernels are in a
block that does not repeat, there are no layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import LCSseq

from aaco.analytics.kernels.families import decode
from aaco.analytics.serving.scores import prefix_scores
from aaco.core.arrays import Flags, Ints, Reals

MIXERS = frozenset({"attention", "recurrent"})
ROUTING = frozenset({"sort", "softmax"})  # behind the attention only a mixture of experts has them
MOVES = frozenset({"copy", "fill", "reduction", "transpose"})  # come and go with a GEMM's name: no kind of their own
LEAST_GEMMS = 3  # between the attention of two layers: output, feed-forward and input projections
LEAST_NAMES = 3  # that occur equally often, to count layers without an attention
LEAST_SHARE = 0.5  # of the names with the count that most names have
MOST_OPENS = 4  # norms before GEMMs in a layer: two, more with cross or latent attention
MORE = 1.25  # times the known attentions: fewer are a step cut off, or a lost kernel
WHOLE = 0.9  # of the gaps between anchors hold two halves of a layer
ALIKE = 0.8  # of the longer block's kernels
REPEATED = 0.5  # of the kernels from the first layer to the last
FEW, REGULAR = 4, 0.8  # without a known attention as many kinds make up that share of the layers
COVERED = 0.25  # of the step's kernels
SAME, SIMILAR, OTHER = 2.0, 1.0, -2.0  # gain of matching kernels of the same name, the same role, other roles
OTHER_GEMM = 0.5  # of the same role: the head of the model is a GEMM, too
AT_NORM = 4.0  # gain of a cut at a norm that feeds a GEMM
COMPLETE = 0.9  # of the score of an ending whose kernels are all there
TWICE = 1.5  # of the median length: perhaps two layers
RARE = 0.2  # of the blocks: more are not two layers, but long
COMMON = 8  # block ends and kinds compared with an odd one
SURPLUS = 2  # kernels between layers that make a break
LONGEST_GAP = 1000  # kernels between two anchors
REACH = 64  # kernels beyond twice a block's length in which its ends are looked for
_Content = tuple[str, tuple[int, ...]]  # what a layer holds and the roles of its kernels


@dataclass(frozen=True)
class LayerBlocks:
    """The layers of a step.

    layer: per kernel the number of its layer, -1 outside. position: per kernel its place in the commonest block of the
    layer's kind, -1 outside or if that block has no such kernel. part: per kernel "attention", "mlp", "moe", "norm" or
    "collective", "" if unknown or outside. kind: per layer 0, 1, ... by first appearance. periods: kernels of the
    commonest block of each kind. why_none: why there are no layers.
    """

    layer: Ints
    position: Ints
    part: tuple[str, ...]
    kind: Ints
    periods: tuple[int, ...]
    why_none: str = ""

    @property
    def count(self) -> int:
        """Return the number of layers."""
        return len(self.kind)


@dataclass(frozen=True)
class _Step:
    """The kernels of a step: codes of names and of roles, families, which are GEMMs, and which are norms before one."""

    names: Ints
    roles: Ints
    families: tuple[str, ...]
    gemm: Flags
    opens: Flags

    def of(self, *families: str) -> Flags:
        """Return which kernels are of these families."""
        return np.array([family in families for family in self.families], bool)


@dataclass(frozen=True)
class _Anchors:
    """First and last kernel of each anchor, in order."""

    first: Ints
    last: Ints


@dataclass(frozen=True)
class _Gaps:
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


def layer_blocks(names: Sequence[str], families: Sequence[str]) -> LayerBlocks:
    """Return the layers of one step from the names and families of its kernels in their order."""
    step = _step(names, families)
    anchors = _anchors(step)
    if anchors is None:
        return without_layers(len(names), "no kernels repeat as those of layers do")
    gaps = _gaps(step, anchors)
    if not gaps.common:
        return without_layers(len(names), f"what repeats has more than {LONGEST_GAP:,} kernels")
    starts = _starts(step, anchors, gaps)
    starts, ends = _split(step, starts, _ends(step, anchors, gaps, starts))
    kinds = _kinds(step, starts, ends)
    if why := _doubt(step, starts, ends, kinds):
        return without_layers(len(names), why)
    return _blocks(step, starts, ends, kinds)


def block_kind(families: Sequence[str]) -> str:
    """Return what a block holds by its kernels' families, joined by "+": "attention+moe"; "" if they do not tell."""
    mixers = [place for place, family in enumerate(families) if family in MIXERS]
    behind = families[mixers[-1] + 1:] if mixers else families
    name = "attention" if "attention" in families else "recurrent" if mixers else ""
    return "+".join(filter(None, (name, _feed_forward(behind, 2)))) if mixers else ""


def _feed_forward(families: Sequence[str], least_gemms: int) -> str:
    """Return "moe", "mlp" or "" by the families of the kernels behind the attention."""
    if not ROUTING.isdisjoint(families):
        return "moe"
    return "mlp" if families.count("gemm") >= least_gemms else ""


def without_layers(count: int, why: str) -> LayerBlocks:
    """Return that a step of so many kernels has no layers, and why."""
    outside = np.full(count, -1, np.int64)
    return LayerBlocks(outside, outside.copy(), ("",) * count, np.zeros(0, np.int64), (), why)


def _step(names: Sequence[str], families: Sequence[str]) -> _Step:
    role_by_kernel = {pair: _role(*pair) for pair in dict.fromkeys(zip(names, families, strict=True))}
    roles = [role_by_kernel[pair] for pair in zip(names, families, strict=True)]
    gemm = np.array([family == "gemm" for family in families], bool)
    return _Step(_codes(names), _codes(roles), tuple(families), gemm, _opens(families))


def _opens(families: Sequence[str]) -> Flags:
    """Return which kernels are norms whose next kernel of weight is a GEMM: each half of a layer begins with one."""
    weighty = [kernel for kernel, family in enumerate(families) if family in ("gemm", "norm", *MIXERS)]
    opens = np.zeros(len(families), bool)
    opens[[kernel for kernel, later in pairwise(weighty)
           if (families[kernel], families[later]) == ("norm", "gemm")]] = True
    return opens


def _role(name: str, family: str) -> str:
    """Return what stays of a name from layer to layer."""
    if family in MIXERS:
        return name
    return family if family in ("gemm", "norm") else decode(name).normalised or name


def _codes(labels: Sequence[Hashable]) -> Ints:
    """Return the number of each label by first appearance."""
    code_by_label = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    return np.array([code_by_label[label] for label in labels], np.int64)


def _anchors(step: _Step) -> _Anchors | None:
    """Return the attention of each layer; a name instead where more layers have that than have a known attention."""
    mixers, names = _mixers(step), _equally_often(step)
    if mixers is None or names is None:
        return mixers or names
    halves = np.diff(np.searchsorted(np.flatnonzero(step.opens), names.first))
    is_whole = np.mean(halves >= 2) >= WHOLE
    return names if len(names.first) >= MORE * len(mixers.first) and is_whole else mixers


def _mixers(step: _Step) -> _Anchors | None:
    """Return the attention of each layer: kernels with fewer than LEAST_GEMMS between them are of one."""
    kernels = np.flatnonzero(step.of(*MIXERS))
    gemms = np.cumsum(step.gemm)[kernels]
    kernels, gemms = kernels[gemms > 0], gemms[gemms > 0]  # before any projection it is a preparation
    if not len(kernels):
        return None
    fresh = np.flatnonzero(np.diff(gemms) >= LEAST_GEMMS) + 1
    anchors = _Anchors(kernels[np.r_[0, fresh]], kernels[np.r_[fresh - 1, -1]])
    return anchors if len(fresh) else None


def _equally_often(step: _Step) -> _Anchors | None:
    """Return the most regular of the names that occur once in each layer: of the greatest count that many share."""
    counts = np.bincount(step.names) if len(step.names) else step.names
    names_of_count = Counter(counts[counts > 1].tolist())
    least = max(LEAST_NAMES, LEAST_SHARE * max(names_of_count.values(), default=0))
    layers = max((count for count, names in names_of_count.items() if names >= least), default=0)
    if not layers:
        return None
    order = np.argsort(step.names, kind="stable")
    positions = [np.sort(part) for part in np.split(order, np.cumsum(counts)[:-1]) if len(part) == layers]
    most_regular = min(positions, key=lambda kernels: int(np.ptp(np.diff(kernels))))
    return _Anchors(most_regular, most_regular)


def _gaps(step: _Step, anchors: _Anchors) -> _Gaps:
    """Return the gaps between anchors."""
    kernels = [np.arange(last + 1, first) for last, first in zip(anchors.last[:-1], anchors.first[1:], strict=True)]
    keys = [step.roles[gap].tobytes() for gap in kernels]
    gap_by_key = {key: gap for key, gap in zip(keys, kernels, strict=True) if len(gap) <= LONGEST_GAP}
    counts = Counter(keys)
    common = [gap_by_key[key] for key, _ in counts.most_common() if key in gap_by_key]
    return _Gaps(kernels, keys, counts, common[:COMMON])


def _starts(step: _Step, anchors: _Anchors, gaps: _Gaps) -> Ints:
    """Return the first kernel of each layer."""
    head = np.arange(anchors.first[0])[-gaps.reach:]
    tail = np.arange(anchors.last[-1] + 1, len(step.roles))[:gaps.reach]
    _, beginning = max((_cut(step, gap, head, tail) for gap in gaps.common), key=lambda cut: cut[0])
    gap_by_key = dict(zip(gaps.keys, gaps.kernels, strict=True))
    before = {key: _head(step, beginning, gap[-gaps.reach:]) for key, gap in gap_by_key.items()}
    starts: Ints = anchors.first - np.array([_head(step, beginning, head), *(before[key] for key in gaps.keys)])
    return starts


def _ends(step: _Step, anchors: _Anchors, gaps: _Gaps, starts: Ints) -> Ints:
    """Return the kernel after the last of each layer: the next layer's first, or that after a known ending of a layer
    in the last one, before another step, and in an odd gap that holds all of an ending and more."""
    breaks = _breaks(step, starts)
    endings = _endings(step, gaps, starts, breaks)
    odd = [COMPLETE * SAME if gaps.counts[key] == 1 else np.inf for key in gaps.keys]
    least = np.append(np.where(breaks, SIMILAR, odd), -np.inf)  # score per kernel of the ending
    ends = np.append(starts[1:], len(step.roles))
    for layer in np.flatnonzero(least < np.inf).tolist():
        first = int(anchors.last[layer]) + 1
        length = int(ends[layer]) - first
        ending = _ending(step, endings, np.arange(first, first + min(length, gaps.reach)))
        surplus = length - ending.length >= SURPLUS or layer == len(starts) - 1
        if surplus and ending.score >= least[layer] * max(1, ending.expected):
            ends[layer] = first + ending.length
    return ends


def _endings(step: _Step, gaps: _Gaps, starts: Ints, breaks: Flags) -> list[Ints]:
    """Return the commonest kernels that end a layer, not before another step."""
    ending_by_key = {key: np.arange(gap[0], start) for key, gap, start, broken
                     in zip(gaps.keys, gaps.kernels, starts[1:].tolist(), breaks, strict=True)
                     if 0 < len(gap) <= LONGEST_GAP and not broken}
    endings = [ending_by_key[key] for key, _ in gaps.counts.most_common() if key in ending_by_key]
    return endings[:COMMON] or [starts[:0]]


def _breaks(step: _Step, starts: Ints) -> Flags:
    """Return before which of the later layers stands what precedes the first one: there another step begins."""
    marks = step.roles[np.maximum(starts, SURPLUS)[:, None] - np.arange(1, SURPLUS + 1)]
    alike: Flags = (marks[1:] == marks[0]).all(axis=1) & (starts[0] >= SURPLUS)
    return alike & (alike.mean() < 0.5)  # else layers end so


def _gains(step: _Step, block: Ints, kernels: Ints) -> Reals:
    """Return the gain of matching each kernel of a block with each of the kernels."""
    same = step.names[block][:, None] == step.names[kernels]
    similar = step.roles[block][:, None] == step.roles[kernels]
    weak = np.where(step.gemm[block], OTHER_GEMM, SIMILAR)[:, None]
    return np.where(same, SAME, np.where(similar, weak, OTHER))


def _cut(step: _Step, gap: Ints, head: Ints, tail: Ints) -> tuple[float, Ints]:
    """Return how well the best cut of a gap agrees with both ends of the step, and the beginning of a layer behind it.

    Of equally good cuts it is the last: before the first layer there may be the end of one without its attention.
    """
    ending = _edge(prefix_scores(_gains(step, gap, tail)))
    beginning = _edge(prefix_scores(_gains(step, gap[::-1], head[::-1])))[::-1]
    scores = ending + beginning + AT_NORM * np.append(step.opens[gap], 0)
    return float(scores.max()) - SAME * len(gap), gap[int(np.flatnonzero(scores == scores.max())[-1]):]


def _edge(scores: Reals) -> Reals:
    """Return the best score of each beginning of the rows with any beginning of the columns; what is behind the end of
    the columns costs nothing."""
    return np.maximum(scores.max(axis=1), np.maximum.accumulate(scores[:, -1]))


def _head(step: _Step, block: Ints, kernels: Ints) -> int:
    """Return how many of the last kernels are the beginning of a layer, as the block is."""
    if not len(block) or not len(kernels):
        return 0
    scores = prefix_scores(_gains(step, block[::-1], kernels[::-1]))[-1]
    begins_alike = step.roles[kernels[::-1]] == step.roles[block[0]]
    if begins_alike.any():
        scores[1:][~begins_alike] = -np.inf
        return int(np.argmax(scores[1:])) + 1
    return int(np.argmax(scores))


def _ending(step: _Step, endings: list[Ints], kernels: Ints) -> _Ending:
    """Return which ending of a layer the first kernels match best."""
    return max((_matched(step, ending, kernels) for ending in endings), key=lambda fit: fit.score)


def _matched(step: _Step, ending: Ints, kernels: Ints) -> _Ending:
    """Return how well the first kernels match an ending of a layer."""
    scores = prefix_scores(_gains(step, ending, kernels))
    length = int(np.argmax(scores[-1]))
    cut_off = float(scores[:, -1].max())  # the step ends within the layer
    if cut_off > scores[-1, length]:
        return _Ending(cut_off, len(kernels), len(ending))
    return _Ending(float(scores[-1, length]), length, len(ending))


def _split(step: _Step, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the bounds with each block that is two layers split: in one of them, the attention or GEMMs were lost."""
    blocks = [np.arange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    lengths = ends - starts
    longer = np.flatnonzero(lengths >= TWICE * np.median(lengths))
    modal = blocks[int(np.argsort(lengths, kind="stable")[len(lengths) // 2])]
    if not 0 < len(longer) <= RARE * len(starts):
        return starts, ends
    cuts = [cut for block in longer.tolist() if (cut := _second(step, modal, blocks[block]))]
    return np.sort(np.append(starts, cuts)).astype(np.int64), np.sort(np.append(ends, cuts)).astype(np.int64)


def _second(step: _Step, layer: Ints, block: Ints) -> int:
    """Return the first kernel of the second layer of a block; 0 if it is not two layers."""
    block = block[:2 * len(layer) + REACH]
    first = _matched(step, layer, block)
    second = _matched(step, layer, block[first.length:])
    both = min(first.score, second.score) >= SIMILAR * len(layer)
    return int(block[first.length]) if both else 0


def _kinds(step: _Step, starts: Ints, ends: Ints) -> Ints:
    """Return the kind of each layer by first appearance."""
    weighty = ~step.of(*MOVES)
    contents = [(block_kind(step.families[start:end]), tuple(step.roles[start:end][weighty[start:end]].tolist()))
                for start, end in zip(starts, ends, strict=True)]
    kinds = [content for content, count in Counter(contents).most_common() if count > 1]
    kind_by_content = {content: content for content in kinds}
    for content in contents:
        if content not in kind_by_content:
            kind_by_content[content] = _nearest(content, kinds[:COMMON])
            kinds += [content] * (kind_by_content[content] == content)
    return _codes([kind_by_content[content] for content in contents])


def _nearest(content: _Content, kinds: list[_Content]) -> _Content:
    """Return the kind that holds the same and is most alike; the content itself if none is."""
    likeness = [(LCSseq.normalized_similarity(content[1], kind[1]), kind) for kind in kinds if kind[0] == content[0]]
    best, kind = max(likeness, key=lambda pair: pair[0], default=(0.0, content))
    return kind if best >= ALIKE else content


def _doubt(step: _Step, starts: Ints, ends: Ints, kinds: Ints) -> str:
    """Return why these blocks are no layers of one step; "" if they are."""
    if (covered := int((ends - starts).sum())) < COVERED * len(step.roles):
        return f"what repeats is only {covered} of {len(step.roles)} kernels"
    opens = np.append(0, np.cumsum(step.opens))
    if (norms := int(np.median(opens[ends] - opens[starts]))) > MOST_OPENS:
        return f"each repeated block has {norms} norms before GEMMs: layers of which only some have a known attention"
    repeated = np.bincount(kinds)[kinds] > 1
    span = int(ends[-1] - starts[0])
    if (ends - starts)[repeated].sum() < REPEATED * span:
        return f"of {len(kinds)} blocks only {int(repeated.sum())} repeat: their kernels are in no common order"
    if MIXERS.isdisjoint(step.families) and np.sort(np.bincount(kinds))[-FEW:].sum() < REGULAR * len(kinds):
        return f"no attention is known, and {len(kinds)} blocks are of {int(kinds.max()) + 1} kinds"
    breaks = np.flatnonzero(starts[1:] - ends[:-1] >= SURPLUS) + 1
    stacks = {tuple(stack.tolist()) for stack in np.split(kinds, breaks)}
    if len(breaks) and len(stacks) == 1 and len(kinds) > len(breaks) + 1:
        return f"the kernels of {len(breaks) + 1} steps of {len(kinds) // (len(breaks) + 1)} layers each: pass one step"
    return ""


def _blocks(step: _Step, starts: Ints, ends: Ints, kinds: Ints) -> LayerBlocks:
    layer, position = np.full((2, len(step.roles)), -1, np.int64)
    part = [""] * len(step.roles)
    blocks = [_commonest(step, starts[kinds == kind], ends[kinds == kind]) for kind in range(int(kinds.max()) + 1)]
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        layer[start:end] = number
        position[start:end] = _positions(step.roles[start:end], blocks[kinds[number]])
        part[start:end] = _parts(step.families[start:end])
    return LayerBlocks(layer, position, tuple(part), kinds, tuple(map(len, blocks)))


def _commonest(step: _Step, starts: Ints, ends: Ints) -> Ints:
    """Return the roles of the block that most layers are."""
    block_by_key = {(block := step.roles[start:end]).tobytes(): block for start, end in zip(starts, ends, strict=True)}
    counts = Counter(step.roles[start:end].tobytes() for start, end in zip(starts, ends, strict=True))
    return block_by_key[counts.most_common(1)[0][0]]


def _positions(roles: Ints, block: Ints) -> Ints:
    """Return where each kernel of a layer is in the block; -1 if the block has no such kernel."""
    positions = np.full(len(roles), -1, np.int64)
    for tag, begin, end, first, last in LCSseq.opcodes(roles.tolist(), block.tolist()):
        if tag == "equal":
            positions[begin:end] = np.arange(first, last)
    return positions


def _parts(families: Sequence[str]) -> list[str]:
    """Return the part of the layer that each kernel of a block is."""
    parts = [family if family in ("norm", "collective") else "" for family in families]
    anchor = max((place for place, family in enumerate(families) if family in MIXERS), default=-1)
    behind = next((place for place in range(anchor + 1, len(families)) if parts[place]), len(families))
    attention_end = anchor + 1 if behind == len(families) else behind
    feed_forward = _feed_forward(families[behind:], 1)
    if anchor < 0:
        return parts
    return [part or ("attention" if place < attention_end else feed_forward) for place, part in enumerate(parts)]
