"""Indices in order: neighbours share lines of the caches. The kernel and its blocks stay, so launching them does."""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import block_ns, own_time
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals
from aaco.core.readings import Absent


def _least_ns(work: StepWork) -> Reals:
    reads = work.of_families("embedding")
    if not reads.any():
        raise Absent("nothing reads or writes by index")
    return np.where(reads, block_ns(work, work.blocks), own_time(work))


SORTED_READS = Mechanism("sorted_reads", "Sort the indices", "D with reads by index at the time that launching their "
                         "blocks takes", _least_ns)
