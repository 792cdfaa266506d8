"""Indices in order: reads that follow each other share lines of the caches. The kernel stays, and launching its blocks.

How many bytes must be read depends on how many indices are the same, and what a gather makes is written. Of what is
added up at places, values may be one number expanded, or places a row of them; not both. Which of the other bytes the
caches hold then is not known, so something is expected only of gathers of rows with a block for each.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import ACTS_ON, OWN_CODE, Action, Values
from aaco.analytics.advice.least import MOST_UNKNOWN, block_ns, made_bytes, own_time, row_gathers
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import kept_at_least
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.analytics.costs.torch import call
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

ADDS = ("_add", "backward")  # of the names of operators that add values up at places


def _sure_bytes(operator: StepOperator) -> float:
    """Return the bytes that a call surely moves; 0 if that is not known."""
    formed = call(operator.name, operator.arguments)
    if formed is None or not any(word in operator.name for word in ADDS):
        return made_bytes(operator)
    return float(min((tensor.bytes or 0 for tensor in formed.inputs[:2] if tensor), default=0))


def _reads(work: StepWork) -> Flags:
    reads = work.of_families("embedding")
    if not reads.any():
        raise Absent("nothing reads or writes by index")
    return reads


def _least_ns(work: StepWork) -> Reals:
    reads = _reads(work)
    moved = work.of_calls_ns(reads, lambda operator: work.limits.memory_ns(_sure_bytes(operator)))
    known = row_gathers(work) | (moved > 0)
    if work.ns[reads & ~known].sum() > MOST_UNKNOWN * work.ns.sum():
        raise Absent("how many bytes the kernels that read by index need is not known")
    launched = np.where(row_gathers(work), block_ns(work, work.blocks), 0.0)
    return np.where(reads, np.maximum(launched, np.minimum(moved, own_time(work))), own_time(work))


def _sorted(work: StepWork, least: Reals) -> Response:
    """Return the step with gathers of rows at the time of their blocks. Raise Absent where most reads are others."""
    if work.ns[_reads(work) & ~row_gathers(work)].sum() > MOST_UNKNOWN * work.ns.sum():
        raise Absent("how many lines of memory the reads by index need in another order is not known")
    return kept_at_least(work, least)


SORTED_READS = Mechanism("sorted_reads", "Sort the indices", "D with reads by index at the time that launching their "
                         "blocks takes, or what they surely move", _least_ns, respond=_sorted, host_stays=True)


def _waiting_for_lines(values: Values) -> float:
    """Return the time of reads by index, no more than memory latency limits. KeyError where nothing reads by index."""
    return min(values[ACTS_ON + "sorted_reads"], values["memory_latency_limited_pct"])


ACTIONS = (Action(
    "sort_indices", "Sort the indices", _waiting_for_lines, "kernels that read by index are bound by memory latency",
    "medium", (Step("indices in the order of the rows that they name, sorted once before the steps", (OWN_CODE,)),),
    "memory_latency_limited_pct", mechanism="sorted_reads"),)
