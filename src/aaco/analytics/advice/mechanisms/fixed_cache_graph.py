"""A cache of fixed size in place of one that grows by concatenation, and then one device graph for each step.

The sizes in a graph are fixed. With tensors of the longest length, written by index and read behind a mask, each step
is the same; what concatenates is gone, and the number that the host reads of a step, as the next word, can be read
later.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.mechanisms.graph import GRAPH
from aaco.analytics.advice.mechanisms.remove_syncs import REMOVE_SYNCS
from aaco.analytics.advice.mechanisms.whole_graph import at_most, refuse_results, waiting_for, without_waits
from aaco.analytics.advice.work import BACKWARD, HOST_COPIES, StepOperator, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

NAME, JOINS = "fixed_cache_graph", "aten::cat"


def _joins(operator: StepOperator) -> bool:
    return operator.outermost == JOINS and operator.phase != BACKWARD


def _least_ns(work: StepWork) -> Reals:
    joins = work.operated(_joins)
    if not joins.any():
        raise NothingToChange("nothing is concatenated in the steps")
    refuse_results(work)
    return np.where(joins | work.copies(*HOST_COPIES), 0.0, own_time(work))


def _replayed(work: StepWork, least: Reals) -> Response:
    """Return the step launched once, with as long for what writes into the cache as for what concatenates now."""
    return without_waits(work, np.where(work.copies(*HOST_COPIES), 0.0, own_time(work)))


FIXED_CACHE_GRAPH = Mechanism(NAME, "A cache of fixed size, and a graph of each step", "D without concatenations and "
                              "copies between host and device", _least_ns, respond=_replayed,
                              parts=(GRAPH.name, REMOVE_SYNCS.name))
ACTIONS = (Action(
    NAME, FIXED_CACHE_GRAPH.title, waiting_for(NAME),
    "the device waits for launches, in steps that a growing cache parts", "medium", (
        Step("keys and values written by index into tensors of the longest length, and read behind a mask "
             '(transformers: cache_implementation="static"); then torch.compile(mode="reduce-overhead") or '
             "torch.cuda.CUDAGraph of a step, the next word read after its launch", (PYTORCH, OWN_CODE)),),
    "launch_tax_pct", applies_if=(PYTORCH, fact_is("graph_capture", "growing")),
    already_done_if=(fact_is("device_graph", "replayed", "captured"),),
    memory="the cache of the longest text from the start, and the graph's own buffers", mechanism=NAME,
    at_most=at_most, or_confirm=("sync_limited_pct",)),)
