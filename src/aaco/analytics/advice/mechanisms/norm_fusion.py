"""Norms that are written out of several operators, in one kernel each: at best nothing of them is left.

A norm is part of a run of kernels that only pass over memory: one that holds an operator which norms are written of. A
way back holds none of those, and there all such kernels may be a norm's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import fusible, own_time, without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import fusible_runs, in_one_pass
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepWork
from aaco.analytics.workload.program import NORM_OPERATORS
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals


def _of_norms(work: StepWork) -> Flags:
    """Return which rows written-out norms may take."""
    passes = fusible(work)
    if work.operated(lambda operator: operator.phase == BACKWARD).any():
        return passes
    return _with_signs(work, passes)


def _with_signs(work: StepWork, passes: Flags) -> Flags:
    """Return the rows of runs of these passes that hold an operator which norms are written of."""
    signs, taken = work.operated(lambda operator: operator.name in NORM_OPERATORS), np.zeros(len(passes), bool)
    rows, run = fusible_runs(work, passes)
    taken[rows] = (np.bincount(run, signs[rows]) > 0)[run]
    return taken


def _least_ns(work: StepWork) -> Reals:
    return without(work, _of_norms(work))


def _fused(work: StepWork, least: Reals) -> Response:
    """Return the step with its norms in one pass each. On the way back norms have the part of the passes that they have
    ahead, and no part of the update.
    """
    back = work.operated(lambda operator: operator.phase == BACKWARD) & fusible(work)
    ahead = fusible(work) & ~work.operated(lambda operator: operator.phase in (BACKWARD, OPTIMIZER))
    norms = _with_signs(work, ahead)
    fused = in_one_pass(work, norms)
    if not back.any():
        return fused
    own, whole = own_time(work), in_one_pass(work, back)
    share = own[norms].sum() / max(1.0, own[ahead].sum())
    return replace(fused, device_ns=np.where(back, own - share * (own - whole.device_ns), fused.device_ns),
                   left=np.where(back, 1 - share * (1 - whole.left), fused.left))


NORM_FUSION = Mechanism("norm_fusion", "Fuse norms that are written out", "D - runs of memory passes that hold a norm",
                        _least_ns, respond=_fused)
ACTIONS = (Action(
    "fuse_norms", "Fuse norms that are written out", of_targets("norm_fusion"),
    "kernels compute norms that are written out", "low",
    (Step("F.layer_norm, F.group_norm or F.rms_norm in place of their formulas", (PYTORCH, OWN_CODE)),),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("norms", "written_out")),
    already_done_if=(fact_is("norms", "fused"),), accuracy="sums in another order: last digits differ",
    mechanism="norm_fusion"),)
