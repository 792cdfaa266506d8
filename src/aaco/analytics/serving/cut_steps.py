"""Which steps of an engine a trace cuts: it began or ended while their kernels ran."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from aaco.core.arrays import Flags, Ints


def cut_steps(thread: Ints, alike: Sequence[Hashable], step: Ints, name: Ints) -> Flags:
    """Return which steps are cut: the last of a thread if a longer step begins with its kernels, and the first one if a
    longer step ends with its kernels.

    thread: of each step, in start order. alike: what the longer step must have the same, such as phase and batch. step,
    name: of each kernel, in start order; name is a number.
    """
    order = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[order], np.arange(len(thread) + 1))
    parts, kernels = _Parts(name[order], bounds), np.diff(bounds)
    is_cut = np.zeros(len(thread), bool)
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == number)
        for edge, at_end in ((int(mine[0]), False), (int(mine[-1]), True)):
            longer = [at for at in mine[kernels[mine] > kernels[edge]].tolist() if alike[at] == alike[edge]]
            is_cut[edge] |= any(parts.is_part(edge, whole, at_end) for whole in longer)
    return is_cut


class _Parts:
    """The kernels of steps, one after the other."""

    def __init__(self, name: Ints, bounds: Ints) -> None:
        self._name, self._bounds = name, bounds.tolist()

    def is_part(self, step: int, longer: int, at_end: bool) -> bool:
        """Return whether a step of more kernels begins (at_end: the trace's) or ends with those of this."""
        mine, whole = (self._name[self._bounds[at]:self._bounds[at + 1]] for at in (step, longer))
        return bool((mine == (whole[:len(mine)] if at_end else whole[len(whole) - len(mine):])).all())
