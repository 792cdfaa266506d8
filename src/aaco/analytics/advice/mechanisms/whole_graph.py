"""One device graph of a whole step: the host's waits in it are gone, and its inputs are at fixed places on the device.

A capture holds no wait, so a step that waits now and then has its waits taken out first. A single number that is read,
as a loss, can be read later; where more is read, the host works on results, and the next launches may need that work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import ACTS_ON, NVIDIA, OWN_CODE, PYTORCH, Action, Values, of_launches
from aaco.analytics.advice.floor import device_chain_ns
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.graph import GRAPH, replayed
from aaco.analytics.advice.mechanisms.inputs_on_device import INPUTS_ON_DEVICE
from aaco.analytics.advice.mechanisms.remove_syncs import INDICES_FOR_MASKS, REMOVE_SYNCS
from aaco.analytics.advice.work import HOST_COPIES, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

LEAST_WAITS = 2  # in a step: a graph can end where the host waits once
PARTS = (GRAPH.name, REMOVE_SYNCS.name, INPUTS_ON_DEVICE.name)


def refuse_results(work: StepWork) -> None:
    """Raise Absent where the host reads more than single numbers within a step."""
    if np.count_nonzero(work.result_reads) > work.steps:
        raise Absent("the host reads more than single numbers within a step, and may need them for what it launches "
                     "next")


def _waits(work: StepWork) -> float:
    """Return how often the host waits for the device in a step, each read at least once."""
    refuse_results(work)
    return max(work.syncs or 0, int(np.count_nonzero(work.copies("d2h")))) / work.steps


def _least_ns(work: StepWork) -> Reals:
    if _waits(work) < LEAST_WAITS:
        raise Absent("the host does not wait within the steps")
    return np.where(work.copies(*HOST_COPIES) & ~work.result_reads, 0.0, own_time(work))


def without_waits(work: StepWork, device_ns: Reals) -> Response:
    """Return the step launched once, with these times of its rows, and no wait of the host in it."""
    return replace(replayed(work, device_ns), device_ns=device_ns, waits_ns=device_chain_ns(work))


def waiting_for(mechanism: str) -> Callable[[Values], float]:
    """Return a share: the time that the device waits for the host; only a step without a profiler shows it. It raises
    KeyError where no such graph is possible.
    """
    def waiting(values: Values) -> float:
        if ACTS_ON + mechanism not in values:
            raise KeyError(mechanism)
        return min(values[ACTS_ON + GRAPH.name], at_most(values))
    return waiting


def at_most(values: Values) -> float:
    """Return the time of launches and waits, where the host's own work takes longer than its launches."""
    launches = of_launches(values)
    return min(100.0, launches + values.get("sync_limited_pct", 0.0))


WHOLE_GRAPH = Mechanism("whole_graph", "One graph of the whole step, without waits in it",
                        "D without copies between host and device", _least_ns, respond=without_waits, parts=PARTS)
ACTIONS = (Action(
    "whole_graph", "One graph of the whole step, without waits in it", waiting_for("whole_graph"),
    "the device waits for launches and for reads between them", "medium", (
        Step("torch.cuda.CUDAGraph of the step: inputs copied to fixed tensors, no .item() in it, conditions by "
             "torch.where, results read at its end", (PYTORCH, OWN_CODE)),
        INDICES_FOR_MASKS),
    "launch_tax_pct", applies_if=(NVIDIA, PYTORCH, fact_is("host_waits", "waits"),
                                  fact_is("graph_capture", "possible", "too_short", "nowhere")),
    already_done_if=(fact_is("device_graph", "replayed", "captured"),),
    memory="a graph keeps its own buffers, for each shape", mechanism="whole_graph", at_most=at_most,
    or_confirm=("sync_limited_pct",)),)
