"""Turns of a training step: it goes ahead and back with the same operators several times before one update.

They are micro batches, whose gradients it adds up, or single samples whose gradients it works on, as where it clips
those of each (Abadi et al. 2016). Autograd itself adds a gradient to one that is there already; turns with nothing
added are of models of one kind, and what runs between two that add may as well be a frozen part of the next.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.work import AHEAD, BACKWARD, FORWARD, NO_GRAD, OPTIMIZER, StepOperator, StepWork
from aaco.core.arrays import Flags, Ints

ALIKE = 0.9  # of the operators of a turn, but for sums of gradients, which the first one has none of
ADDS_UP = ("aten::add_", "aten::add")
ACCUMULATES = "AccumulateGrad"  # of the name of what gives a weight its gradient
SETS_TO_ZERO = ("aten::zero_", "aten::_foreach_zero_")  # also gradients, to which nothing is added then


class Turns(Struct, frozen=True):
    """How often a step goes ahead and back with the same operators before an update. apart: whether something works on
    the gradients of each turn, as where those of each sample are clipped, so that they cannot be added up at once.
    """

    count: int
    apart: bool = False


def gradient_turns(work: StepWork) -> Turns:
    """Return the turns of a step; one where they differ, or where the weights change between two."""
    back = work.of_phase(BACKWARD)
    rows = np.flatnonzero(back | work.of_phase(FORWARD))
    rows = rows[rows <= np.flatnonzero(back).max(initial=-1)]  # what follows the last way back is no turn
    starts = np.flatnonzero(~back[rows] & np.r_[True, back[rows][:-1]])
    count = len(starts) // work.steps
    if count < 2 or len(starts) % work.steps:
        return Turns(1)
    sums = adds_up(work)
    counts = [np.bincount(work.operator[part[~sums[part]]], minlength=len(work.operators))
              for part in np.split(rows, starts[1:])]
    shared = np.minimum.reduce(counts).sum() / max(1, np.maximum.reduce(counts).sum())
    updates = _gaps_with(work.of_phase(OPTIMIZER), rows, starts)
    most = len(starts) - work.steps  # gaps between turns of a step
    if shared < ALIKE or updates >= most:
        return Turns(1)
    if _sums_of_turns(work, rows, starts) >= most and _gaps_with(_zeros(work), rows, starts) < most:
        return Turns(count)
    others = _gaps_with(work.operated(_works_on_tensors), rows, starts)
    return Turns(count, True) if others >= most else Turns(1)


def _sums_of_turns(work: StepWork, rows: Ints, starts: Ints) -> int:
    """Return in how many turns autograd adds a weight's gradient to the one that it has."""
    sums = adds_up(work) & work.operated(lambda operator: ACCUMULATES in operator.outermost)
    return int(np.count_nonzero(np.add.reduceat(sums[rows], starts)))


def _zeros(work: StepWork) -> Flags:
    """Return which rows may set gradients to zero: all numbers of a tensor that is there."""
    return work.operated(lambda operator: operator.outermost in SETS_TO_ZERO and _works_on_tensors(operator))


def _works_on_tensors(operator: StepOperator) -> bool:
    """Return whether an operator outside of the turns reads more than a number, as that which begins a way back."""
    return operator.phase == NO_GRAD and any(math.prod(shape) > 1 for shape, _ in operator.each_tensor)


def _gaps_with(between: Flags, rows: Ints, starts: Ints) -> int:
    """Return how many gaps before a turn, but the first, hold such rows. rows: of all turns; starts: places in them."""
    held = np.cumsum(np.r_[0, between])
    return int(np.count_nonzero(held[rows[starts[1:]]] > held[rows[starts[1:] - 1]]))


def ahead_or_back(work: StepWork) -> Flags:
    """Return which rows belong to the turns of a step."""
    return work.of_phase(*AHEAD, BACKWARD)


def adds_up(work: StepWork) -> Flags:
    """Return which rows add gradients up on the way back."""
    return work.operated(lambda operator: operator.phase == BACKWARD and operator.name in ADDS_UP)
