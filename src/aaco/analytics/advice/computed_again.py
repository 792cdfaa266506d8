"""What a training step computes a second time for the sake of its way back."""

from __future__ import annotations

from collections import Counter

import numpy as np

from aaco.analytics.advice.learnt import update_of
from aaco.analytics.advice.least import PRODUCTS
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import BACKWARD, FORWARD, NO_GRAD, StepWork
from aaco.core.arrays import Flags

RECOMPUTE = "recompute"  # the phase of operators that checkpointing calls again


def computed_again(work: StepWork) -> Flags:
    """Return the rows that checkpointing calls again, and those without gradients of which all products run again with
    them after a first way back, to the results only, and before the update: as where a loss is of many parts.
    """
    rows, no_grad, forward, back = map(work.of_phase, (RECOMPUTE, NO_GRAD, FORWARD, BACKWARD))
    update = work.once(update_of)
    for number in np.unique(update[back]):
        ahead = (update == number) & (np.arange(len(back)) < np.flatnonzero(back & (update == number))[0])
        first, without_gradients = _products(work, ahead & forward), _products(work, ahead & no_grad)
        again = _products(work, (update == number) & ~ahead & forward)
        if without_gradients and without_gradients == again and first.keys().isdisjoint(again):
            rows = rows | ahead & no_grad
    return rows


def _products(work: StepWork, rows: Flags) -> Counter[tuple[str, tuple[Shape | None, ...]]]:
    """Return how often each product runs in these rows, by its operator and the shapes that it takes."""
    called = [work.operators[number] for number in work.operator[rows & work.of_families(*PRODUCTS)] if number >= 0]
    return Counter((operator.name, tuple(operator.shapes)) for operator in called)
