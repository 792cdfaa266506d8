"""Waits of the host taken out: the device works on, and its kernels stay.

A change that also regroups the kernels (a loop over experts that becomes one product) is two mechanisms. Where the host
reads how many rows a mask chooses, it cannot go on without: masks in place of choices are more work, for all rows.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import (
    ACTS_ON,
    AMD,
    NO_FRAMEWORK,
    NVIDIA,
    ORT,
    OWN_CODE,
    PYTORCH,
    Action,
    Values,
    of_metric,
)
from aaco.analytics.advice.floor import device_chain_ns
from aaco.analytics.advice.least import fusible, own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import unchanged
from aaco.analytics.advice.turn_flow import MASKED
from aaco.analytics.advice.work import CALL_NS, WAKE_UP_NS, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Ints, Reals

USUAL_WAKE_UP_NS = 30_000.0  # of those that were timed; floors take the longest
MOST_PASSES = 3  # before a read: of a test of all values and its sum over them


def _unwatched(work: StepWork, least: Reals) -> Response:
    """Return the step of a host that waits no longer: it works while the device does."""
    return unchanged(work, _waited_ns(work))


def _waited_ns(work: StepWork) -> float:
    """Return how long the host usually waits for the device in a step, ns: at most D, and D where it does not only
    wait for copies from the device, and at the end of a step.

    From one read to the next the device begins each row once it is launched and all before it are done. At the read
    the host waits for what is left of that, and wakes up. Where it also waits for copies to the device, and as often,
    it waits there instead once it reads no longer.
    """
    reads = work.copies("d2h")
    if _waits_for_copies(work):
        return min(USUAL_WAKE_UP_NS * float(np.count_nonzero(reads)) / work.steps, device_chain_ns(work))
    if not reads.any() or (work.syncs or 0.0) > np.count_nonzero(reads) + work.steps:
        return device_chain_ns(work)
    launched, done = np.cumsum(np.minimum(work.calls_ns, CALL_NS)), np.cumsum(work.sure_ns)
    last = np.flatnonzero(reads)
    turn: Ints = np.cumsum(reads) - reads
    late = np.full(len(last) + 1, -np.inf)
    np.maximum.at(late, turn, launched - done + work.sure_ns)
    left = late[:-1] + done[last] - launched[last]
    waited = float(np.maximum(0.0, left).sum() + USUAL_WAKE_UP_NS * len(last)) / work.steps
    return min(waited, device_chain_ns(work))


def _waits_for_copies(work: StepWork) -> bool:
    """Return whether the host waits for nothing but copies, and for those to the device as often as for the others."""
    reads, sent = (int(np.count_nonzero(work.copies(kind))) for kind in ("d2h", "h2d"))
    return 0 < reads <= sent and work.syncs == reads + sent


def _only_for_numbers(work: StepWork) -> Flags:
    """Return the passes right before a read of a number: they may compute nothing else, and go with it."""
    order = work.lane_order
    behind = np.r_[np.diff(work.lane[order]) == 0, False] & fusible(work)[order]
    ahead, passes = work.number_reads[order], np.zeros(len(order), bool)
    for _ in range(MOST_PASSES):
        ahead = np.r_[ahead[1:], False] & behind
        passes[order] |= ahead
    return passes


def _waits_ns(work: StepWork) -> float | None:
    """Return what waking up takes, with the calls that ask for a value. Each copy from the device waits at least once.
    """
    if work.syncs is None:
        return None
    reads, passes = (float(np.count_nonzero(rows)) for rows in (work.copies("d2h"), work.once(_only_for_numbers)))
    return (WAKE_UP_NS + CALL_NS) * max(work.syncs, reads) + CALL_NS * passes + _gone_ns(work)


def _gone_ns(work: StepWork) -> float:
    return float(own_time(work)[work.once(_only_for_numbers)].sum())


def _reads_results(work: StepWork) -> bool:
    """Return whether not most of what the host reads are the sizes of what masks choose."""
    masks = sum(called for operator, called in zip(work.operators, work.operator_calls.tolist(), strict=False)
                if operator.name == MASKED)
    return 2 * masks <= np.count_nonzero(work.copies("d2h"))


def _removable(values: Values) -> float:
    """Return the time of waits that can go. KeyError where steps show that the host needs what it waits for."""
    if ACTS_ON + "graph" in values and ACTS_ON + "remove_syncs" not in values:
        raise KeyError("remove_syncs")
    return values["removable_wait_pct"]


REMOVE_SYNCS = Mechanism("remove_syncs", "Take the host's waits out of the step", "D - passes before reads of numbers, "
                         "and of the rest what is no wait", own_time, gone_ns=_gone_ns, respond=_unwatched,
                         waits_ns=_waits_ns, shown=_reads_results)
INDICES_FOR_MASKS = Step("indices in place of masks that do not change, made once before the steps: mask.nonzero()",
                         (PYTORCH, OWN_CODE, fact_is("graph_capture", "given_masks")))
ACTIONS = (Action(
    "remove_waits", "Take the host's waits out of the loop", _removable,
    "the device is idle because the host waits, not counting the launches after each wait", "medium", (
        Step("no .item(), .cpu(), print or boolean indexing per operation", (PYTORCH, OWN_CODE)),
        INDICES_FOR_MASKS,
        Step("outputs bound to the device: session.io_binding()", (ORT,)),
        Step("no hipDeviceSynchronize or hipStreamSynchronize per operation", (AMD, NO_FRAMEWORK)),
        Step("no cudaDeviceSynchronize or cudaStreamSynchronize per operation", (NVIDIA, NO_FRAMEWORK)),
        Step("read results once per step", (OWN_CODE,)),
        Step("torch.profiler.profile(with_stack=True) names the line of each wait",
             (PYTORCH, OWN_CODE, fact_is("python_frames", "none")))),
    "sync_limited_pct", already_done_if=(fact_is("host_waits", "none"),), mechanism="remove_syncs",
    at_most=of_metric("sync_limited_pct")),)
