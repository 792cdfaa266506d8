"""What bounds the requests of a load by what the server's engine and its device did in that time, as a trace shows it.

Every moment of a request is of one part: the device ran a step that computed prompts (prefill), it ran decoding
(device), a step was under way and the device had nothing to do (host), or no step was under way (queue). Why the
device or the host takes its time is the class that the trace itself was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.llm.decoding import LARGE_PCT, LoadBound
from aaco.analytics.llm.load import WHOLE_TRACE, TracedClass
from aaco.analytics.llm.points import UNKNOWN
from aaco.analytics.llm.slow_tokens import CAUSES, EngineTimes, times_of
from aaco.analytics.serving.annotations import DECODE
from aaco.core.arrays import Flags, Ints, Reals

PREFILL, DEVICE, HOST, QUEUE = CAUSES
LEAST_COVERED = 0.5  # of the time of requests that the steps of a trace span
LAUNCH_BOUND = "launch_bound"
MEANINGS = {PREFILL: "the device computes prompts", QUEUE: "no step of the engine is under way"}


def bound_of_trace(begin: Ints, end: Ints, steps: pa.Table, classes: Sequence[TracedClass]) -> LoadBound:
    """Return what bounds requests between these times, CLOCK_MONOTONIC ns. classes: what the trace was given."""
    times = times_of(steps)
    since, until = int(times.begin.min()), int(np.maximum(times.end, times.device_end).max())
    whole, begin, end = int((end - begin).sum()), np.clip(begin, since, until), np.clip(end, since, until)
    inside = int((end - begin).sum())
    if not whole or inside < LEAST_COVERED * whole:
        return LoadBound(None, None, "the server's trace holds less than half of the time of requests")
    spent = time_of_parts(times, begin, end)
    working = _working_share(times, steps)
    spent[CAUSES.index(HOST)] += (1 - working) * spent[CAUSES.index(DEVICE)]
    spent[CAUSES.index(DEVICE)] *= working
    shares = {part: float(100 * ns / inside) for part, ns in zip(CAUSES, spent, strict=True)}
    label, why = _class_of(max(shares, key=lambda part: shares[part]), shares, classes)
    return LoadBound(label, max(shares.values()), why, shares)


def _class_of(part: str, shares: Mapping[str, float], classes: Sequence[TracedClass]) -> tuple[str | None, str]:
    """Return the class of the largest part, None if there is none, and what that means or why."""
    if shares[part] < LARGE_PCT:
        return None, f"no part takes {LARGE_PCT:g} % of the time of requests"
    if part in MEANINGS:
        return part, f"of the time of requests {MEANINGS[part]}"
    of_phase = next((traced for traced in classes if traced.phase == (DECODE if part == DEVICE else WHOLE_TRACE)),
                    TracedClass("", None, None, "the trace gives it no class"))
    cause = f"class {of_phase.label} of the server's trace" if of_phase.label else of_phase.why
    if part == HOST:
        return "launch" if of_phase.label == LAUNCH_BOUND else HOST, \
            f"of the time of requests the device waits within a step; {cause}"
    if of_phase.label is None:
        return None, f"the device decodes for most of the time of requests; what limits it is not known: {cause}"
    return (f"decode-{of_phase.label.removesuffix('_bound').replace('_', '-')}",
            f"of the time of requests the device decodes; {cause}")


def time_of_parts(times: EngineTimes, begin: Ints, end: Ints) -> Reals:
    """Return the time of all requests together in each part, ns, in the order of CAUSES."""
    last = np.maximum(times.end, times.device_end)
    on_device = times.device_begin != UNKNOWN
    edges = np.unique(np.concatenate((times.begin, last, times.device_begin[on_device], times.device_end[on_device])))
    under_way = (_covered(edges, times.device_begin, times.device_end, on_device & times.prefill),
                 _covered(edges, times.device_begin, times.device_end, on_device),
                 _covered(edges, times.begin, last, np.ones(len(last), bool)))
    part = np.select(under_way, (0, 1, 2), 3)
    moments = edges - edges[0]  # near 0, so that a float holds each
    spent = np.zeros(len(CAUSES))
    for number in range(len(CAUSES)):
        until = np.append(0, np.cumsum(np.where(part == number, np.diff(edges), 0)))
        spent[number] = (np.interp(end - edges[0], moments, until) - np.interp(begin - edges[0], moments, until)).sum()
    return spent


def _covered(edges: Ints, begin: Ints, end: Ints, included: Flags) -> Flags:
    """Return for each stretch between edges whether one of the included intervals holds it."""
    change = np.zeros(len(edges), np.int64)
    np.add.at(change, np.searchsorted(edges, begin[included]), 1)
    np.add.at(change, np.searchsorted(edges, end[included]), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0)


def _working_share(times: EngineTimes, steps: pa.Table) -> float:
    """Return in how much of the time from the first to the last kernel of decoding steps anything ran."""
    busy = np.asarray(pc.fill_null(steps["busy_ns"], UNKNOWN).to_numpy(), np.int64)
    decoding = (times.device_begin != UNKNOWN) & ~times.prefill & (busy != UNKNOWN)
    extent = int((times.device_end - times.device_begin)[decoding].sum())
    return min(1.0, int(busy[decoding].sum()) / extent) if extent else 1.0
