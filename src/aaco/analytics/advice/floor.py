"""The floor under a step's time: the device-only dependency chain with the work that a change acts on at its least.

A step takes at least as long as the device's work in the order of its streams, without any host: D. A mechanism is one
kind of change; it says the least time of each kernel and copy after it, and the floor F is the chain of those. The
ceiling of a step's time T is T / F. F is made only of what a profiler cannot stretch: pageable copies, which the host
feeds, count as their bytes / link.

Captures record which stream waited and which event was recorded, not which event a wait was for. So of several streams
only the longest counts, and no dependency between streams: a lower bound. Collectives count from the arrival of the
last rank. Of several mechanisms the least of each row counts: a union, never a product of ceilings. Circumstances such
as a low clock come first, and the other changes act on what they leave. Rows that a change lets run during the others
count as a stream of their own. Where the host no longer comes late, kernels follow each other at once, and each is a
little shorter than the traced one that began on an idle device.

A change that leaves the host's path as it is removes no wait for the host: a step loses at most the time of the rows
that it acts on. How much of a profiled step such waits are without the profiler is not known, so the ceiling is then
that of the device's own work.

Where calls go with their rows, what those take the host goes with them, and no more. More samples in a step leave its
calls, too: of the step's time each sample of before keeps its part.

A change that leaves the host's calls and takes out waits, such as page-locked memory, saves no more than the time in
which the device works or is fed, for only then the host waits for it, and wakes up after each wait: the rest of a step
without a profiler stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.advice.least import product_names
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.responses import CONVERSIONS
from aaco.analytics.advice.work import CALL_NS, COPY, ENTRY_NS, LAUNCH_NS, StepWork, entries
from aaco.core import distinct
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent

MOST_TARGETS = 20
WHAT_IF = "what_if"
UNPROFILED, PROFILED = "the step without a profiler", "the profiled step"
DEVICE_WORK = "the device's work in the profiled step"

Path = TypeVar("Path")


class FloorTarget(Struct, frozen=True):
    """A kernel, or kind of copy, that a mechanism acts on: its time in a step, and what is left of it at least."""

    name: str
    own_ns: float
    least_ns: float


class MechanismFloor(Struct, frozen=True):
    """The floor of a mechanism, or of several at once, ns per step; None for the reason in why_absent. targets: what it
    acts on, the names that gain most first. shown: whether the work shows that there is something to change. most_ns:
    what a step can lose, of changes that leave the host's path as it is; None where the host's waits may go, too.
    waits_ns: what a step can lose where no more than waits may go, None where calls of the host may go, too. samples:
    times as many in a step as before, at most; then the floor is per sample of before, and what a step can lose is of
    the larger step. sooner_ns: of the floor, by which kernels are shorter that follow each other at once. acts_on_ns:
    what all that it acts on takes in a step, not only the targets that are named; None in older documents.
    """

    mechanism: str
    floor_ns: float | None
    targets: tuple[FloorTarget, ...] = ()
    why_absent: str = ""
    shown: bool = True
    most_ns: float | None = None
    waits_ns: float | None = None
    samples: float = 1.0
    sooner_ns: float = 0.0
    acts_on_ns: float | None = None

    @property
    def acted_ns(self) -> float:
        """What all that it acts on takes in a step, ns."""
        return sum(target.own_ns for target in self.targets) if self.acts_on_ns is None else self.acts_on_ns


class StepTime(Struct, frozen=True):
    """How long a step takes. unprofiled: whether it was timed without a profiler; else the trace's own. fastest_ns: the
    fastest such steps, where they are known: the host takes other times from step to step.
    """

    ns: float
    unprofiled: bool
    fastest_ns: float | None = None

    @property
    def of(self) -> str:
        """Return what a ceiling is of, for screens that must show where it is of the profiled step."""
        return UNPROFILED if self.unprofiled else PROFILED


def device_chain_ns(work: StepWork, least_ns: Reals | None = None, lane: Ints | None = None) -> float:
    """Return the device-only chain of one step, D, ns; with each row at its least time, or in other lanes, where those
    are given.

    Raise Absent if no steps were counted.
    """
    if work.steps < 1:
        raise Absent("no steps are counted in the trace: give their number (--steps N), or mark them")
    if (least_ns is None or least_ns is work.sure_ns) and (lane is None or lane is work.lane):
        times = work.own_lane_ns
    else:
        times = work.lane_ns(work.sure_ns if least_ns is None else least_ns, work.lane if lane is None else lane)
    return float(times.max(initial=0.0)) / work.steps


class LeastTimes:
    """The least times of one work's rows by mechanism, and what the mechanism does. The last ones are remembered, for
    the next question is often of the same mechanism, and all of them at once would take much memory.
    """

    def __init__(self, work: StepWork) -> None:
        self.work = work
        self._last: tuple[Mechanism, Reals | Absent] | None = None
        self._response: Response | None = None  # of the last mechanism
        self._paths: dict[float, Any] = {}  # what was computed of that, by the samples in a step

    def of(self, mechanism: Mechanism) -> Reals:
        """Return a mechanism's least times, at most what each row took. Raise Absent where they cannot be known."""
        if self._last is None or self._last[0] is not mechanism:
            self._last = self._response = None  # before the next are made, so that their memory is reused
            self._paths = {}
            self._last = mechanism, self._least(mechanism)
        if isinstance(self._last[1], Absent):
            raise self._last[1]
        return self._last[1]

    def response(self, mechanism: Mechanism) -> Response:
        """Return what a mechanism does. Raise Absent where its floor is: it has nothing to do, or is not known."""
        least = self.of(mechanism)
        if mechanism.respond is None:
            raise Absent("the device's work does not show how such a change usually leaves a step")
        if self._response is None:
            self._response = mechanism.respond(self.work, least)
        return self._response

    def path(self, mechanism: Mechanism, samples: float, compute: Callable[[Response], Path]) -> Path:
        """Return what a function computes of a mechanism's response, which depends on these samples alone."""
        response = self.response(mechanism)
        if samples not in self._paths:
            self._paths[samples] = compute(response)
        path: Path = self._paths[samples]
        return path

    def _least(self, mechanism: Mechanism) -> Reals | Absent:
        try:
            least = mechanism.least_ns(self.work)
        except Absent as reason:
            return reason
        if least is self.work.sure_ns:
            return least
        least = np.minimum(least, self.work.sure_ns)
        return np.maximum(least, 0.0, out=least)


