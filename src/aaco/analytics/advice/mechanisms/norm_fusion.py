"""Norms that are written out of several operators, in one kernel each: at best nothing of them is left.

A norm is part of a run of kernels that only pass over memory: one that holds an operator which norms are written of. A
way back holds none of those, and there all such kernels may be a norm's.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import fusible, own_time, without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import fusible_runs, in_one_pass
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.analytics.costs.torch.norms import NORM_BY_ROOT, NORM_OPERATORS
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals

ROOTS = ("aten::rsqrt", "aten::sqrt")
# Of a block of 512 threads that adds up a row: 4.5e9 to 9.5e9 in five traces of an H100 and an H200.
BLOCK_BYTES_PER_S = 6.5e9


def _of_norms(work: StepWork) -> Flags:
    """Return which rows written-out norms may take."""
    passes = fusible(work)
    if work.of_phase(BACKWARD).any():
        return passes
    return _with_signs(work, passes)


def _with_signs(work: StepWork, passes: Flags) -> Flags:
    """Return the rows of runs of these passes that hold an operator which norms are written of, or all of several."""
    sure, *parts = (_named(work, names) for names in (NORM_OPERATORS, *((name,) for name in NORM_BY_ROOT)))
    taken = np.zeros(len(passes), bool)
    if not sure.any() and not all(part.any() for part in parts):
        return taken
    rows, run = fusible_runs(work, passes)
    of_sure, *of_parts = ((np.bincount(run, signs[rows]) > 0)[run] for signs in (sure, *parts))
    taken[rows] = of_sure | np.logical_and.reduce(of_parts)
    return taken


def _named(work: StepWork, names: tuple[str, ...]) -> Flags:
    return work.operated(lambda operator: operator.name in names)


def _fused(work: StepWork, least: Reals) -> Response:
    """Return the step with its norms in one pass each. On the way back norms have the part of the passes that they have
    ahead, and no part of the update.
    """
    back = work.of_phase(BACKWARD) & fusible(work)
    ahead = fusible(work) & ~work.of_phase(BACKWARD, OPTIMIZER)
    norms = _with_signs(work, ahead)
    fused = in_one_pass(work, norms)
    by_blocks = replace(fused, device_ns=np.maximum(fused.device_ns, _moments_ns(work, norms, fused.left > 0)))
    if not back.any():
        return by_blocks
    own, whole = own_time(work), in_one_pass(work, back)
    share = own[norms].sum() / max(1.0, own[ahead].sum())
    return replace(by_blocks, device_ns=np.where(back, own - share * (own - whole.device_ns), by_blocks.device_ns),
                   left=np.where(back, 1 - share * (1 - whole.left), by_blocks.left))


def _moments_ns(work: StepWork, norms: Flags, kept: Flags) -> Reals:
    """Return how long the kernel of each norm reads, ns, at the row of its run that is kept; 0 where that is not known.

    Each mean and variance is a block's (ATen, group_norm_kernel.cu: RowwiseMoments), and few blocks read slowly. A pass
    reads the tensor of the norm and writes it.
    """
    results = np.array([*map(_results, work.operators), math.inf])[work.operator]
    reads = np.array([*((operator.bytes or 0.0) / 2 for operator in work.operators), 0.0])[work.operator]
    moments_ns, (rows, run) = np.zeros(len(norms)), fusible_runs(work, norms)
    if len(rows):
        fewest = np.minimum.reduceat(results[rows], np.flatnonzero(np.diff(run, prepend=-1)))[run]
        moments_ns[rows] = np.where(kept[rows], 1e9 * reads[rows] / (BLOCK_BYTES_PER_S * fewest), 0.0)
    return moments_ns


def _results(operator: StepOperator) -> float:
    """Return of how many variances an operator takes the root; inf of other operators, and where it is not known."""
    shapes = operator.shapes if operator.name in ROOTS else ()
    return float(math.prod(shapes[0])) if shapes and shapes[0] else math.inf


NORM_FUSION = Mechanism("norm_fusion", "Fuse norms that are written out", "D - runs of memory passes that hold a norm",
                        lambda work: without(work, _of_norms(work)), respond=_fused)
ACTIONS = (Action(
    "fuse_norms", "Fuse norms that are written out", of_targets("norm_fusion"),
    "kernels compute norms that are written out", "low",
    (Step("F.layer_norm, F.group_norm or F.rms_norm in place of their formulas", (PYTORCH, OWN_CODE)),),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("norms", "written_out")),
    already_done_if=(fact_is("norms", "fused"),), accuracy="sums in another order: last digits differ",
    mechanism="norm_fusion"),)
