"""The work of a model's nodes as a function of the batch, and the time of each where it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from aaco.analytics.what_if.roofs import FLOATS, WIDTHS, MachineRoofs
from aaco.core.arrays import Reals


class Amount(NamedTuple):
    """FLOPs and bytes of one inference."""

    flops: float
    bytes: float


class ModelNode(Struct, frozen=True):
    """A node: its work, `fixed` (weights, mostly) + batch x `each`, and mean times per inference by batch, ns.

    dtype: of its arithmetic; None where that is not known. times_ns: empty where no profile saw the node.
    """

    name: str
    family: str
    dtype: str | None
    fixed: Amount
    each: Amount
    times_ns: Mapping[int, float] = field(default_factory=dict)

    def at(self, batch: float) -> Amount:
        """Return its work in an inference of this batch."""
        return Amount(*(fixed + batch * per_sample for fixed, per_sample in zip(self.fixed, self.each, strict=True)))


def between(first: int, low: Amount, second: int, high: Amount) -> tuple[Amount, Amount]:
    """Return the fixed part and the part per sample of the work that is `low` at batch `first` and `high` at `second`.
    Neither is below 0: what shrinks as the batch grows is taken for fixed."""
    per_sample = Amount(*(max(0.0, (after - before) / (second - first))
                          for before, after in zip(low, high, strict=True)))
    fixed = Amount(*(max(0.0, before - first * more) for before, more in zip(low, per_sample, strict=True)))
    return fixed, per_sample


class Floor(NamedTuple):
    """Of each node the least time that the roofs allow it, and the parts of that: ns, NaN where a peak is unknown."""

    ideal_ns: Reals
    compute_ns: Reals
    memory_ns: Reals


def floor(nodes: Sequence[ModelNode], batch: float, roofs: MachineRoofs, precision: str | None = None) -> Floor:
    """Return the nodes' ideal times at a batch: max(FLOPs / peak, bytes / bandwidth), Williams, Waterman and Patterson
    2009.

    precision: the type that floating-point nodes compute in instead of their own; their bytes shrink with it. A node
    without a known peak of its arithmetic is bounded only by the memory.
    """
    work = np.array([node.at(batch) for node in nodes], np.float64).reshape(-1, 2)
    dtypes = [precision if precision and node.dtype in FLOATS else node.dtype for node in nodes]
    shrunk = np.array([WIDTHS[dtype] / WIDTHS[node.dtype] if dtype != node.dtype and dtype and node.dtype else 1.0
                       for node, dtype in zip(nodes, dtypes, strict=True)])
    peaks = np.array([roofs.peak(node.family, dtype) or np.inf for node, dtype in zip(nodes, dtypes, strict=True)])
    compute, memory = 1e9 * work[:, 0] / peaks, 1e9 * work[:, 1] * shrunk / roofs.bytes_per_s
    return Floor(np.maximum(compute, memory), compute, memory)
