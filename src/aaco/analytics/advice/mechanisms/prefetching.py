"""Inputs of the next step are made and copied while this one computes: copies from the host run during the kernels.

They share the link, so that a step takes at least as long as their bytes need on it. Where inputs come from the host,
its own work makes them, and goes to other processes with them, unless it may need what was read back of this step. So
many processes make as many batches at once, each in the time that the host took for one.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import ACTS_ON, NOT_SERVING, ORT, OWN_CODE, PYTORCH, Action, Values, of_own_work
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.responses import unchanged
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals

LOADERS = 4  # other processes that make batches


def _from_host(work: StepWork) -> Flags:
    return work.copies("h2d")


def _least_ns(work: StepWork) -> Reals:
    copies, link = _from_host(work), work.limits.link_bytes_per_s
    if not copies.any():
        raise NothingToChange("nothing is copied from the host")
    return np.where(copies, 1e9 * work.copied / link if link else 0.0, own_time(work))


def _ahead(work: StepWork, least: Reals) -> Response:
    """Return the step without its copies from the host, which run during it, and without its work on inputs."""
    copied = _from_host(work)
    stays = unchanged(work, float(work.ns[copied].sum()) / work.steps)
    hands_over = not work.result_reads.any()
    return replace(stays, device_ns=np.where(copied, 0.0, stays.device_ns), hands_over=hands_over,
                   loaders=LOADERS * hands_over)


def _loading(values: Values) -> float:
    """Return the time of copies, and of the host's own work where the step has inputs from the host."""
    making = of_own_work(values) if values.get(ACTS_ON + "prefetching") and "host_pause_pct" in values else 0.0
    return min(100.0, values["transfer_limited_pct"] + making)


PREFETCHING = Mechanism("prefetching", "Make and copy the next step's inputs while this one computes",
                        "the longer of D without copies from the host and their bytes / link", _least_ns,
                        beside=_from_host, respond=_ahead)
ACTIONS = (Action(
    "overlap_transfers", "Load and copy the next inputs while computing", _loading,
    "the step waits for its inputs", "medium", (
        Step("a copy stream of its own, the next batch during this step", (OWN_CODE,)),
        Step(f"DataLoader(num_workers={LOADERS})", (fact_is("data_loader", "single_process"), NOT_SERVING)),
        Step("other processes that make the next batches: threads of one Python program take turns",
             (PYTORCH, OWN_CODE, NOT_SERVING)),
        Step("non_blocking=True", (PYTORCH, OWN_CODE)),
        Step("ONNX Runtime: fill the OrtValue of the next inference during this one, and bind outputs on the device "
             "(io_binding)", (ORT,))),
    "transfer_limited_pct", memory="the inputs of two steps on the device", mechanism="prefetching",
    at_most=_loading, or_confirm=("host_pause_pct",)),)
