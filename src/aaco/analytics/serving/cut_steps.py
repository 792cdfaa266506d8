"""Which steps of an engine a trace cuts: it began or ended while their kernels ran."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from aaco.core.arrays import Flags, Ints


def cut_steps(thread: Ints, alike: Sequence[Hashable], step: Ints, name: Ints) -> Flags:
    """Return which steps are cut: the last of a thread whose kernels are how those of a longer step begin, and the
    first one whose kernels are how those of a longer step end.

    thread: of each step, in start order. alike: what the longer step must have the same, such as phase and batch. step,
    name: of each kernel, in start order; name is a number.
    """
    order = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[order], np.arange(len(thread) + 1))
    parts = _Parts(name[order], bounds)
    is_cut = np.zeros(len(thread), bool)
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == number)
        for edge, at_end in ((int(mine[0]), False), (int(mine[-1]), True)):
            longer = [other for other in mine.tolist() if alike[other] == alike[edge]]
            is_cut[edge] |= any(parts.is_part(edge, other, at_end) for other in longer)
    return is_cut


class _Parts:
    """The kernels of steps, one after the other."""

    def __init__(self, name: Ints, bounds: Ints) -> None:
        self._name, self._bounds = name, bounds.tolist()

    def is_part(self, step: int, other: int, at_end: bool) -> bool:
        """Return whether another step has more kernels, and begins (at_end: the trace's) or ends with those of this."""
        mine, whole = (self._name[self._bounds[at]:self._bounds[at + 1]] for at in (step, other))
        if len(mine) >= len(whole):
            return False
        return bool((mine == (whole[:len(mine)] if at_end else whole[len(whole) - len(mine):])).all())
