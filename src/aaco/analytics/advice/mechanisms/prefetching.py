"""Inputs of the next step are copied while this one computes: copies from the host run during the kernels.

They share the link, so that a step takes at least as long as their bytes need on it.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import ORT, PYTORCH, Action, of_metric
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent


def _from_host(work: StepWork) -> Flags:
    return work.copies("h2d")


def _least_ns(work: StepWork) -> Reals:
    copies, link = _from_host(work), work.limits.link_bytes_per_s
    if not copies.any():
        raise Absent("nothing is copied from the host")
    return np.where(copies, 1e9 * work.copied / link if link else 0.0, own_time(work))


PREFETCHING = Mechanism("prefetching", "Copy the next step's inputs while this one computes",
                        "the longer of D without copies from the host and their bytes / link", _least_ns,
                        beside=_from_host)
ACTIONS = (Action(
    "overlap_transfers", "Copy while computing", of_metric("transfer_limited_pct"), "the step waits for copies",
    "medium", (
        Step("a copy stream of its own, the next batch during this step"),
        Step("non_blocking=True", (PYTORCH,)),
        Step("ONNX Runtime: fill the OrtValue of the next inference during this one, and bind outputs on the device "
             "(io_binding)", (ORT,))),
    "transfer_limited_pct", memory="the inputs of two steps on the device", mechanism="prefetching"),)
