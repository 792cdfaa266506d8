"""A step after a change as such changes usually go, beside the floor, which is the least that it could take.

Each mechanism says three things of the work: the time that its rows take afterwards on the device, which of the host's
calls are left, and how long the host no longer waits. Rates are those that such work reaches, not those of data sheets:
products keep the share of their roof that they reach now, up to REACH; what is fused is one pass over the longest of
what it was; the first FIXED_NS of a kernel stay whatever is done to its work. The constants are rates that were seen in
traces of an H100, not gains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aaco.analytics.advice.floor import Mechanism, StepTime, device_chain_ns
from aaco.analytics.advice.least import (
    FAST_CONVOLUTION,
    LOCAL_COPIES,
    POINTWISE,
    PRODUCTS,
    is_convolution,
    own_rate,
    own_time,
    product_names,
    product_operators,
    product_roofs,
)
from aaco.analytics.advice.limits import DeviceLimits
from aaco.analytics.advice.work import HOST_COPIES, StepWork
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent

# Shares of the roof at the highest clock that products of an H100 reach in recorded traces: matrices .50 to .75 where a
# step is bound by them, convolutions in 16 bits .17 to .36.
REACH, REACH_CONVOLUTION = 0.6, 0.3
REACH_MEMORY = 0.3  # norms of images in channels_last: .14 to .30 of their least time's rate; they pass more than once
FIXED_NS = 3000.0  # of a kernel: filling the device and draining it; the shortest of those traces take 1 to 3 us
HALF = 0.5
HOST_BOUND = 0.9  # a step with less device work than this share of its time waits for the host
OPTIMIZER, RECOMPUTE = "optimizer", "recompute"
CONVERSIONS, CHANNELWISE = ("transpose", "copy"), ("norm", "pooling")
GROUP_NORM = "group_norm"  # ATen's takes images as NCHW only, and converts others (native/group_norm.cpp: contiguous)
LOOP = 8  # calls of one operator in a step that are a loop


@dataclass(frozen=True)
class Response:
    """What a change does to the rows of a step's work. left: the part of each row's launch that is left, 0 to 1.

    waits_ns: how long the host waited for the device in a step, and no longer does.
    """

    device_ns: Reals
    left: Reals
    waits_ns: float = 0.0


@dataclass(frozen=True)
class ChangedStep:
    """A step after a change, per sample of a step before it. Times in ns.

    host_ns: the host's path before the change, None where the device hides it. calls: of operators, per step before.
    calls_left: the share of them that is left. waits_ns: waits of the host that are gone. samples: times as many in a
    step as before. replayed: the host launches once for all.
    """

    device_ns: float
    host_ns: float | None
    calls: float
    calls_left: float = 1.0
    waits_ns: float = 0.0
    samples: float = 1.0
    replayed: bool = False


def changed_step(work: StepWork, step: StepTime, mechanisms: Sequence[Mechanism], samples: float = 1.0) -> ChangedStep:
    """Return the step after these changes together; samples: times as many in a step, of a larger batch.

    Raise Absent where a mechanism has nothing to do, or its outcome cannot be known. A larger batch gains nothing with
    samples of 1: who advises it says how much larger.
    """
    responses = [_response(work, mechanism) for mechanism in mechanisms]
    device = np.minimum.reduce([response.device_ns for response in responses])
    if samples != 1.0:
        device = _per_sample(work, device, samples)
    calls = call_shares(work)
    left = of_calls(work, np.minimum.reduce([response.left for response in responses]))
    busy_ns = _busy_ns(work, step)
    return ChangedStep(device_chain_ns(work, device) * _streams_in_turn(work, busy_ns),
                       step.ns if busy_ns < HOST_BOUND * step.ns else None, float(calls.sum()) / work.steps,
                       float(calls @ left / calls.sum()) if len(calls) else 1.0,
                       max(response.waits_ns for response in responses), samples,
                       any(mechanism.name == "graph" for mechanism in mechanisms))


def call_shares(work: StepWork) -> Reals:
    """Return the part of an operator's call that each row is: what a library launches in one call costs the host once.

    A row of no known operator is a call.
    """
    return np.array([*(1 / max(1.0, operator.kernels) for operator in work.operators), 1.0])[work.operator]


def of_calls(work: StepWork, left: Reals) -> Reals:
    """Return what is left of each row's call: a call is gone when all of its kernels are, so the most of its rows."""
    most = np.zeros(len(work.operators) + 1)
    np.maximum.at(most, work.operator, left)
    return np.where(work.operator >= 0, most[work.operator], left)


def _busy_ns(work: StepWork, step: StepTime) -> float:
    """Return the device's work in a step if no streams overlap, at most the step: the trace does not say which wait."""
    return min(step.ns, max(0.0, float(work.sure_ns.sum()) - work.waited_ns) / work.steps)


