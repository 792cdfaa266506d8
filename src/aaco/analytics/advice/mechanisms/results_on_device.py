"""What the host computes of a step's results, done on the device before they are copied: what is copied then is small.

A trace has no sizes of operators that launch nothing. That they work on the results is likely where more bytes come
from the device than go to it, and as many as such operators pass over in their time; a product takes longer.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import ACTS_ON, COMPUTES, NOT_SERVING, OWN_CODE, PYTORCH, Action, Values
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals

PARTS = ("results_on_device", "remove_syncs")  # with the results the waits for each of them go
SLOWEST_BYTES_PER_NS = 0.1  # of an operator on the host: of 25 MB the slowest recorded one took 47 ms (labels_on_host)


def computes_on_results(work: StepWork) -> bool:
    """Return whether it is likely that the host computes on what it reads of the device."""
    results, inputs = (float(work.copied[rows].sum()) for rows in (work.result_reads, work.copies("h2d")))
    return work.on_host_ns > 0 and results > max(
        inputs, SLOWEST_BYTES_PER_NS * (work.on_host_ns - work.host_products_ns))


def _least_ns(work: StepWork) -> Reals:
    if not computes_on_results(work):
        raise NothingToChange("the host computes nothing of the results that it reads")
    return without(work, work.result_reads)


def _computed(work: StepWork, least: Reals) -> Response:
    """Return the step without the copies of results, and without the host's operators on them."""
    waits_ns = float(work.ns[work.result_reads].sum()) + work.on_host_ns
    return Response(least, np.ones(len(least)), waits_ns / work.steps)


def _of_results(values: Values) -> float:
    """Return the share of the copies of results and of the host's operators on them."""
    return values[ACTS_ON + "results_on_device"] + values.get(COMPUTES, 0.0)


RESULTS_ON_DEVICE = Mechanism("results_on_device", "Compute on the device what the host computes of results",
                              "D - copies of results", _least_ns, respond=_computed, shown=computes_on_results,
                              parts=PARTS)
ACTIONS = (Action(
    "compute_results_on_device", "Compute on the device what the host computes of results",
    _of_results, "the device copies results that the host then computes on", "low",
    (Step("before .cpu() what follows it (softmax, argmax, sums, rounding), then copy only what is left",
          (PYTORCH, OWN_CODE)),
     Step("copy in the narrowest type that holds the result: uint8 of pictures, int32 of places", (PYTORCH, OWN_CODE))),
    "transfer_limited_pct", applies_if=(PYTORCH, NOT_SERVING), mechanism="results_on_device",
    or_confirm=("host_pause_pct", "sync_limited_pct")),)
