"""Indices in order: reads that follow each other share lines of the caches. The kernel stays, and launching its blocks.

How many bytes must be read depends on how many indices are the same, so there is a floor only where most reads are
gathers of rows, with a block for each.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import Action, of_metric
from aaco.analytics.advice.least import MOST_UNKNOWN, block_ns, own_time, row_gathers
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import kept_at_least
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent


def _least_ns(work: StepWork) -> Reals:
    reads = work.of_families("embedding")
    if not reads.any():
        raise Absent("nothing reads or writes by index")
    if work.ns[reads & ~row_gathers(work)].sum() > MOST_UNKNOWN * work.ns.sum():
        raise Absent("how many bytes the kernels that read by index need is not known")
    return np.where(reads, block_ns(work, work.blocks), own_time(work))


SORTED_READS = Mechanism("sorted_reads", "Sort the indices", "D with reads by index at the time that launching their "
                         "blocks takes", _least_ns, respond=kept_at_least, host_stays=True)
ACTIONS = (Action(
    "more_in_flight", "Give the device more independent reads at once", of_metric("memory_latency_limited_pct"),
    "kernels are bound by memory latency", "high",
    (Step("larger batches, several queries per launch, more blocks; sort indices"),),
    "memory_latency_limited_pct", mechanism="sorted_reads"),)
