"""Kernels that took far longer than the same launch in other steps: another process had the device.

A device that processes share in time slices stops a running kernel and goes on with it after the others' slices. On an
H100 with one co-tenant a kernel of 0.37 ms then took 2.3 ms more, in one of six executions
(tests/captures/whole_programs). Steps that repeat show it: the same kernel, with the same grid, at the same place of
the step. No evidence are a place that takes longer in most steps, a step in which half of the kernels do (it had more
to do), and executions that follow each other at one distance (the program does more work each time). Fewer than FEWEST
executions in as many steps may be anything.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Flags, Ints

LONGER_NS = 1_000_000  # longer than usual; the slices of one co-tenant take 1.8 to 2.6 ms
LONGER = 1.5  # times the median of the same launch
ALIKE = 0.1  # around that median
FEWEST = 3
FEWEST_STEPS = 4  # a median of fewer is no usual time
MOST = 0.5  # of the executions at a place that are alike, of the kernels of a step that are longer
FEWEST_PLACES = 4  # of a step, to see whether all of it takes longer


class PreemptedKernels(Struct, frozen=True):
    """The kernels by id, sorted, and how long each usually takes, ns."""

    kernel_id: Ints
    usual_ns: Ints


NONE_PREEMPTED = PreemptedKernels(np.zeros(0, np.int64), np.zeros(0, np.int64))


def find(kernel_id: Ints, launch: Ints, length_ns: Ints, steps: int) -> PreemptedKernels:
    """Return the preempted kernels of a device, from all that it ran in `steps` steps, in start order.

    launch: a number for kernel name and grid. None are found where the steps do not run the same kernels.
    """
    if steps < FEWEST_STEPS or not len(kernel_id) or len(kernel_id) % steps:
        return NONE_PREEMPTED
    launches, lengths = launch.reshape(steps, -1), length_ns.reshape(steps, -1)
    if (launches != launches[0]).any():
        return NONE_PREEMPTED
    usual = np.median(lengths, axis=0).astype(np.int64)
    preempted = _longer(lengths, usual)
    if preempted.any(axis=1).sum() < FEWEST or len(np.unique(np.diff(np.flatnonzero(preempted)))) < 2:
        return NONE_PREEMPTED
    ids = kernel_id.reshape(steps, -1)[preempted]
    order = np.argsort(ids)
    return PreemptedKernels(ids[order], np.broadcast_to(usual, lengths.shape)[preempted][order])


def _longer(lengths: Ints, usual: Ints) -> Flags:
    """Return which executions (steps x places) took longer, where most of the others took the usual time."""
    longer = (lengths - usual >= LONGER_NS) & (lengths >= LONGER * usual)
    alike = (np.abs(lengths - usual) <= ALIKE * usual).mean(axis=0) >= MOST
    if lengths.shape[1] >= FEWEST_PLACES:
        longer &= longer.mean(axis=1, keepdims=True) <= MOST
    return longer & alike
