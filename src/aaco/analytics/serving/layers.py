"""The layers of one serving step, found by repetition in the sequence of its kernels.

Blocks of the same kernels are of one kind. If most kernels are in a block that does not repeat, there are no layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.serving.anchors import MIXERS, LayerKernels, label_codes, layer_anchors, layer_kernels
from aaco.analytics.serving.bounds import LONGEST_GAP, SURPLUS, layer_bounds
from aaco.core.arrays import Ints

ROUTING = frozenset({"sort", "softmax"})  # after the attention only a mixture of experts has them
MOVES = frozenset({"copy", "fill", "reduction", "transpose"})  # come and go with a GEMM's name: no kind of their own
SIMILARITY = 0.8  # of two layers of one kind: common kernels as a share of the longer one's
COMMON_KINDS = 8  # with which an odd layer is compared
REPEATED = 0.5  # of the kernels from the first layer to the last
COVERED = 0.25  # of the step's kernels
MOST_OPENS = 4  # norms before GEMMs in a layer: two, more with cross or latent attention
FEW, REGULAR = 4, 0.8  # without a known attention as many kinds make up that share of the layers
_Content = tuple[str, tuple[int, ...]]  # what a layer holds and the roles of its kernels


class LayerBlocks(Struct, frozen=True):
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


def layer_blocks(names: Sequence[str], families: Sequence[str]) -> LayerBlocks:
    """Return the layers of one step from the names and families of its kernels in their order."""
    step = layer_kernels(names, families)
    anchors = layer_anchors(step)
    if anchors is None:
        return without_layers(len(names), "no kernels repeat as those of layers do")
    bounds = layer_bounds(step, anchors)
    if bounds is None:
        return without_layers(len(names), f"what repeats has more than {LONGEST_GAP:,} kernels")
    starts, ends = bounds
    kinds = _kinds(step, starts, ends)
    if why := _doubt(step, starts, ends, kinds):
        return without_layers(len(names), why)
    return _blocks(step, starts, ends, kinds)


def block_kind(families: Sequence[str]) -> str:
    """Return what a block holds by its kernels' families, joined by "+": "attention+moe"; "" if unknown."""
    mixers = [place for place, family in enumerate(families) if family in MIXERS]
    behind = families[mixers[-1] + 1:] if mixers else families
    name = "attention" if "attention" in families else "recurrent" if mixers else ""
    return "+".join(filter(None, (name, _feed_forward(behind, 2)))) if mixers else ""


def _feed_forward(families: Sequence[str], least_gemms: int) -> str:
    """Return "moe", "mlp" or "" by the families of the kernels after the attention."""
    if not ROUTING.isdisjoint(families):
        return "moe"
    return "mlp" if families.count("gemm") >= least_gemms else ""


def without_layers(count: int, why: str) -> LayerBlocks:
    """Return that a step of so many kernels has no layers, and why."""
    outside = np.full(count, -1, np.int64)
    return LayerBlocks(outside, outside.copy(), ("",) * count, np.zeros(0, np.int64), (), why)


def _kinds(step: LayerKernels, starts: Ints, ends: Ints) -> Ints:
    """Return the kind of each layer by first appearance: the order of kernels of two streams may differ."""
    weighty = ~step.of(*MOVES)
    contents = [(block_kind(step.families[start:end]), tuple(step.roles[start:end][weighty[start:end]].tolist()))
                for start, end in zip(starts, ends, strict=True)]
    kinds = [content for content, count in Counter(contents).most_common() if count > 1]
    kind_by_content = {content: content for content in kinds}
    for content in contents:
        if content not in kind_by_content:
            kind_by_content[content] = _nearest(content, kinds[:COMMON_KINDS])
            kinds += [content] * (kind_by_content[content] == content)
    kind_of_layer = [kind_by_content[content] for content in contents]
    return label_codes([(holds, tuple(sorted(roles))) for holds, roles in kind_of_layer])


def _nearest(content: _Content, kinds: list[_Content]) -> _Content:
    """Return the kind that holds the same and is most similar; the content itself if none is."""
    from rapidfuzz.distance import LCSseq  # few traces have layers, and every command would load it

    likeness = [(LCSseq.normalized_similarity(content[1], kind[1]), kind) for kind in kinds if kind[0] == content[0]]
    best, kind = max(likeness, key=lambda pair: pair[0], default=(0.0, content))
    return kind if best >= SIMILARITY else content


def _doubt(step: LayerKernels, starts: Ints, ends: Ints, kinds: Ints) -> str:
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


def _blocks(step: LayerKernels, starts: Ints, ends: Ints, kinds: Ints) -> LayerBlocks:
    layer, position = np.full((2, len(step.roles)), -1, np.int64)
    part = [""] * len(step.roles)
    blocks = [_commonest(step, starts[kinds == kind], ends[kinds == kind]) for kind in range(int(kinds.max()) + 1)]
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        layer[start:end] = number
        position[start:end] = _positions(step.roles[start:end], blocks[kinds[number]])
        part[start:end] = _parts(step.families[start:end])
    return LayerBlocks(layer, position, tuple(part), kinds, tuple(map(len, blocks)))


def _commonest(step: LayerKernels, starts: Ints, ends: Ints) -> Ints:
    """Return the roles of the block that most layers are."""
    block_by_key = {(block := step.roles[start:end]).tobytes(): block for start, end in zip(starts, ends, strict=True)}
    counts = Counter(step.roles[start:end].tobytes() for start, end in zip(starts, ends, strict=True))
    return block_by_key[counts.most_common(1)[0][0]]


def _positions(roles: Ints, block: Ints) -> Ints:
    """Return where each kernel of a layer is in the block; -1 if the block has no such kernel."""
    from rapidfuzz.distance import LCSseq

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
