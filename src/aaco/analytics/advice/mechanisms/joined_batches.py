"""Micro batches whose gradients a step adds up, put into one batch: each call is made once for all of them.

They show as the same operators ahead and back several times before one update. What adds gradients up is gone. Of each
sample nothing is sure to stay but arithmetic and bytes, as of a larger batch.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from aaco.analytics.advice.achieved import room_for_more
from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.larger_batch import larger_batch
from aaco.analytics.advice.responses import FIXED_NS
from aaco.analytics.advice.work import BACKWARD, FORWARD, NO_GRAD, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

ALIKE = 0.9  # of the operators of a micro batch, but for sums of gradients, which the first one has none of
ADDS_UP = ("aten::add_", "aten::add")


def micro_batches(work: StepWork) -> int:
    """Return how many times a step goes ahead and back with the same operators; 1 where the turns differ."""
    back = work.operated(lambda operator: operator.phase == BACKWARD)
    rows = np.flatnonzero(_ahead_or_back(work))
    turns = np.flatnonzero(~back[rows] & np.r_[True, back[rows][:-1]])
    if len(turns) < 2 * work.steps or len(turns) % work.steps:
        return 1
    adds_up = _adds_up(work)
    counts = [np.bincount(work.operator[part[~adds_up[part]]], minlength=len(work.operators))
              for part in np.split(rows, turns[1:])]
    shared = np.minimum.reduce(counts).sum() / max(1, np.maximum.reduce(counts).sum())
    return len(turns) // work.steps if shared >= ALIKE else 1


def _ahead_or_back(work: StepWork) -> Flags:
    return work.operated(lambda operator: operator.phase in (FORWARD, NO_GRAD, BACKWARD))


def _adds_up(work: StepWork) -> Flags:
    return work.operated(lambda operator: operator.phase == BACKWARD and operator.name in ADDS_UP)


def _least_ns(work: StepWork, most: float) -> Reals:
    parts = min(most, work.once(micro_batches))
    if parts == 1:
        raise Absent("no step goes forward and backward more than once with the same operators")
    joined = np.where(_adds_up(work), 0.0, larger_batch(parts).least_ns(work))
    return np.where(_ahead_or_back(work), joined, own_time(work))


def _joined(work: StepWork, least: Reals, most: float) -> Response:
    """Return the step with each call of so many micro batches made once: the fixed part of a kernel is there once."""
    took, parts = own_time(work), min(most, work.once(micro_batches))
    fixed = np.minimum(took, FIXED_NS)
    at_once = fixed / parts + (took - fixed) / np.minimum(parts, room_for_more(work))
    turns = _ahead_or_back(work)
    return Response(np.where(turns, at_once, took), np.where(turns, 1 / parts, 1.0), whole_calls=True)


def joined_batches(most: float) -> Mechanism:
    """Return the change that puts so many micro batches into one, all of them if there are fewer."""
    return Mechanism("joined_batches", "Put micro batches into one batch", "D with what goes forward and backward as "
                     "of a larger batch, without what adds gradients up", partial(_least_ns, most=most),
                     respond=partial(_joined, most=most))


JOINED_BATCHES = joined_batches(math.inf)
ACTIONS = (Action(
    "join_micro_batches", "Put micro batches into one batch", of_targets("joined_batches"),
    "the same kernels run forward and backward several times before one update", "low",
    (Step("one backward() of all samples of an update, or of as many at once as memory holds", (PYTORCH, OWN_CODE)),),
    "launch_tax_pct", applies_if=(PYTORCH, TRAINING), memory="activations of all micro batches at once",
    mechanism="joined_batches"),)
