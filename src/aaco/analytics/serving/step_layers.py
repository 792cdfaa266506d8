"""The layer of each kernel that a serving engine's step launched, found by repetition in the step's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from aaco.analytics.serving.layers import LayerBlocks, layer_blocks, without_layers
from aaco.analytics.serving.steps import StepKernels
from aaco.analytics.streaming.stream_ids import NONE
from aaco.core.arrays import Ints, joined
from aaco.core.tables import SERVING_KERNELS

MOST_DIFFERENT = 512  # sequences of kernels whose layers are looked for
TOO_MANY = f"more than {MOST_DIFFERENT} steps of different kernels"


def serving_kernels(kernels: StepKernels, names: Sequence[str], families: Sequence[str]
                    ) -> tuple[pa.Table, dict[int, str]]:
    """Return the serving_kernels table, and by step why it has no layers.

    kernels: of all steps, in start order. names: of kernels, by their numbers; families: of these.
    """
    if (np.diff(kernels.step) < 0).any():
        kernels = kernels.take(np.argsort(kernels.step, kind="stable"))
    step = kernels.step
    bounds = [*np.flatnonzero(np.r_[True, step[1:] != step[:-1]]).tolist(), len(step)] if len(step) else []
    found: dict[bytes, LayerBlocks] = {}
    blocks = [_blocks(kernels.name[low:high], names, families, found) for low, high in pairwise(bounds)]
    distinct = {id(block): block for block in blocks}
    sizes = [len(block.part) for block in distinct.values()]
    first = dict(zip(distinct, np.cumsum([0, *sizes]).tolist(), strict=False))
    moved = np.array([first[id(block)] - low for low, block in zip(bounds, blocks, strict=False)], np.int64)
    place = np.arange(len(step)) + np.repeat(moved, np.array([len(block.part) for block in blocks], np.int64))
    layer, position, kind = (joined([column(block) for block in distinct.values()])[place] for column in (
        lambda block: block.layer, lambda block: block.position, _kinds))
    part = pa.array([part or None for block in distinct.values() for part in block.part], pa.string())
    table = SERVING_KERNELS.build(
        kernel_id=kernels.kernel_id, step=step, layer=_known(layer), position=_known(position), kind=_known(kind),
        t_start_ns=kernels.start, t_end_ns=kernels.end, dur_ns=kernels.end - kernels.start,
        part=part.dictionary_encode().take(pa.array(place)), capture=_known(kernels.capture))
    return table, {int(step[low]): block.why_none for low, block in zip(bounds, blocks, strict=False) if block.why_none}


def _blocks(name: Ints, names: Sequence[str], families: Sequence[str], found: dict[bytes, LayerBlocks]) -> LayerBlocks:
    """Return the layers of one step; steps of the same kernels have the same."""
    key = name.tobytes()
    if key not in found:
        if len(found) >= MOST_DIFFERENT:
            return without_layers(len(name), TOO_MANY)
        found[key] = layer_blocks(*([texts[number] for number in name.tolist()] for texts in (names, families)))
    return found[key]


def _kinds(blocks: LayerBlocks) -> Ints:
    return np.where(blocks.layer >= 0, np.append(blocks.kind, NONE)[blocks.layer], NONE)


def _known(column: Ints) -> pa.Array:
    return pa.array(column, mask=column < 0)
