"""Call trees of two traces under one numbering: where in the program a kernel was launched.

A context is the path of names from the root of a thread's call tree. Two calls have the same context number exactly
when their paths are the same, on whichever side they are, so sides compare by integers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from aaco.core.arrays import Ints

NOWHERE = 0  # the context of what no recorded call launched
# What changes from run to run in a name that means the same: addresses, and numbers that only count: of a step, a
# request, an operation. A layer's number is its name.
_VOLATILE = re.compile(r"0x[0-9a-fA-F]+|(#|(?<![A-Za-z])(?:steps?|iter(?:ation)?s?|epoch|(?:micro_?)?batch|request|req|"
                       r"frame|sample|token|seq(?:uence)?|(?:op|trace|request|req|correlation)_?id)[ _:=#]{0,3})"
                       r"-?\d+(?![A-Za-z\d])", re.IGNORECASE)


def plain(name: str) -> str:
    """Return the name without what changes from run to run."""
    return _VOLATILE.sub(lambda match: f"{match[1] or ''}*", name)


class Contexts:
    """The numbering, which grows with every trace that is numbered."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": 0}
        self._known: dict[tuple[int, int], int] = {}
        self._pairs: list[tuple[int, int]] = [(NOWHERE, 0)]  # of each context: its enclosing context, its name's code

    def number(self, names: Sequence[str], name: Ints, parent: Ints) -> Ints:
        """Return the context of every call. name: its code in `names`; parent: the row of its enclosing call, -1 for
        none.
        """
        codes = np.array([self._codes.setdefault(plain(text), len(self._codes)) for text in names], np.int64)
        context = np.zeros(len(name), np.int64)
        for rows in _levels(parent):
            above = np.where(parent[rows] < 0, NOWHERE, context[parent[rows]])
            context[rows] = self._intern(above, codes[name[rows]])
        return context

    def path(self, context: int) -> tuple[str, ...]:
        """Return the names from the root down to the context; empty for NOWHERE."""
        texts = list(self._codes)
        found = []
        while context != NOWHERE:
            context, name = self._pairs[context]
            found.append(texts[name])
        return tuple(reversed(found))

    def _intern(self, above: Ints, name: Ints) -> Ints:
        """Numbers of the contexts (above, name), new ones appended."""
        width = len(self._codes)
        keys, position = np.unique(above * width + name, return_inverse=True)
        return np.array([self._one(*divmod(key, width)) for key in keys.tolist()], np.int64)[position]

    def _one(self, above: int, name: int) -> int:
        number = self._known.setdefault((above, name), len(self._pairs))
        if number == len(self._pairs):
            self._pairs.append((above, name))
        return number


def _levels(parent: Ints) -> list[Ints]:
    """Rows of the forest level by level, roots first. A row that hangs on no root is left out."""
    order = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[order], np.arange(-1, len(parent) + 1))
    counts = np.diff(first)  # children of row r are order[first[r + 1]:first[r + 2]]
    level, found = order[:counts[0]] if len(parent) else order, []
    while len(level):
        found.append(level)
        starts, sizes = first[level + 1], counts[level + 1]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        level = order[np.repeat(starts, sizes) + within]
    return found