def _streams_in_turn(work: StepWork, busy_ns: float) -> float:
    """Return how many times as long as its longest stream a step's device work is."""
    chain_ns = device_chain_ns(work)
    return max(1.0, busy_ns / chain_ns) if chain_ns else 1.0


def _per_sample(work: StepWork, device: Reals, samples: float) -> Reals:
    """Return the times per sample: weights are updated once, and the fixed part of a kernel is there once."""
    fixed = np.minimum(device, FIXED_NS)
    once = work.operated(lambda operator: operator.phase == OPTIMIZER)
    return np.where(once, device, fixed) / samples + np.where(once, 0.0, device - fixed)


def _response(work: StepWork, mechanism: Mechanism) -> Response:
    """Return what a mechanism does. Raise Absent where its floor is: there it has nothing to do, or is not known."""
    least = np.clip(mechanism.least_ns(work), 0.0, work.sure_ns)
    if mechanism.name not in RESPONSES:
        raise Absent("the device's work does not show how such a change usually leaves a step")
    return RESPONSES[mechanism.name](work, least)


def _kept_at_least(work: StepWork, least: Reals) -> Response:
    """Return the floor's own times, with all calls: of mechanisms whose least is what is usually left."""
    return Response(least, np.ones(len(least)))


def _replayed(work: StepWork, least: Reals) -> Response:
    return Response(own_time(work), np.zeros(len(least)))


def _unwatched(work: StepWork, least: Reals) -> Response:
    """Return the step of a host that waits no longer: it works while the device does."""
    return Response(own_time(work), np.ones(len(least)), device_chain_ns(work))


def _without(work: StepWork, gone: Flags, waits_ns: float = 0.0) -> Response:
    return Response(np.where(gone, 0.0, own_time(work)), np.where(gone, 0.0, 1.0), waits_ns)


def _without_phase(phase: str) -> Callable[[StepWork, Reals], Response]:
    return lambda work, least: _without(work, work.operated(lambda operator: operator.phase == phase))


def _inputs_there(work: StepWork, least: Reals) -> Response:
    copied = work.copies("h2d")
    return _without(work, copied, float(work.ns[copied].sum()) / work.steps)


def _pinned(work: StepWork, least: Reals) -> Response:
    """Return the step whose host does not copy from pageable memory itself, as long as it was traced to."""
    pageable = work.named(lambda name: name.copy in HOST_COPIES and name.pinned is False)
    return Response(own_time(work), np.ones(len(least)), float(work.ns[pageable].sum()) / work.steps)


def _reordered(work: StepWork, least: Reals) -> Response:
    """Return the step without conversions between orders of images, norms and pooling at the rate that they reach.

    Convolutions keep their time. Between group norms images are converted in either order.
    """
    if work.operated(lambda operator: GROUP_NORM in operator.name).any():
        return Response(own_time(work), np.ones(len(least)))
    gone = work.of_families(*CONVERSIONS) | work.copies(*LOCAL_COPIES)
    channelwise = work.of_families(*CHANNELWISE) & (least > 0)
    device = np.where(channelwise, np.minimum(own_time(work), least / REACH_MEMORY), own_time(work))
    return Response(np.where(gone, 0.0, device), np.where(gone, 0.0, 1.0))


def _fused(work: StepWork, least: Reals) -> Response:
    return _in_one_pass(work, work.of_families(*POINTWISE) | work.copies(*LOCAL_COPIES))


def _compiled(work: StepWork, least: Reals) -> Response:
    """Return the step with its model compiled: the optimizer is not part of it."""
    optimizer = work.operated(lambda operator: operator.phase == OPTIMIZER)
    return _in_one_pass(work, (work.of_families(*POINTWISE) | work.copies(*LOCAL_COPIES)) & ~optimizer)


WHOLE = ("softmax", "norm")


def _in_one_pass(work: StepWork, fusible: Flags) -> Response:
    """Return the step in which of fusible rows that follow each other in a stream only the longest is left.

    All softmax and norms that are one kernel each are left: each needs a pass of its own over its rows.
    """
    device, left, whole = own_time(work), np.ones(len(fusible)), work.of_families(*WHOLE)
    for rows in fusible_runs(work.lane, fusible):
        kept = rows[whole[rows]] if whole[rows].any() else rows[np.argmax(device[rows])]
        others = np.setdiff1d(rows, kept)
        device[others] = left[others] = 0.0
    return Response(device, left)