def floor(work: StepWork, mechanisms: Sequence[Mechanism], times: LeastTimes | None = None) -> MechanismFloor:
    """Return the floor of these mechanisms done together. times: of this work, where they are at hand."""
    name = " + ".join(mechanism.name for mechanism in mechanisms)
    times = times or LeastTimes(work)
    try:
        left = _left(times, [mechanism for mechanism in mechanisms if mechanism.first])
        samples = max((mechanism.most_samples for mechanism in mechanisms), default=1.0)
        least = _least_of_all(left, [mechanism for mechanism in mechanisms if not mechanism.first], samples)
        host_stays = all(_leaves_the_host(work, mechanism) for mechanism in mechanisms)
        least = _as_many(work, least, samples) if host_stays else least
        gone = (least == 0) & (work.sure_ns > 0)
        late = host_stays and not gone.any()
        apart = [mechanism.beside(work) for mechanism in mechanisms if mechanism.beside]
        soonest_ns, least_ns = _chains_ns(work, least, apart, late)
        chain_ns = max(soonest_ns, _one_kernel_ns(work, mechanisms) / samples)
        sooner_ns = 0.0 if late else least_ns - chain_ns
        gone_ns = sum(mechanism.gone_ns(work) for mechanism in mechanisms if mechanism.gone_ns) / work.steps
    except Absent as reason:
        why, shown = str(reason).removeprefix(f"{name}: "), not isinstance(reason, NothingToChange)
        return _without_floor(work, MechanismFloor(name, None, (), why, shown=shown), mechanisms)
    acted = reduce(np.logical_or, (*apart, *(mechanism.acts_on(work) for mechanism in mechanisms if mechanism.acts_on)),
                   least < work.sure_ns)
    named = reduce(np.logical_or, (mechanism.named(work) if mechanism.named else acted for mechanism in mechanisms),
                   np.zeros(len(acted), bool))
    rows = np.flatnonzero(acted & named)
    return MechanismFloor(name, max(0.0, chain_ns - gone_ns), _targets(work, least, rows),
                          shown=all(mechanism.shown is None or mechanism.shown(work) for mechanism in mechanisms),
                          most_ns=_most_ns(work, least, apart, mechanisms, samples) if host_stays else None,
                          waits_ns=_waits_ns(work, least, mechanisms), samples=samples, sooner_ns=sooner_ns,
                          acts_on_ns=float(work.ns[rows].sum()) / work.steps)


