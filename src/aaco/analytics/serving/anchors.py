"""What occurs once in each layer of a step: attention or a state-space scan, else a name as frequent as most others.

GEMMs have the same role in all layers, and so have norms: autotuning chooses other GEMMs in some layers, and the first
norm of a model is rarely fused with an addition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from aaco.analytics.kernels.families import decode
from aaco.core.arrays import Flags, Ints

MIXERS = frozenset({"attention", "recurrent"})
LEAST_GEMMS = 3  # between the attention of two layers: output, feed-forward and input projections
LEAST_NAMES = 3  # that occur equally often, to count layers without an attention
LEAST_SHARE = 0.5  # of the names with the count that most names have
MORE = 1.25  # times the known attentions: fewer are a step cut off, or a lost kernel
WHOLE = 0.9  # of the gaps between anchors hold two halves of a layer


class LayerKernels(Struct, frozen=True):
    """The kernels of a step: codes of names and of roles, families, which are GEMMs, and which are norms before one."""

    names: Ints
    roles: Ints
    families: tuple[str, ...]
    gemm: Flags
    opens: Flags

    def of(self, *families: str) -> Flags:
        """Return which kernels are of these families."""
        return np.array([family in families for family in self.families], bool)


class LayerAnchors(Struct, frozen=True):
    """First and last kernel of each anchor, in order."""

    first: Ints
    last: Ints


def layer_kernels(names: Sequence[str], families: Sequence[str]) -> LayerKernels:
    """Return the kernels of a step in their order, by names and families."""
    role_by_kernel = {pair: _role(*pair) for pair in dict.fromkeys(zip(names, families, strict=True))}
    roles = [role_by_kernel[pair] for pair in zip(names, families, strict=True)]
    gemm = np.array([family == "gemm" for family in families], bool)
    return LayerKernels(label_codes(names), label_codes(roles), tuple(families), gemm, _opens(families))


def _opens(families: Sequence[str]) -> Flags:
    """Return which kernels are norms that feed a GEMM: each half of a layer begins with one."""
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


def label_codes(labels: Sequence[Hashable]) -> Ints:
    """Return the number of each label by first appearance."""
    code_by_label = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    return np.array([code_by_label[label] for label in labels], np.int64)


def layer_anchors(step: LayerKernels) -> LayerAnchors | None:
    """Return the attention of each layer; a name instead where more layers have that than have a known attention."""
    mixers, names = _mixers(step), _equally_often(step)
    if mixers is None or names is None:
        return mixers or names
    halves = np.diff(np.searchsorted(np.flatnonzero(step.opens), names.first))
    is_whole = np.mean(halves >= 2) >= WHOLE
    return names if len(names.first) >= MORE * len(mixers.first) and is_whole else mixers


def _mixers(step: LayerKernels) -> LayerAnchors | None:
    """Return the attention of each layer: kernels with fewer than LEAST_GEMMS between them are of one."""
    anchors = mixer_groups(step.of(*MIXERS), step.gemm)
    return anchors if len(anchors.first) > 1 else None


def mixer_groups(mixer: Flags, gemm: Flags) -> LayerAnchors:
    """Return the attention of each layer of any number of steps. mixer, gemm: which kernels are of these."""
    kernels = np.flatnonzero(mixer)
    gemms = np.cumsum(gemm)[kernels]
    kernels, gemms = kernels[gemms > 0], gemms[gemms > 0]  # before any projection it is a preparation
    fresh = np.diff(gemms) >= LEAST_GEMMS
    ends = np.r_[fresh, True] if len(kernels) else fresh
    return LayerAnchors(kernels[np.r_[True, fresh]] if len(kernels) else kernels, kernels[ends])


def _equally_often(step: LayerKernels) -> LayerAnchors | None:
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
    return LayerAnchors(most_regular, most_regular)
