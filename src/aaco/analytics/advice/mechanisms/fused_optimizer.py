"""One kernel for the update of all parameters: at best it reads each with its gradient and writes it, once.

The host saves the calls of a loop over parameters. Calls for lists of them it saves for another that walks the same
lists.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import without_phase
from aaco.analytics.advice.work import FOR_LISTS, OPTIMIZER, StepOperator, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

LEAST_BYTES = 3 * 2  # of an element that is read with its gradient and written, of 16 bits: the profiler names no type


def _least_ns(work: StepWork) -> Reals:
    """Return the step with one pass over the longest list of parameters; loops do not say how many there are in all."""
    left = without(work, work.of_phase(OPTIMIZER))
    elements = [_elements(operator) if called else 0
                for operator, called in zip(work.operators, work.operator_calls.tolist(), strict=False)]
    longest = max(range(len(elements)), key=elements.__getitem__, default=0)
    if elements and elements[longest]:
        rows = work.operator == longest
        left[rows] = work.limits.memory_ns(LEAST_BYTES * elements[longest]) * work.steps / rows.sum()
    return left


def _elements(operator: StepOperator) -> int:
    """Return how many elements the list has that an operator of the optimizer updates; 0 where it says nothing of it.
    """
    taken = operator.arguments
    if operator.phase != OPTIMIZER or taken is None or taken.types[:1] != ["TensorList"]:
        return 0
    return sum(math.prod(shape) for shape in taken.shapes[0] if isinstance(shape, list))


def _fused(work: StepWork, least: Reals) -> Response:
    """Return the step with one pass over the parameters in place of several: the longest of them, by names."""
    response = without_phase(OPTIMIZER)(work, least)
    updates = work.of_phase(OPTIMIZER)
    if updates.any():
        named = work.operator_name[updates]
        longest = updates & (work.operator_name == np.bincount(named, weights=work.sure_ns[updates]).argmax())
        response = replace(response, device_ns=np.where(longest, work.sure_ns, response.device_ns))
    walks_lists = work.operated(lambda operator: operator.phase == OPTIMIZER and FOR_LISTS in operator.name)
    return replace(response, left=np.where(walks_lists, 1.0, response.left))


def _silent_calls(work: StepWork) -> float:
    """Return how often the optimizer reads what the host has, as the number of steps of each parameter."""
    calls = zip(work.operators, work.operator_calls.tolist(), strict=False)
    return sum(1 / operator.kernels for operator, launching in calls
               if not launching and operator.phase == OPTIMIZER and operator.name == operator.outermost)


FUSED_OPTIMIZER = Mechanism("fused_optimizer", "Update all parameters in one kernel",
                            "D - kernels of the optimizer + a pass over its longest list", _least_ns, respond=_fused,
                            host_stays=True, silent_calls=_silent_calls)
ACTIONS = (Action(
    "fuse_optimizer", "Update all weights in one kernel", of_targets("fused_optimizer"),
    "kernels of the optimizer run", "low", (Step("fused=True for the optimizer", (PYTORCH, OWN_CODE)),),
    "kernels_per_step", applies_if=(PYTORCH, fact_is("optimizer", "loop", "foreach")),
    already_done_if=(fact_is("optimizer", "fused"),), mechanism="fused_optimizer"),)
