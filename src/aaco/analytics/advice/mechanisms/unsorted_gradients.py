"""Gradients of looked-up rows added as they come, where PyTorch sorts the indices first: F.embedding and table[rows] do
so on the way back, torch.index_select adds with atomics (aten/src/ATen/native/cuda: Embedding.cu, Indexing.cu). The
gradients are read at least.

Wide rows, of which atomics take longer than sorting, stay as they are. How many indices are the same is not recorded.
"""

from __future__ import annotations

import math

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.responses import FIXED_NS
from aaco.analytics.advice.work import BACKWARD, COPY, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals

GRADIENTS_AT = {"aten::embedding_dense_backward": 0, "aten::_index_put_impl_": 2}  # the place of this argument
SORTS = "sort"  # of the name of a kernel, in small letters
BYTES = {"f64": 8, "f32": 4, "tf32": 4}  # of a number; of other types 2
# Additions per second that an H200's caches do: 1.2e11 to 1.8e11 over rows at random, down to a tenth where many are
# the same row.
ADDS_PER_S = 1e11
KERNELS_LEFT = 2.0  # of a call: zeros, and what adds


def _elements(work: StepWork) -> dict[int, int]:
    """Return by operator how many numbers a call adds up, of those that sort before and would add sooner without."""
    took, elements = work.by_operator(np.where(_fills(work), 0.0, work.sure_ns)), {}
    for number, names in work.names_by_operator.items():
        operator = work.operators[number]
        place, shapes = GRADIENTS_AT.get(operator.name), operator.shapes
        if place is not None and place < len(shapes) and any(SORTS in name.name.lower() for name in names):
            count = math.prod(shapes[place] or (0,))
            if _adding_ns(count) * work.operator_calls[number] < took[number]:
                elements[number] = count
    return elements


def _fills(work: StepWork) -> Flags:
    return work.of_families("fill", COPY)


def _adding_ns(count: int) -> float:
    return FIXED_NS + 1e9 * count / ADDS_PER_S


def _at(work: StepWork, needed_ns: dict[int, float]) -> Reals:
    """Return the times with each call of these operators in so many ns. Fills of zeros stay, and what else the same
    nodes of autograd do for the sort is gone.
    """
    nodes = {work.operators[number].outermost for number in needed_ns}
    mine = np.isin(work.operator, [*needed_ns]) & ~_fills(work)
    beside = work.operated(lambda operator: operator.outermost in nodes and operator.phase == BACKWARD)
    took, left = work.by_operator(np.where(mine, work.sure_ns, 0.0)), np.zeros(len(work.operators) + 1)
    for number, ns in needed_ns.items():
        left[number] = min(1.0, ns * work.operator_calls[number] / took[number])
    return np.where(mine | beside & ~_fills(work), work.sure_ns * left[work.operator], work.sure_ns)


def _least_ns(work: StepWork) -> Reals:
    elements = work.once(_elements)
    if not elements:
        raise NothingToChange("no gradients of looked-up rows are sorted that could be added sooner")
    return _at(work, {number: work.limits.memory_ns(count * BYTES.get(next(iter(work.operators[number].types), ""), 2))
                      for number, count in elements.items()})


def _unsorted(work: StepWork, least: Reals) -> Response:
    """Return the step with the gradients added by atomics, in one kernel and a fill for each call."""
    added = _at(work, {number: _adding_ns(count) for number, count in work.once(_elements).items()})
    kernels = np.array([*(operator.kernels for operator in work.operators), 1.0])[work.operator]
    fewer = np.isin(work.operator, [*work.once(_elements)])
    return Response(added, np.where(fewer, np.minimum(1.0, KERNELS_LEFT / kernels), 1.0), only_less=True)


UNSORTED_GRADIENTS = Mechanism("unsorted_gradients", "Add gradients of looked-up rows without sorting them", "D with "
                               "sorted gradients of looked-up rows at the time that reading them takes", _least_ns,
                               respond=_unsorted)
ACTIONS = (Action(
    "unsorted_gradients", UNSORTED_GRADIENTS.title, of_targets(UNSORTED_GRADIENTS.name),
    "kernels sort indices and add up the gradients of rows that were looked up", "low",
    (Step("torch.index_select(table, 0, rows.flatten()) in place of table[rows] and F.embedding: on the way back it "
          "adds without sorting", (PYTORCH, OWN_CODE)),),
    "kernels_per_step", applies_if=(PYTORCH,),
    accuracy="gradients are summed in any order: their last bits differ from run to run",
    mechanism=UNSORTED_GRADIENTS.name),)
