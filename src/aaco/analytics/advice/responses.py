"""What several kinds of change leave of a step alike: rows gone, fused into one pass, or computed in another type.

Rates are those that such work reaches, not those of data sheets: products keep the share of their roof that they reach
now, up to REACH; what is fused is one pass over the longest of what it was; the first FIXED_NS of a kernel stay
whatever is done to its work. The constants are rates that were seen in traces of an H100, not gains.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.least import (
    FAST_CONVOLUTION,
    depth,
    is_convolution,
    own_rate,
    own_time,
    product_names,
    product_roofs,
)
from aaco.analytics.advice.limits import DeviceLimits
from aaco.analytics.advice.mechanism import Response
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.analytics.costs.torch import model, solvers
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent

# Shares of the roof at the highest clock that products of an H100 reach in recorded traces: matrices .50 to .75 where a
# step is bound by them, convolutions in 16 bits .17 to .36.
REACH, REACH_CONVOLUTION = 0.6, 0.3
FIXED_NS = 3000.0  # of a kernel: filling the device and draining it; the shortest of those traces take 1 to 3 us
DOUBLE = "f64"
HALF = 0.5
NARROW_CONVERSION = 0.7  # of the time of a conversion of order, in half the bytes: .71 and .75 in two recorded traces
LEAST_DEPTH = 8  # of products that matrix units hasten: one instruction adds up 4 or 8 in TF32, 8 or 16 in 16 bits
WHOLE = ("softmax", "norm")
# Norms that read no sums of their own rows: batch norm by stored means (cuDNN, MIOpen), and ATen's second pass.
POINTWISE_NORMS = ("bn_fw_inf", "BatchNormFwdInfer", "batch_norm_transform_input")
CONVERSIONS = ("transpose", "copy")


def unchanged(work: StepWork, waits_ns: float = 0.0) -> Response:
    """Return the response of a change that leaves the device's work and the host's calls as they are."""
    return Response(own_time(work), every_call(work), waits_ns)


def every_call(work: StepWork) -> Reals:
    """Return what is left of each row's launch where all are: ones, which take no memory and cannot be changed."""
    return np.broadcast_to(np.float64(1.0), len(work.ns))


def kept_at_least(work: StepWork, least: Reals) -> Response:
    """Return the floor's own times, with all calls: of mechanisms whose least is what is usually left."""
    return Response(least, every_call(work))


def without_rows(work: StepWork, gone: Flags, waits_ns: float = 0.0) -> Response:
    """Return the response of a change that takes out these rows."""
    return Response(np.where(gone, 0.0, own_time(work)), np.where(gone, 0.0, 1.0), waits_ns)


def not_again(rows: Callable[[StepWork], Flags]) -> Callable[[StepWork, Reals], Response]:
    """Return the response of a change that takes out these rows, and what the program does for them."""
    return lambda work, least: replace(without_rows(work, work.once(rows)), whole_calls=True, only_less=True)


def without_phase(phase: str) -> Callable[[StepWork, Reals], Response]:
    """Return the response of a change that takes out the operators of a phase."""
    return lambda work, least: without_rows(work, work.of_phase(phase))


def in_one_pass(work: StepWork, fusible: Flags, gone: Flags | None = None) -> Response:
    """Return the step in which of fusible rows that follow each other in a stream only the longest is left. gone: those
    that are no work then.

    All softmax and norms that are one kernel each are left: each needs a pass of its own over its rows. Batch norm by
    stored means does not. Where nothing else ends a run, the next step does, which computes on other inputs.
    """
    rows, run = fusible_runs(work, fusible)
    if not len(rows):
        return Response(own_time(work), every_call(work))
    run = _within_steps(work, rows, run)
    pointwise = work.named(lambda name: any(part in name.name for part in POINTWISE_NORMS))
    whole = (work.of_families(*WHOLE) & ~pointwise)[rows]
    kept = whole.copy()
    took = own_time(work)[rows]
    if gone is not None:
        took[gone[rows]] = 0.0
    kept[_first_of_longest(took, run)] |= np.bincount(run, whole) == 0
    goes = rows[~kept]
    del rows, run, took, whole  # as long as the work, and so is what comes
    device, left = own_time(work).copy(), np.ones(len(fusible))
    if gone is not None:
        device[fusible & gone] = 0.0
    device[goes] = left[goes] = 0.0
    return Response(device, left)


