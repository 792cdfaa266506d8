"""One call for a list of tensors in place of a loop that updates them one by one: running means of weights, their
copies, clipped gradients. Their bytes stay, and the host still walks the list.

They show as updates in place that follow each other, with no more than arithmetic between, outside of gradients. Where
the optimizer itself is a loop over parameters they cannot be distinguished from it: that is fused_optimizer's matter.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import memory_roofs
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.responses import FIXED_NS, fusible_runs
from aaco.analytics.advice.work import (
    BACKWARD,
    CALL_NS,
    ENTRY_NS,
    FOR_LISTS,
    OPTIMIZER,
    TENSOR_OPERATOR,
    StepOperator,
    StepWork,
)
from aaco.core.advice import Step
from aaco.core.arrays import Ints32, Reals

LOOP = 8  # updates that follow each other; fewer are no loop
ARITHMETIC = frozenset(TENSOR_OPERATOR + name for name in ("mul", "add", "sub", "div", "lerp"))
UPDATES = frozenset(f"{name}_" for name in (*ARITHMETIC, TENSOR_OPERATOR + "copy"))
FUSED = "_fused_"  # of the name of an optimizer's operator that updates all parameters


def listed_updates(work: StepWork) -> Ints32:
    """Return of each row how many updates of tensors in place the list has that it is part of: LOOP and more that
    follow each other. 0 of other rows.
    """
    in_lists = any(operator.phase == OPTIMIZER and called and (FOR_LISTS in operator.name or FUSED in operator.name)
                   for operator, called in zip(work.operators, work.operator_calls.tolist(), strict=False))

    def updates(operator: StepOperator) -> bool:
        return operator.phase != BACKWARD and (in_lists or operator.phase != OPTIMIZER)

    written = work.operated(lambda operator: operator.outermost in UPDATES and updates(operator)) | work.copies("d2d")
    computed = work.operated(lambda operator: operator.outermost in ARITHMETIC and updates(operator))
    rows, run = fusible_runs(work, written | computed)
    updated = np.zeros(len(work.ns), np.int32)  # kept for other kinds of change
    updated[rows] = np.bincount(run, written[rows])[run] if len(rows) else 0
    updated[updated < LOOP] = 0
    return updated


def _least_ns(work: StepWork) -> Reals:
    listed = work.once(listed_updates) > 0
    if not listed.any():
        raise NothingToChange(f"no {LOOP} tensors and more are updated one after another")
    return memory_roofs(work, listed)


def _at_once(work: StepWork, least: Reals) -> Response:
    """Return the step with the updates of each list in one call, for which the host walks the list."""
    updates, own = work.once(listed_updates), work.sure_ns
    left, listed = 1 / np.maximum(1, updates), updates > 0
    fixed = np.minimum(own, FIXED_NS)
    walked = ENTRY_NS / CALL_NS * float(work.call_shares[listed].sum()) / work.steps
    return Response(np.where(listed, own - fixed + fixed * left, own), left, more_calls=walked)


LIST_UPDATES = Mechanism("list_updates", "Update a list of tensors in one call", "D with updates of tensors one by one "
                         "at the time that their bytes need", _least_ns, respond=_at_once)
ACTIONS = (Action(
    "update_lists", "Update lists of tensors in one call", of_targets("list_updates"),
    "small kernels update one tensor after another", "low",
    (Step("running means of weights: torch._foreach_lerp_(means, weights, 1 - decay), or "
          "torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay); copies: torch._foreach_copy_; "
          "gradients: torch._foreach_mul_", (PYTORCH, OWN_CODE)),),
    "kernels_per_step", applies_if=(PYTORCH,), mechanism="list_updates"),)
