"""Page-locked memory at the host's side of copies: pageable copies at the rate of the link.

Of those copies D has no more in it than that, for the host feeds them: what is left is D itself.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import AMD, NO_FRAMEWORK, NVIDIA, ORT, OWN_CODE, PYTORCH, Action, Values
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import unchanged
from aaco.analytics.advice.work import HOST_COPIES, WAKE_UP_NS, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent


def _pageable(work: StepWork) -> Flags:
    return work.named(lambda name: name.copy in HOST_COPIES and name.pinned is False)


def _least_ns(work: StepWork) -> Reals:
    if not _pageable(work).any():
        raise Absent("no copy is from or to pageable memory")
    if work.limits.link_bytes_per_s is None:
        raise Absent("the rate of the link to the host is not known")
    return own_time(work)


def _pinned(work: StepWork, least: Reals) -> Response:
    """Return the step if the host does not copy from pageable memory itself, as long as it was traced to."""
    return unchanged(work, float(work.ns[_pageable(work)].sum()) / work.steps)


def _waits_ns(work: StepWork) -> float | None:
    """Return what waking up takes. What else the host takes shrinks, too, where it works on many bytes that it read:
    memory that is page-locked once is not asked for in each step.
    """
    if (work.pageable_copies & work.copies("d2h")).any():
        return None
    return WAKE_UP_NS * float(np.count_nonzero(_pageable(work)))


PINNED_COPIES = Mechanism("pinned_copies", "Page-lock the host's memory", "D: pageable copies at their bytes / link",
                          _least_ns, _pageable, respond=_pinned, waits_ns=_waits_ns)


def _pageable_share(values: Values) -> float:
    """Return the part of the time for copies that pageable ones have, by their bytes."""
    return values["transfer_limited_pct"] * values["pageable_copy_pct"] / 100


ACTIONS = (Action(
    "pin_memory", "Page-lock the host's memory", _pageable_share,
    "the step waits for copies from or to pageable memory", "low", (
        Step("DataLoader(pin_memory=True)", (fact_is("data_loader", "single_process", "workers"),)),
        Step("tensor.pin_memory(), .to(device, non_blocking=True)", (PYTORCH, OWN_CODE)),
        Step("ONNX Runtime: session.io_binding() with inputs that lie on the device", (ORT,)),
        Step("OrtValue.ortvalue_from_numpy(x, 'cuda', 0)", (ORT, NVIDIA)),
        Step("hipHostMalloc for the host's side", (AMD, NO_FRAMEWORK)),
        Step("cudaMallocHost for the host's side", (NVIDIA, NO_FRAMEWORK))),
    "pageable_copy_pct", already_done_if=(fact_is("copies", "pinned", "none"),),
    memory="the host cannot swap out what is page-locked", mechanism="pinned_copies"),)
