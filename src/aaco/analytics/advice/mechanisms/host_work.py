"""Work of the host that leaves the step: less of it, or other processes do it. The device's kernels stay.

Work that moves to the device makes the step's kernels longer, never shorter. But what the host made wide of narrow
numbers may be copied as it was, in an eighth of the bytes: bytes in place of whole numbers of 64 bits.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import NO_PYTHON, NOT_SERVING, NVIDIA, OWN_CODE, PYTORCH, Action, Values, of_own_work
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import unchanged
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

NARROWEST = 1 / 8  # of the bytes of a number


def _least_ns(work: StepWork) -> Reals:
    own = own_time(work)
    return np.where(work.copies("h2d"), NARROWEST * own, own)


HOST_WORK = Mechanism("host_work", "Take the host's own work out of the step", "D, with copies from the host at an "
                      "eighth of their bytes", _least_ns, named=lambda work: np.zeros(len(work.ns), bool),
                      respond=lambda work, least: replace(unchanged(work), hands_over=True))


def _allocating(values: Values) -> float:
    return min(values["host_pause_pct"], values["allocation_call_pct"])


ACTIONS = (
    Action("move_host_work", "Take the host's own work out of the step", of_own_work,
           "the device waits for the host's own work", "medium", (
               Step("DataLoader(num_workers=4, prefetch_factor=4)",
                    (fact_is("data_loader", "single_process"), NOT_SERVING)),
               Step("more workers of the DataLoader, or a larger prefetch_factor",
                    (fact_is("data_loader", "workers"), NOT_SERVING)),
               Step("py-spy record -p PID finds it in a Python program", (
                   fact_is("framework", "pytorch", "jax", "tensorflow", "vllm", "sglang", "onnxruntime"),)),
               Step("perf record -g -p PID finds it", (NO_PYTHON,))), "host_pause_pct", mechanism="host_work",
           at_most=of_own_work),
    Action("keep_memory", "Keep device memory instead of asking for it in each step", _allocating,
           "the device waits for calls that allocate memory", "low", (
               Step("no torch.cuda.empty_cache() in the loop", (PYTORCH, OWN_CODE)),
               Step("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", (PYTORCH, NVIDIA)),
               Step("preallocate, and reuse what was allocated", (OWN_CODE,))), "allocation_call_pct",
           memory="what is kept is not free for other programs", mechanism="host_work", at_most=_allocating))
