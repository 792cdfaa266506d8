"""The kernels of a replayed step aligned to those of an eager step, with abstention.

The eager step may fuse other kernels, run GEMMs of other names, and have a few kernels more or less. The best global
alignment decides; kernels of contradicting families are never matched. The margin of a match is what the best
alignment without it would lose: where that is little, another eager kernel would do as well, and the kernel stays
unmatched. So does a kernel that agrees only by a broad family, such as elementwise, where between the better matches
around it one step has more kernels than the other: there a fusion differs. The steps as a whole are of different models
if their layers differ in number or too few kernels agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.kernels.families import UNKNOWN, decode
from aaco.analytics.serving.layers import layer_blocks
from aaco.analytics.serving.scores import GAP, prefix_scores, suffix_scores
from aaco.core.arrays import Array, Flags, Ints, Reals

LONGEST = 4096  # kernels a side: four tables of 128 MiB
LEAST_MARGIN = 1.0  # of a match that is kept
LEAST_MATCHED = 0.5  # of the replayed kernels
LEAST_NAMED = 0.25  # of the replayed kernels, by equal names or short names
BROAD = frozenset({"elementwise", "copy", "reduction", "fill", "transpose", "embedding", UNKNOWN})
NEVER = -1e6

# Gain of a match by what agrees, the strongest first.
GAINS = {"name": 3.0, "short name": 2.5, "family": 1.5, "broad family": 0.25, "": NEVER}
BASES = tuple(GAINS)


class Alignment(Struct, frozen=True):
    """A replayed step aligned to an eager one.

    index: per replayed kernel the index of its eager kernel, -1 without one. margin: per replayed kernel what the best
    alignment would lose without the match; 0 where index is -1. reason: per replayed kernel what agrees ("name", "short
    name", "family", "broad family") or why it has no eager kernel. why_none: why the steps are not aligned at all.
    """

    index: Ints
    margin: Reals
    reason: tuple[str, ...]
    why_none: str = ""


class _Matches(Struct, frozen=True):
    """Per replayed kernel the eager kernel of the best alignment (-1: none), its margin and its basis."""

    index: Ints
    margin: Reals
    basis: Ints
    eager_count: int

    @property
    def certain(self) -> Flags:
        """Return which matches are kept."""
        clear = (self.index >= 0) & (self.margin >= LEAST_MARGIN)
        firm = clear & (self.basis < BASES.index("broad family"))
        return firm | clear & self._between_equally_many(firm)

    def _between_equally_many(self, firm: Flags) -> Flags:
        """Return which kernels have the same number of kernels of both steps between the firm matches around them."""
        rows = np.r_[-1, np.flatnonzero(firm), len(firm)]
        columns = np.r_[-1, self.index[firm], self.eager_count]
        return np.repeat(np.diff(rows) == np.diff(columns), np.diff(rows))[:-1]


def align(replayed: Sequence[str], eager: Sequence[str],
          replayed_families: Sequence[str], eager_families: Sequence[str]) -> Alignment:
    """Return the eager kernel of each kernel of a replayed step, by the names and families of both in their order."""
    if why := _refusal(replayed, eager, replayed_families, eager_families):
        return _unaligned(len(replayed), why)
    matches = _matches(_bases(replayed, eager, replayed_families, eager_families))
    if why := _disagreement(matches):
        return _unaligned(len(replayed), why)
    index = np.where(matches.certain, matches.index, -1)
    return Alignment(index, np.where(matches.certain, matches.margin, 0.0), _reasons(matches))


def _unaligned(count: int, why: str) -> Alignment:
    return Alignment(np.full(count, -1, np.int64), np.zeros(count), (why,) * count, why)


def _refusal(replayed: Sequence[str], eager: Sequence[str],
             replayed_families: Sequence[str], eager_families: Sequence[str]) -> str:
    """Return why the steps cannot be of one model, or are too long; "" if they may be."""
    if not replayed or not eager:
        return "a step without kernels"
    if max(len(replayed), len(eager)) > LONGEST:
        return f"a step of {max(len(replayed), len(eager)):,} kernels; at most {LONGEST:,} are aligned"
    layers = layer_blocks(replayed, replayed_families).count, layer_blocks(eager, eager_families).count
    if all(layers) and layers[0] != layers[1]:
        return f"the replayed step has {layers[0]} layers, the eager step {layers[1]}"
    return ""


def _bases(replayed: Sequence[str], eager: Sequence[str],
           replayed_families: Sequence[str], eager_families: Sequence[str]) -> Ints:
    """Return by what each replayed kernel agrees with each eager one: the place in BASES, shape (n, m)."""
    short_names = {name: decode(name).normalised or name for name in {*replayed, *eager}}
    families = np.array(replayed_families, object), np.array(eager_families, object)
    same_family = _equal(*families)
    broad = np.isin(families[0], list(BROAD))[:, None]
    unknown = (families[0] == UNKNOWN)[:, None] | (families[1] == UNKNOWN)
    short = _equal([short_names[name] for name in replayed], [short_names[name] for name in eager])
    conditions = [_equal(replayed, eager), short & (same_family | unknown), same_family & ~broad, same_family | unknown]
    bases: Ints = np.select(conditions, [np.int8(place) for place in range(len(conditions))], np.int8(len(conditions)))
    return bases


def _equal(rows: Sequence[str] | Array, columns: Sequence[str] | Array) -> Flags:
    """Return which texts are equal, shape (n, m)."""
    code_by_text = {text: code for code, text in enumerate(dict.fromkeys([*rows, *columns]))}
    row_codes, column_codes = (np.array([code_by_text[text] for text in texts]) for texts in (rows, columns))
    equal: Flags = row_codes[:, None] == column_codes
    return equal


def _matches(bases: Ints) -> _Matches:
    """Return the matches of the best alignment and how much each is worth."""
    gains = np.array(list(GAINS.values()))[bases]
    before, after = prefix_scores(gains), suffix_scores(gains)
    unmatched = (before[:-1] + after[1:]).max(axis=1) - GAP  # the best alignment without each replayed kernel
    through = gains  # and with each match
    through += before[:-1, :-1]
    through += after[1:, 1:]
    rows = np.arange(len(through))
    best = through.argmax(axis=1)
    score = through[rows, best]
    through[rows, best] = -np.inf
    margin = score - np.maximum(through.max(axis=1), unmatched)
    return _Matches(np.where(margin >= 0, best, -1), margin, bases[rows, best], bases.shape[1])


def _disagreement(matches: _Matches) -> str:
    """Return why the steps are of different models; "" if they agree."""
    matched = float(matches.certain.mean())
    if matched < LEAST_MATCHED:
        return f"only {matched:.0%} of the replayed kernels have one certain counterpart: another model or engine"
    named = float((matches.certain & (matches.basis <= BASES.index("short name"))).mean())
    if named < LEAST_NAMED:
        return f"only {named:.0%} of the replayed kernels have an eager one of their name: another model or engine"
    return ""


def _reasons(matches: _Matches) -> tuple[str, ...]:
    """Return per replayed kernel what agrees, or why it has no eager kernel."""
    doubtful = np.where(matches.margin < LEAST_MARGIN, "several eager kernels would do", "another fusion")
    without = np.where(matches.index < 0, "no counterpart", doubtful)
    return tuple(np.where(matches.certain, np.array(BASES)[matches.basis], without).tolist())
