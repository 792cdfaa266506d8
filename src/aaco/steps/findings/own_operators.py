"""How long the host works on tensors of its own: operators that give the device nothing to do, and what the program
does between them.

PyTorch's operators say not where their tensors lie. One in which nothing is launched, copied or waited for works on the
host, if it is no view and no part of one in which something is (`aten::repeat` counts its rows there): of those that
follow each other, from the start of the first one to the end of the last, until the device is given work again.
Optimizers count their steps on the host, which one that runs in a graph does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aaco.analytics.advice.work import TENSOR_OPERATOR
from aaco.analytics.costs.torch import model
from aaco.core.arrays import Flags, Ints

LOOKS = tuple(map(model, ("aten::view", "aten::to")))  # operators that only look at a tensor, or may do so
ALSO_LOOK = frozenset({  # the same, of operators that no cost is asked of
    "aten::mT", "aten::mH", "aten::adjoint", "aten::conj", "aten::_conj", "aten::_neg_view", "aten::view_as_real",
    "aten::view_as_complex", "aten::imag", "aten::resize_as_", "aten::is_pinned"})
UPDATES = "Optimizer.step#"  # of the names of ranges around an optimizer's step
OTHER, LOOK, COMPUTE, UPDATE = range(4)  # what a call is, by its name


class OwnOperators:
    """Operators in which the device is given nothing, of which the trace's other calls say whether it was."""

    def __init__(self, names: Sequence[str]) -> None:
        """names: of the calls, which batches number."""
        self._kinds = np.array([*map(_kind, names)])
        self.meant: Flags = self._kinds != OTHER
        self._calls = [np.zeros((3, 0), np.int64)]

    def add(self, name: Ints, start: Ints, end: Ints, given: Ints) -> None:
        """Add calls with times. given: when the device is given work or waited for, as far as it is read."""
        calls = np.array((start, end, self._kinds[name]))[:, self.meant[name]]
        lasting = calls[1] >= start.max(initial=0)  # what these are is known with the next calls
        self._calls.append(calls[:, lasting | _own(calls, np.sort(given))])

    def spans(self, given: Ints) -> tuple[Ints, Ints]:
        """Return start and end of each time in which the host works on its own. given: of the whole trace."""
        given, calls = np.sort(given), np.hstack(self._calls)
        calls = calls[:, _own(calls, given)]
        start, end, _ = calls[:, np.argsort(calls[0], kind="stable")]
        first = np.flatnonzero(np.diff(np.searchsorted(given, start), prepend=-1))
        return start[first], np.maximum.reduceat(end, first) if len(first) else end


def _kind(name: str) -> int:
    if name.startswith(TENSOR_OPERATOR):
        return LOOK if model(name) in LOOKS or name in ALSO_LOOK else COMPUTE
    return UPDATE if name.startswith(UPDATES) else OTHER


def _own(calls: Ints, given: Ints) -> Flags:
    """Return which calls compute, and neither are nor lie in one in which the device is given something, nor lie in an
    optimizer's step.
    """
    start, end, kind = calls
    busy = (np.searchsorted(given, start) < np.searchsorted(given, end)) | (kind == UPDATE)
    begun, ended = (np.searchsorted(np.sort(edge[busy]), start, side="right") for edge in (start, end))
    return (kind == COMPUTE) & (begun == ended)