def fusible_runs(lane: Ints, fusible: Flags) -> list[Ints]:
    """Return the rows of each run of fusible rows that follow each other in a lane."""
    runs: list[Ints] = []
    for number in np.unique(lane).tolist():
        rows = np.flatnonzero(lane == number)
        edges = np.flatnonzero(np.diff(fusible[rows])) + 1
        runs += [run for run in np.split(rows, edges) if fusible[run[0]]]
    return runs


def _one_attention(work: StepWork, least: Reals) -> Response:
    """Return the step with written-out attention as its products alone, at the share of the roof that they reach."""
    taken = least < work.sure_ns
    products = np.minimum(own_time(work), _roofs_now(work) / REACH)
    kept = np.where(work.of_families(*PRODUCTS), products, 0.0)
    return Response(np.where(taken, kept, own_time(work)), np.where(taken, 0.0, 1.0))


def _roofs_now(work: StepWork) -> Reals:
    """Return the products at the roof of their own type; their own time where most are not known."""
    try:
        return product_roofs(work, own_rate(work))
    except Absent:
        return own_time(work)


def _retyped(work: StepWork, least: Reals) -> Response:
    """Return the step in another type: products keep their share of the roof, up to REACH.

    Of other work the time that its bytes need is halved; what takes longer for another reason, still does. Fused
    attention is another kernel then, at REACH. Reads by index take as long: lines of memory, not widths.
    """
    own, now, products = own_time(work), _roofs_now(work), np.zeros(len(least), bool)
    reach = np.full(len(least), REACH)
    for number, rows in product_operators(work).items():
        products[rows] = True
        if is_convolution(work.operators[number], product_names(work, rows)):
            reach[rows] = REACH_CONVOLUTION / FAST_CONVOLUTION
    ratio = np.divide(least, now, out=np.full(len(least), HALF), where=(now > 0) & (least > 0))
    same_share = np.where(work.of_families("attention") & (least > 0), 0.0, own * ratio)
    fixed = np.minimum(own, FIXED_NS)
    changed = (least < own) & ~work.of_families("embedding", "sort")
    others = np.where(changed, own - HALF * streamed_ns(work, ~products), own)
    achieved = np.where(products, np.maximum(same_share, least / reach), others)
    return Response(np.minimum(own, np.maximum(achieved, fixed)), np.ones(len(least)))


def streamed_ns(work: StepWork, rows: Flags) -> Reals:
    """Return the time that the modelled bytes of these rows need, of the memory where no cache holds them all.

    At most what a row took; 0 where its bytes are not known.
    """
    own, streamed = own_time(work), np.zeros(len(rows))
    for number, mine in work.rows_by_operator.items():
        meant, operator = mine[rows[mine]], work.operators[number]
        took = own[meant].sum()
        if took and operator.bytes:
            needed = _stream_ns(work.limits, operator.bytes) * len(meant) / operator.kernels
            streamed[meant] = own[meant] * min(1.0, needed / took)
    return streamed


def _stream_ns(limits: DeviceLimits, moved_bytes: float) -> float:
    held = limits.cache_bytes is not None and moved_bytes <= limits.cache_bytes
    rate = limits.cache_bytes_per_s if held else limits.dram_bytes_per_s
    return 1e9 * moved_bytes / rate if rate else 0.0


def _batched(work: StepWork, least: Reals) -> Response:
    """Return the step with operators that were called in a loop called once: their work stays, but not its fixed part.

    What stacks their results is gone.
    """
    own, calls = own_time(work), Counter[str]()
    for number, rows in work.rows_by_operator.items():
        calls[work.operators[number].name] += round(len(rows) / work.operators[number].kernels)
    looped = work.operated(lambda operator: calls[operator.name] >= LOOP * work.steps)
    once = np.array([*(work.steps / max(calls[operator.name], work.steps) for operator in work.operators), 1.0])
    stacking = ~looped & (work.of_families("copy", "fill", "transpose") | work.copies(*LOCAL_COPIES))
    left = np.where(looped, once[work.operator], np.where(stacking, 0.0, 1.0))
    fixed = np.minimum(own, FIXED_NS)
    return Response(np.where(looped, own - fixed + fixed * left, own * left), left)


RESPONSES: Mapping[str, Callable[[StepWork, Reals], Response]] = {
    "graph": _replayed, "remove_syncs": _unwatched, "tf32": _retyped, "narrower_types": _retyped,
    "pointwise_fusion": _fused, "compile": _compiled, "attention_fusion": _one_attention,
    "fused_optimizer": _without_phase(OPTIMIZER), "checkpointing_off": _without_phase(RECOMPUTE),
    "channels_last": _reordered, "pinned_copies": _pinned, "inputs_on_device": _inputs_there,
    "loop_to_batched_op": _batched, "sorted_reads": _kept_at_least, "less_work": _kept_at_least,
    "larger_batch": lambda work, least: Response(own_time(work), np.ones(len(least)))}