def _within_steps(work: StepWork, rows: Ints, run: Ints) -> Ints:
    """Return the numbers of these runs cut into pieces, none of which has more rows than a step has in its lane."""
    of_step = -(-np.bincount(work.lane) // work.steps)
    first = np.flatnonzero(_changes(run))
    place = np.arange(len(run)) - first[run]
    return np.cumsum(_changes(run) | (place % of_step[work.lane[rows]] == 0)) - 1


def _first_of_longest(took: Reals, run: Ints) -> Ints:
    """Return of each run the place of the row that takes longest, of equals the first."""
    longest = np.flatnonzero(took == np.maximum.reduceat(took, np.flatnonzero(_changes(run)))[run])
    return longest[_changes(run[longest])]


def fusible_runs(work: StepWork, fusible: Flags) -> tuple[Ints, Ints]:
    """Return the fusible rows, and of each the number of its run: rows that follow each other in a lane."""
    order = work.lane_order
    flags = fusible[order]
    starts = flags & (_changes(flags) | _changes(work.lane[order]))
    return order[flags], np.cumsum(starts[flags]) - 1


def _changes(column: Ints | Flags) -> Flags:
    """Return which rows differ from the row before, the first one among them."""
    changes = np.ones(len(column), bool)
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes


def room_for_blocks(work: StepWork) -> Reals:
    """Return how many times as many blocks as each kernel has run at once, by one for each compute unit. 1 of kernels
    that fill the device, and where that is not known.
    """
    fitting = (work.limits.compute_units or 0) / np.maximum(1, work.blocks)
    return np.where(work.blocks > 0, np.maximum(1.0, fitting), 1.0)


def roofs_now(work: StepWork) -> Reals:
    """Return the products at the roof of their own type; their own time where most are not known."""
    try:
        return product_roofs(work, own_rate(work))
    except Absent:
        return own_time(work)


def retyped(work: StepWork, least: Reals) -> Response:
    """Return the step in another type: products keep their share of the roof, up to REACH.

    Of other work the time that its bytes need is halved; what takes longer for another reason, still does. Conversions
    between orders of a product's operands move half of the bytes, which does not halve their time. Fused attention is
    another kernel then, at REACH. Reads by index take as long: lines of memory, not widths. Each kernel of a recurrent
    layer or of a factorisation waits for the one before, and products of many tiny matrices take the time of their
    blocks: of both only the time that their arithmetic needs is another then. Linear systems have no kernels of 16 bits
    nor of TF32 (aten/src/ATen/native/BatchLinearAlgebra.cpp): of float32 they stay.
    """
    own, now = own_time(work), roofs_now(work)
    is_product, is_shallow = np.zeros((2, len(work.operators) + 1), bool)
    reaches = np.full(len(work.operators) + 1, REACH)
    for number, names in product_names(work).items():
        is_product[number] = True
        is_shallow[number] = 0 < depth(work.operators[number]) < LEAST_DEPTH
        if is_convolution(work.operators[number], names):
            reaches[number] = REACH_CONVOLUTION / FAST_CONVOLUTION
    products = is_product[work.operator]
    changed = (least < own) & ~work.of_families("embedding", "sort")
    achieved = streamed_ns(work, ~products)
    achieved *= -HALF
    achieved += own
    np.copyto(achieved, own, where=~changed)
    rows = np.flatnonzero(products)
    achieved[rows] = _at_their_share(own[rows], now[rows], least[rows], reaches[work.operator[rows]],
                                     work.of_families("attention")[rows])
    reordered = products & work.of_families(*CONVERSIONS)
    achieved[reordered] = NARROW_CONVERSION * own[reordered]
    held = work.operated(lambda operator: "_rnn" in operator.name or _solves(operator)) | is_shallow[work.operator]
    achieved[held] = own[held] - now[held] + np.minimum(now[held], least[held] / REACH)
    np.maximum(achieved, np.minimum(own, FIXED_NS), out=achieved)
    np.copyto(achieved, own, where=work.operated(lambda operator: _solves(operator) and DOUBLE not in operator.types))
    return Response(np.minimum(own, achieved, out=achieved), every_call(work))


def _at_their_share(own: Reals, now: Reals, least: Reals, reach: Reals, attention: Flags) -> Reals:
    """Return the times of products that keep their share of the roof, up to a reach. now, least: at the roof of their
    own type, and of the other one. attention: which of them are attention, which is another kernel then.
    """
    ratio = np.divide(least, now, out=np.full(len(least), HALF), where=(now > 0) & (least > 0))
    return np.maximum(np.where(attention & (least > 0), 0.0, own * ratio), least / reach)


def _solves(operator: StepOperator) -> bool:
    """Return whether an operator factors or solves a linear system."""
    costed = model(operator.name)
    return costed is not None and costed.kind in solvers.IN_STEPS


def streamed_ns(work: StepWork, rows: Flags) -> Reals:
    """Return the time that the modelled bytes of these rows need, of the memory where no cache holds them all.

    At most what a row took; 0 where its bytes are not known.
    """
    took, count = work.by_operator(np.where(rows, work.sure_ns, 0.0)), work.by_operator(rows)
    part = np.zeros(len(took))
    for number, operator in enumerate(work.operators):
        if took[number] and operator.bytes:
            needed = _stream_ns(work.limits, operator.bytes) * count[number] / operator.kernels
            part[number] = min(1.0, needed / took[number])
    needed_ns: Reals = part[work.operator]
    needed_ns *= work.sure_ns
    needed_ns[~rows] = 0.0
    return needed_ns


def _stream_ns(limits: DeviceLimits, moved_bytes: float) -> float:
    held = limits.cache_bytes is not None and moved_bytes <= limits.cache_bytes
    rate = limits.cache_bytes_per_s if held else limits.dram_bytes_per_s
    return 1e9 * moved_bytes / rate if rate else 0.0
