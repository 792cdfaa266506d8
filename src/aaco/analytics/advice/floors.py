"""The floors of a session: what each kind of change can gain at most, and what such changes gained elsewhere."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from aaco.analytics.advice.achieved import ChangedStep, changed_step, host_computes_ns
from aaco.analytics.advice.action import EFFORTS
from aaco.analytics.advice.expected import Expected, RankedChange, expected, ranked
from aaco.analytics.advice.floor import LeastTimes, MechanismFloor, StepTime, ceiling, device_chain_ns, floor
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.mechanisms import ACTIONS, MECHANISMS
from aaco.analytics.advice.mechanisms.larger_batch import larger_batch
from aaco.analytics.advice.track_record import HostHabits, TrackRecord
from aaco.analytics.advice.work import StepWork
from aaco.core import documents
from aaco.core.advice import FactValues
from aaco.core.readings import Absent
from aaco.tracelake import layout

NAME = "floors"
TOGETHER = (2, 3)  # how many changes together have a floor
WORTH = 1.25  # times as fast per sample: with less, twice the samples are not worth twice their memory
# Times as long as without a profiler the host takes for its part of a profiled step: the median of 82 recorded steps
# that wait for it; 1.1 to 3.0 in 8 of 10.
USUAL_STRETCH = 2.0
NO_FLOORS = "no step of a device was judged, so nothing says what must stay of it"


@documents.document(layout.finding(NAME), version=1)
class Floors(Struct, frozen=True):
    """floors.json: of one step of the slowest rank its time, and what must stay of it after each kind of change.

    step_ns: the step without a profiler where it was timed (unprofiled), else the profiled one. chain_ns: the device's
    own work in the order of its streams, which no change of the host shortens. steps: that were judged. expected: by
    mechanism what recorded changes of its kind make likely; why_not_expected: why there is none. why_absent: why there
    is nothing of all this; then the times are 0. together: the floors of the changes that gain most here, done
    together. saved_ns: what changes of a kind usually take off the device's work in a step, off its idle time with
    whole calls of the host, or off the host's waits. work_ns: the device's work in a step, of all its streams together.
    fastest_ns: a step without a profiler of which a tenth are faster, where several were timed. usual: where the step
    was not timed without a profiler, how many times faster such changes would make it if its host took what it usually
    takes then. It puts changes in order, and is no estimate of this step. computes_ns: of a step in which the host
    computes on tensors of its own, at most what the device is idle.
    """

    step_ns: float
    unprofiled: bool
    steps: int
    chain_ns: float
    floors: tuple[MechanismFloor, ...]
    why_absent: str = ""
    expected: Mapping[str, Expected] = field(default_factory=dict)
    why_not_expected: Mapping[str, str] = field(default_factory=dict)
    together: tuple[MechanismFloor, ...] = ()
    saved_ns: Mapping[str, float] = field(default_factory=dict)
    work_ns: float = 0.0
    fastest_ns: float | None = None
    usual: Mapping[str, float] = field(default_factory=dict)
    computes_ns: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the content of floors.json."""
        return documents.encode(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Floors:
        """Return the floors that this document was made of. Raise BadBundle."""
        return documents.decode(document, cls)

    @property
    def step(self) -> StepTime:
        """Return the time of the step that ceilings are of."""
        return StepTime(self.step_ns, self.unprofiled, self.fastest_ns)

    def under(self, mechanism: str) -> MechanismFloor:
        """Return the floor under a kind of change; one that says why it is absent where it is not known."""
        if self.why_absent:
            return MechanismFloor(mechanism, None, (), self.why_absent)
        return next((known for known in self.floors if known.mechanism == mechanism),
                    MechanismFloor(mechanism, None, (), "nothing says yet what must stay after such a change"))

    def saved_pct(self, mechanism: str) -> float | None:
        """Return what such changes usually take off a step's time, per cent; None where that is not known."""
        saved_ns = self.saved_ns.get(mechanism)
        return 100 * saved_ns / self.step_ns if saved_ns is not None and self.step_ns else None

    def done_together(self, mechanisms: Collection[str]) -> MechanismFloor | None:
        """Return the floor of these changes done together; None where none was computed for them."""
        return next((floor for floor in self.together if set(floor.mechanism.split(" + ")) == set(mechanisms)), None)

    def ceiling(self, mechanism: str) -> float | None:
        """Return how many times faster a step can become at most by this change; None where no floor is known."""
        return ceiling(self.step, self.under(mechanism))

    @property
    def works_pct(self) -> float:
        """The share of the step in which the device's own work runs, per cent."""
        return min(100.0, 100 * self.chain_ns / self.step_ns) if self.step_ns else 100.0

    @property
    def computes_pct(self) -> float:
        """The share of the step in which the host computes on tensors of its own, per cent."""
        return 100 * self.computes_ns / self.step_ns if self.step_ns else 0.0

    @property
    def busy_pct(self) -> float:
        """That share of a step without a profiler; else 100."""
        return self.works_pct if self.unprofiled else 100.0

    def acts_on_pct(self, works_pct: float = 0.0) -> dict[str, float]:
        """Return by mechanism the share of a step that it acts on, per cent; nothing without a known floor, unless
        the change itself says what it acts on, and 0 where the work shows that there is nothing to change.

        It is what all that it acts on takes; of streams that run at once, whose sum passes the step, their share of the
        sum. A change of the host has none: it acts on the time in which the device waits, which only a step without a
        profiler shows. works_pct: of the step in which the device works or copies by the time budget, which knows
        how long streams run at once and the host feeds copies; the chain is of the longest stream, at the link.
        """
        whole_ns = max(self.step_ns, self.work_ns)
        busy_ns = max(self.chain_ns, works_pct / 100 * self.step_ns)
        waits_ns = max(0.0, self.step_ns - busy_ns) if self.unprofiled else 0.0
        nothing = {floor.mechanism: 0.0 for floor in self.floors if floor.floor_ns is None and not floor.shown}
        return nothing | {
            floor.mechanism: 100 * floor.acted_ns / whole_ns if floor.targets
            else 100 * waits_ns / self.step_ns
            for floor in self.floors if floor.shown and self.step_ns
            and (floor.targets or (self.unprofiled and floor.floor_ns is not None))}


def floors_of(work: StepWork, step: StepTime, record: TrackRecord | None = None, why_no_record: str = "",
              facts: FactValues | None = None, most_samples: float = math.inf) -> Floors:
    """Return the floors of every kind of change, and what it is expected to gain. Raise Absent if no steps are counted.

    record: what changes gained on devices like this one; None for the reason in why_no_record. facts: of the workload.
    most_samples: in a step, times as many as before, where a larger batch is looked at.
    """
    chain_ns, times = device_chain_ns(work), LeastTimes(work)
    floors, saved_ns, usual = dict[str, MechanismFloor](), dict[str, float](), dict[str, float]()
    likely, why = dict[str, Expected](), dict[str, str]()
    of_usual_host = StepTime(chain_ns + max(0.0, step.ns - chain_ns) / USUAL_STRETCH, True)
    for name, mechanism in MECHANISMS.items():
        least = floors[name] = floor(work, [mechanism], times)
        if record is not None and not step.unprofiled:
            with suppress(Absent):
                changed = changed_step(work, of_usual_host, [mechanism], 1.0, times)
                batch = _as_pays(work, of_usual_host, mechanism, (least, changed), record.habits, times, most_samples)
                usual[name] = expected(of_usual_host, *batch, [name], record).factor
        try:
            changed = changed_step(work, step, [mechanism], 1.0, times)
            if least.targets and mechanism.most_samples == 1:
                of_host = step if step.unprofiled else of_usual_host
                saved_ns[name] = max(changed.saved_ns + _with_calls_ns(changed, of_host.ns - chain_ns),
                                     changed.waits_ns)
            if record is None:
                raise Absent
            batch = _as_pays(work, step, mechanism, (least, changed), record.habits, times, most_samples)
            floors[name] = batch[0]
            likely[name] = expected(step, *batch, [name], record)
        except Absent as reason:
            why[name] = why_no_record if record is None else str(reason)
    best = _best(step, floors, likely, usual, facts)
    together = (floor(work, [MECHANISMS[name] for name in best[:count]], times)
                for count in TOGETHER if count <= len(best))
    return Floors(step.ns, step.unprofiled, work.steps, chain_ns, tuple(floors.values()), "", likely, why,
                  tuple(together), saved_ns, float(work.ns.sum()) / work.steps, step.fastest_ns, usual,
                  host_computes_ns(work, step))


def _with_calls_ns(changed: ChangedStep, idle_ns: float) -> float:
    """Return how much of a device's idle time goes with whole calls of the host, ns."""
    return max(0.0, 1 - changed.calls_left) * max(0.0, idle_ns) if changed.whole_calls else 0.0


def _as_pays(work: StepWork, step: StepTime, mechanism: Mechanism, once: tuple[MechanismFloor, ChangedStep],
             habits: HostHabits, times: LeastTimes, most_samples: float) -> tuple[MechanismFloor, ChangedStep]:
    """Return the floor of a change and the step after it with as many samples as pay; once: with as many as before."""
    if mechanism.most_samples == 1:
        return once
    most = min(mechanism.most_samples, most_samples)
    changed = _with_more_samples(work, step, mechanism, once[1], habits, times, most)
    return floor(work, [larger_batch(changed.samples)], times), changed


def _with_more_samples(work: StepWork, step: StepTime, mechanism: Mechanism, changed: ChangedStep, habits: HostHabits,
                       times: LeastTimes, most: float) -> ChangedStep:
    """Return the step with twice the samples, and twice as many again as long as that is expected to pay.

    changed: with as many samples as before.
    """
    samples = 1.0
    while samples < most:
        samples *= 2
        before, changed = changed, changed_step(work, step, [mechanism], samples, times)
        if samples > 2 and habits.after_ns(before, step.ns) < WORTH * habits.after_ns(changed, step.ns):
            return before
    return changed


def _best(step: StepTime, floors: Mapping[str, MechanismFloor], likely: Mapping[str, Expected],
          usual: Mapping[str, float], facts: FactValues | None) -> list[str]:
    """Return the kinds of changes that can be offered here, those that gain most first."""
    offered = {action.mechanism: EFFORTS.index(action.effort) for action in ACTIONS
               if action.mechanism and floors[action.mechanism].shown and not action.why_not(facts)}
    return [change.name for change in ranked(
        RankedChange(name, ceiling(step, floors[name]), likely.get(name), effort, usual=usual.get(name))
        for name, effort in offered.items())]


def without_floors(reason: Absent) -> Floors:
    """Return the document of a session in which no floor can be known, with the reason."""
    return Floors(0.0, False, 0, 0.0, (), str(reason))
