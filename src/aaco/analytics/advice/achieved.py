"""A step after a change as such changes usually go, beside the floor, which is the least that it could take.

Each mechanism says three things of the work (`Response`): the time that its rows take afterwards on the device, which
of the host's calls are left, and how long the host no longer waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.action import HOST_BOUND
from aaco.analytics.advice.floor import LeastTimes, StepTime, device_chain_ns
from aaco.analytics.advice.least import PRODUCTS
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import FIXED_NS, room_for_blocks
from aaco.analytics.advice.taken_turns import batch_in_turn
from aaco.analytics.advice.work import HOST_COPIES, OPTIMIZER, StepWork, WorkName
from aaco.core.arrays import Reals

MANY_CALLS = 0.8  # of the host's calls: where so many are left, a device that mostly works waits for them as long
REPLAY_GAP_NS = 250.0  # between two kernels of a graph: in the median of recorded graphs without a wait
WAITS_FOR_LOADERS = 0.1  # of the time: batches that are there take less


class ChangedStep(Struct, frozen=True):
    """A step after a change, per sample of a step before it. Times in ns.

    device_ns: the device's path: its work, and the time in which it stays idle. host_ns: the host's path before the
    change, None where the device hides it. calls: of operators, per step before.
    calls_left: the share of them that is left, above 1 where calls come. waits_ns: waits and work of the host that are
    gone. samples: times as many in a step as before. replayed: the host launches once for all between two of its
    copies, in replays calls with the copies themselves. saved_ns: of the device's work, per step before. paused_ns: of
    the host's path what is its own work, which no call that is gone shortens. whole_calls: with the calls that are gone
    all goes that the host did for them. handed: its own work is gone, too. launching_ns: in which it launches a traced
    step, without its waits. only_less: work goes and none comes. loading_ns: in which other
    processes do for a step what its host did, or make its inputs. growing_ns: of the host's path what each sample takes
    as long as before, in a larger batch.
    """

    device_ns: float
    host_ns: float | None
    calls: float
    calls_left: float = 1.0
    waits_ns: float = 0.0
    samples: float = 1.0
    replayed: bool = False
    saved_ns: float = 0.0
    replays: float = 0.0
    paused_ns: float = 0.0
    whole_calls: bool = False
    handed: bool = False
    launching_ns: float = 0.0
    only_less: bool = False
    loading_ns: float = 0.0
    growing_ns: float = 0.0


class _ChangedPath(Struct, frozen=True):
    """What a change leaves of steps of any length: the device's path in ns, and the share of the host's calls."""

    chain_ns: float
    calls_left: float


def changed_step(work: StepWork, step: StepTime, mechanisms: Sequence[Mechanism], samples: float = 1.0,
                 times: LeastTimes | None = None) -> ChangedStep:
    """Return the step after these changes together; samples: times as many in a step, of a larger batch.

    Raise Absent where a mechanism has nothing to do, or its outcome cannot be known. A larger batch gains nothing with
    samples of 1: who advises it says how much larger. times: of this work, where they are at hand.
    """
    times = times or LeastTimes(work)
    responses = [times.response(mechanism) for mechanism in mechanisms]
    if len(mechanisms) == 1:  # most often asked for several times: of a step as traced, and as it usually is
        path = times.path(mechanisms[0], samples, lambda response: _changed_path(work, [response], samples))
    else:
        path = _changed_path(work, responses, samples)
    busy_ns = _busy_ns(work, step)
    streams, chain_ns = _streams_in_turn(work, busy_ns), path.chain_ns
    added_ns = max(response.added_ns for response in responses)
    computing_ns = host_computes_ns(work, step)
    paused_ns = max(work.paused * max(0.0, step.ns - busy_ns), computing_ns)
    handed = any(response.hands_over for response in responses)
    waits_ns = max(response.waits_ns for response in responses)
    loaders = max(response.loaders for response in responses)
    host_ns, replayed = _host_ns(work, step, busy_ns, waits_ns), any(response.replayed for response in responses)
    if replayed:
        idle_ns = (0.0 if handed else computing_ns) + (0.0 if waits_ns else _fed_ns(work))
    else:
        idle_ns = step.ns - busy_ns
        stays = samples == 1.0 and busy_ns >= idle_ns and path.calls_left >= MANY_CALLS and not handed
        if waits_ns or not (host_ns is None or stays):
            idle_ns = 0.0
    return ChangedStep(chain_ns * streams + added_ns + idle_ns / samples, host_ns, work.calls / work.steps,
                       path.calls_left,
                       handed * paused_ns + waits_ns, samples, replayed,
                       max(0.0, (device_chain_ns(work) - chain_ns) * streams - added_ns),
                       _replays(work, reads=not any(response.waits_ns for response in responses)),
                       paused_ns, any(response.whole_calls for response in responses), handed,
                       work.launching_ns, all(response.only_less for response in responses),
                       _loading_ns(work, step, paused_ns, loaders, handed),
                       0.0 if handed else min(computing_ns, work.on_host_ns / work.steps, work.computing * step.ns))


def _changed_path(work: StepWork, responses: Sequence[Response], samples: float) -> _ChangedPath:
    device = reduce(np.minimum, (response.device_ns for response in responses))
    if any(response.replayed for response in responses):
        device = np.where(device > 0, device + REPLAY_GAP_NS, 0.0)
    in_turn = work.once(batch_in_turn) if samples != 1.0 else False
    if samples != 1.0:
        device = np.where(in_turn, device, _per_sample(work, device, samples))
    chain_ns = device_chain_ns(work, device)
    del device  # as long as the work, and so is what comes
    left = of_calls(work, reduce(np.minimum, (response.left for response in responses)))
    if np.any(in_turn):
        left = np.where(in_turn, samples, 1.0) * left
    return _ChangedPath(chain_ns, _calls_left(work, left, sum(response.more_calls for response in responses)))


def _loading_ns(work: StepWork, step: StepTime, paused_ns: float, loaders: int, handed: bool) -> float:
    """Return how long other processes take for a step's inputs, per sample. loaders: that the change brings, handed:
    whether the host's own work leaves the step, and theirs with it.

    A host that waits for them as its steps go by gets no batch sooner by any change of another kind.
    """
    if loaders:
        return paused_ns / loaders
    return step.ns if work.fetching >= WAITS_FOR_LOADERS and not handed else 0.0


def _host_ns(work: StepWork, step: StepTime, busy_ns: float, waits_ns: float) -> float | None:
    """Return the host's path before a change, ns; None where the device hides it.

    Where the device works for most of a step, the host may have waited for it there: its path is the time in which the
    device was idle, and during its work no more than the traced calls, what the host computes itself and the copies
    that it feeds. Where waits go, they are in the path; and a host that waits for nothing is what the device waits for.
    """
    if busy_ns >= HOST_BOUND * step.ns:
        return None
    idle_ns, calls_ns = step.ns - busy_ns, (work.traced_calls_ns + work.on_host_ns) / work.steps
    if (waits_ns or busy_ns < idle_ns or _waits_for_nothing(work)
            or not any(operator.host_ns for operator in work.operators)):
        return step.ns
    fed = work.named(WorkName.may_wait_for_the_host)
    return min(step.ns, idle_ns + calls_ns + float(work.ns[fed].sum()) / work.steps)


def _fed_ns(work: StepWork) -> float:
    """Return how long a step's copies take because the host feeds them, beside their bytes: no graph shortens that."""
    fed = work.named(WorkName.may_wait_for_the_host)
    return float((work.ns - work.sure_ns)[fed].sum()) / work.steps