def _chains_ns(work: StepWork, least: Reals, apart: Sequence[Flags], late: bool) -> tuple[float, float]:
    """Return the device-only chain with each row at its least time: of kernels that follow each other at once, unless
    the host comes as late as before; and of kernels as they are.
    """
    lanes = reduce(lambda lane, beside: 2 * lane + beside, apart, work.lane)
    soonest = least if late else np.minimum(least, work.one_behind_another_ns)
    soonest_ns = device_chain_ns(work, soonest, lanes)
    return soonest_ns, soonest_ns if late else device_chain_ns(work, least, lanes)


def _without_floor(work: StepWork, floor: MechanismFloor, mechanisms: Sequence[Mechanism]) -> MechanismFloor:
    """Return an absent floor with what the changes act on, where each of them declares that."""
    acts_on = [mechanism.acts_on for mechanism in mechanisms if mechanism.acts_on]
    if not floor.shown or work.steps < 1 or len(acts_on) < len(mechanisms):
        return floor
    rows = np.flatnonzero(reduce(np.logical_or, (flags(work) for flags in acts_on)))
    return replace(floor, targets=_targets(work, np.zeros(len(work.ns)), rows),
                   acts_on_ns=float(work.ns[rows].sum()) / work.steps)


def _least_of_all(times: LeastTimes, mechanisms: Sequence[Mechanism], samples: float) -> Reals:
    """Return the least times of each row after all of these changes: the least of any. Of more samples, where the other
    changes leave as small a part of what is there once for all of them: the product of all parts.
    """
    leasts, sure = (_least(times, mechanism) for mechanism in mechanisms), times.work.sure_ns
    if samples == 1.0:
        return reduce(np.minimum, leasts) if mechanisms else sure
    return reduce(np.multiply, (least / np.maximum(sure, 1.0) for least in leasts), sure)


def _leaves_the_host(work: StepWork, mechanism: Mechanism) -> bool:
    """Return whether a change leaves the host's path as it is: with fewer bytes it fills and empties pageable buffers
    sooner.
    """
    return mechanism.host_stays and not (mechanism.fewer_bytes and work.pageable_copies.any())


def _as_many(work: StepWork, least: Reals, samples: float) -> Reals:
    """Return the least times of the kernels that stay: none is shorter than the device's shortest, for all samples."""
    shortest = np.minimum(work.sure_ns, work.limits.shortest_ns or 0.0) / samples
    return np.where(work.of_families(COPY) | (least == 0), least, np.maximum(least, shortest))


def _one_kernel_ns(work: StepWork, mechanisms: Sequence[Mechanism]) -> float:
    """Return the device's shortest kernel: a step that computes on a device keeps one of its own, if no more."""
    if all(mechanism.name == WHAT_IF for mechanism in mechanisms):
        return 0.0
    return min(work.limits.shortest_ns or 0.0, work.once(_shortest_kernel_ns))


def _shortest_kernel_ns(work: StepWork) -> float:
    """Return the time of the shortest kernel, ns; 0 without any."""
    kernels = ~work.of_families(COPY)
    return float(work.sure_ns[kernels].min()) if kernels.any() else 0.0


def _most_ns(work: StepWork, least: Reals, apart: Sequence[Flags], mechanisms: Sequence[Mechanism], samples: float
             ) -> float | None:
    """Return what a step can lose, ns: of rows in streams of their own the whole time, else what exceeds the least of
    all samples; the host's calls for rows that go, and those that launched nothing; launches of products in several
    parts, which may need one in other kernels; and what the host computes on tensors of its own, which takes as long as
    other work leaves it threads. None where calls go that take lists of unknown length.
    """
    beside = reduce(np.logical_or, apart, np.zeros(len(least), bool))
    lost = np.where(beside, work.sure_ns, np.maximum(0.0, work.sure_ns - samples * least)).sum()
    lost += _gone_calls_ns(work, (least == 0) & (work.sure_ns > 0) & ~beside)
    if any(mechanism.other_kernels for mechanism in mechanisms):
        products = list(product_names(work))
        parts = work.by_operator(~work.of_families(*CONVERSIONS))[products]
        lost += LAUNCH_NS * float(np.maximum(0.0, parts - work.operator_calls[products]).sum())
    lost += LAUNCH_NS * sum(mechanism.silent_calls(work) for mechanism in mechanisms if mechanism.silent_calls)
    return float(lost + work.on_host_ns) / work.steps if math.isfinite(lost) else None


