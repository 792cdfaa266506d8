"""Micro batches whose gradients a step adds up, put into one batch: each call is made once for all of them.

They show as the same operators ahead and back several times before one update, with nothing that works on the gradients
of each. What adds gradients up is gone. Of each sample nothing is sure to stay but arithmetic and bytes, as of a larger
batch.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from aaco.analytics.advice.achieved import room_for_more
from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.gradient_turns import adds_up, ahead_or_back, gradient_turns
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.larger_batch import larger_batch
from aaco.analytics.advice.responses import FIXED_NS
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent


def micro_batches(work: StepWork) -> int:
    """Return in how many turns a step adds gradients up that it could add up at once."""
    turns = work.once(gradient_turns)
    return 1 if turns.apart else turns.count


def _least_ns(work: StepWork, most: float) -> Reals:
    parts = min(most, micro_batches(work))
    if parts == 1:
        raise Absent("no step goes forward and backward more than once with the same operators")
    joined = np.where(adds_up(work), 0.0, larger_batch(parts).least_ns(work))
    return np.where(ahead_or_back(work), joined, own_time(work))


def _joined(work: StepWork, least: Reals, most: float) -> Response:
    """Return the step with each call of so many micro batches made once: the fixed part of a kernel is there once."""
    took, parts = own_time(work), min(most, micro_batches(work))
    fixed = np.minimum(took, FIXED_NS)
    at_once = fixed / parts + (took - fixed) / np.minimum(parts, room_for_more(work))
    turns = ahead_or_back(work)
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