def _waits_for_nothing(work: StepWork) -> bool:
    """Return whether the host reads nothing of the device, and has no calls in which it waits but for copies to it."""
    return (work.syncs is not None and not work.copies("d2h").any()
            and work.syncs <= int(np.count_nonzero(work.copies("h2d"))))


def _calls_left(work: StepWork, left: Reals, more: float) -> float:
    """Return the share of the host's calls that is left, by their traced time; new calls are as long as others."""
    if not work.calls:
        return 1.0
    stays = 1.0
    if not (left == 1.0).all():
        calls_ns = work.calls_ns
        whole_ns = calls_ns.sum()
        calls_ns *= left
        stays = float(calls_ns.sum() / whole_ns)
    return max(0.0, stays + more * work.steps / work.calls)


def _replays(work: StepWork, reads: bool) -> float:
    """Return the calls of a step of graphs: its copies from and to the host, and a graph after each read.

    reads: whether it still reads any.
    """
    if not reads:
        return 0.0
    read = float(work.copies("d2h").sum())
    return (float(work.copies(*HOST_COPIES).sum()) + read) / work.steps


def of_calls(work: StepWork, left: Reals) -> Reals:
    """Return what is left of each row's call, whose rows follow each other, but for copies and fills of no operator
    between them: it is gone when all of its kernels are.
    """
    if (left == 1.0).all():
        return left
    whole, rows = left.copy(), np.flatnonzero(work.operator >= 0)
    starts = np.flatnonzero(np.diff(work.operator[rows], prepend=-1))
    if len(rows):
        whole[rows] = np.repeat(np.maximum.reduceat(left[rows], starts), np.diff(np.r_[starts, len(rows)]))
    return whole


def host_computes_ns(work: StepWork, step: StepTime) -> float:
    """Return how long the host computes on tensors of its own in a step, at most the time in which the device is idle.

    A profiler stretches many short operators as it does the whole step, and long ones hardly.
    """
    return min(step.ns - _busy_ns(work, step), max(work.on_host_ns / work.steps, work.computing * step.ns))


def _busy_ns(work: StepWork, step: StepTime) -> float:
    """Return the device's work in a step if no streams overlap, at most the step: the trace does not say which wait."""
    return min(step.ns, max(0.0, work.sure_sum_ns - work.waited_ns) / work.steps)


def _streams_in_turn(work: StepWork, busy_ns: float) -> float:
    """Return how many times as long as its longest stream a step's device work is."""
    chain_ns = device_chain_ns(work)
    return max(1.0, busy_ns / chain_ns) if chain_ns else 1.0


def _per_sample(work: StepWork, device: Reals, samples: float) -> Reals:
    """Return the times per sample: weights are updated once, and the fixed part of a kernel is there once."""
    once = work.of_phase(OPTIMIZER)
    fixed = np.where(once, device, np.minimum(device, FIXED_NS))
    return fixed / samples + (device - fixed) / np.minimum(samples, room_for_more(work))


def room_for_more(work: StepWork) -> Reals:
    """Return how many times as many blocks as each product has run at once: more samples are more tiles of its result.
    1 of other kernels.
    """
    return np.where(work.of_families(*PRODUCTS), room_for_blocks(work), 1.0)