def _gone_calls_ns(work: StepWork, gone: Flags) -> float:
    """Return what the host saves by rows that go: whole calls of which nothing is left, else launches."""
    if not gone.any():
        return 0.0
    rows = work.by_operator(gone)
    whole = rows == work.by_operator()
    whole[-1] = True  # rows of no known operator are calls of their own
    call_ns = np.array([*(CALL_NS + ENTRY_NS * entries(operator) for operator in work.operators), CALL_NS])
    some = np.flatnonzero(rows)
    calls_ns = call_ns[some] * work.operator_calls[some]
    return float(np.where(whole[some], calls_ns, LAUNCH_NS * rows[some]).sum())


def _waits_ns(work: StepWork, least: Reals, mechanisms: Sequence[Mechanism]) -> float | None:
    """Return what a step can lose by changes that leave the host's calls, and of which some take out waits, ns."""
    waits = [mechanism.waits_ns(work) for mechanism in mechanisms if mechanism.waits_ns]
    if not waits or None in waits or not all(mechanism.waits_ns or mechanism.host_stays for mechanism in mechanisms):
        return None
    return float(work.ns.sum() + (work.sure_ns - least).sum() + sum(filter(None, waits)) + work.on_host_ns) / work.steps


def scaled(factors: Mapping[str, float]) -> Mechanism:
    """Return the change that lets kernels of these names take so many times as long, at most as long as they do."""
    return Mechanism(WHAT_IF, "Make kernels faster", "D with kernels at their factor", lambda work: work.sure_ns
                     * np.array([*(min(1.0, factors.get(name.name, 1.0)) for name in work.names), 1.0])[work.label])


def ceiling(step: StepTime, of: MechanismFloor) -> float | None:
    """Return how many times faster what `ceiling_of` names can become at most; None without a floor, or with one of no
    length. A step that is as long as its floor has nothing to gain: 1.
    """
    kept = kept_ns(step, of)
    whole = step.ns if ceiling_of(step, of) != DEVICE_WORK else min(step.ns, (kept or 0.0) + (of.most_ns or 0.0))
    return max(1.0, whole / kept) if kept else None


def ceiling_of(step: StepTime, of: MechanismFloor) -> str:
    """Return what a ceiling is of, in words; of more samples the step, for they share the time of the host."""
    return step.of if step.unprofiled or of.most_ns is None or of.samples > 1 else DEVICE_WORK


def kept_ns(step: StepTime, of: MechanismFloor) -> float | None:
    """Return what must stay of what the ceiling is of, ns; None without a floor. A step without a profiler holds all
    that must stay of it, with its kernels without gaps: where these took longer when they were traced, the floor is as
    many times shorter than the step as it would be longer, for gaps may hide as much again. What the host takes of it
    is that of the fastest steps, less as much as they are faster than others: another run of a host varies as much
    again.
    """
    loses_ns = of.waits_ns if of.most_ns is None else of.most_ns
    if of.floor_ns is None or not step.unprofiled:
        return of.floor_ns
    room_ns = max(0.0, step.ns - of.sooner_ns)
    floor_ns = of.floor_ns if of.floor_ns <= room_ns else room_ns * room_ns / of.floor_ns
    fastest_ns = step.ns if step.fastest_ns is None else 2 * step.fastest_ns - step.ns
    return floor_ns if loses_ns is None else max(floor_ns, (fastest_ns - loses_ns) / of.samples)


def _left(times: LeastTimes, mechanisms: Sequence[Mechanism]) -> LeastTimes:
    """Return the times of the work that these mechanisms leave, each with its part of every row's time."""
    if not mechanisms:
        return times
    work = times.work
    parts = [_least(times, mechanism) / np.maximum(work.sure_ns, 1.0) for mechanism in mechanisms]
    return LeastTimes(replace(work, ns=np.rint(work.ns * np.prod(parts, axis=0)).astype(np.int64)))


def _least(times: LeastTimes, mechanism: Mechanism) -> Reals:
    """Return a mechanism's least times. Raise Absent with its name."""
    try:
        return times.of(mechanism)
    except Absent as reason:
        raise type(reason)(f"{mechanism.name}: {reason}") from reason


def _targets(work: StepWork, least: Reals, rows: Ints) -> tuple[FloorTarget, ...]:
    """Return what these rows are, by name, with their own time and the least that is left."""
    acted_on = work.label[rows]
    own_ns, left_ns = (np.bincount(acted_on, weights=times[rows], minlength=len(work.names)) / work.steps
                       for times in (work.ns, least))
    targets = [FloorTarget(work.names[label].name, float(own_ns[label]), float(left_ns[label]))
               for label in distinct.numbers(acted_on).tolist()]
    return tuple(sorted(targets, key=lambda target: (target.least_ns - target.own_ns, target.name))[:MOST_TARGETS])
