"""A cache of fixed size in place of one that grows by concatenation, and then one device graph for each step.

The sizes in a graph are fixed. With tensors of the longest length, written by index and read behind a mask, each step
is the same; what concatenates is gone, and the number that the host reads of a step, as the next word, can be read
later.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aaco.analytics.advice.action import ACTS_ON, OWN_CODE, PYTORCH, Action, Values, of_launches
from aaco.analytics.advice.floor import device_chain_ns
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.mechanisms.graph import GRAPH, replayed
from aaco.analytics.advice.mechanisms.remove_syncs import REMOVE_SYNCS
from aaco.analytics.advice.work import BACKWARD, HOST_COPIES, StepOperator, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

NAME, JOINS = "fixed_cache_graph", "aten::cat"


def _joins(operator: StepOperator) -> bool:
    return operator.outermost == JOINS and operator.phase != BACKWARD


def _least_ns(work: StepWork) -> Reals:
    joins = work.operated(_joins)
    if not joins.any():
        raise NothingToChange("nothing is concatenated in the steps")
    if np.count_nonzero(work.result_reads) > work.steps:
        raise Absent("the host reads more than single numbers within a step, and may need them for what it launches "
                     "next")
    return np.where(joins | work.copies(*HOST_COPIES), 0.0, own_time(work))


def _replayed(work: StepWork, least: Reals) -> Response:
    """Return the step launched once, with as long for what writes into the cache as for what concatenates now."""
    device = np.where(work.copies(*HOST_COPIES), 0.0, own_time(work))
    return replace(replayed(work, least), device_ns=device, waits_ns=device_chain_ns(work))


def _waiting(values: Values) -> float:
    """Return the time that the device waits for the host. KeyError where no such graph is possible."""
    if ACTS_ON + NAME not in values:
        raise KeyError(NAME)
    return min(values[ACTS_ON + GRAPH.name], _at_most(values))


def _at_most(values: Values) -> float:
    return min(100.0, of_launches(values) + values.get("sync_limited_pct", 0.0))


FIXED_CACHE_GRAPH = Mechanism(NAME, "A cache of fixed size, and a graph of each step", "D without concatenations and "
                              "copies between host and device", _least_ns, respond=_replayed,
                              parts=(GRAPH.name, REMOVE_SYNCS.name))
ACTIONS = (Action(
    NAME, FIXED_CACHE_GRAPH.title, _waiting, "the device waits for launches, in steps that a growing cache parts",
    "medium", (
        Step("keys and values written by index into tensors of the longest length, and read behind a mask "
             '(transformers: cache_implementation="static"); then torch.compile(mode="reduce-overhead") or '
             "torch.cuda.CUDAGraph of a step, the next word read after its launch", (PYTORCH, OWN_CODE)),),
    "launch_tax_pct", applies_if=(PYTORCH, fact_is("graph_capture", "growing")),
    already_done_if=(fact_is("device_graph", "replayed", "captured"),),
    memory="the cache of the longest text from the start, and the graph's own buffers", mechanism=NAME,
    at_most=_at_most, or_confirm=("sync_limited_pct",)),)
