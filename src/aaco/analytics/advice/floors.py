"""The floors of a session: what each kind of change can gain at most, and what such changes gained elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aaco.analytics.advice.achieved import changed_step
from aaco.analytics.advice.expected import Expected, expected
from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling, device_chain_ns, floor
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.track_record import TrackRecord
from aaco.analytics.advice.work import StepWork
from aaco.core import documents
from aaco.core.readings import Absent
from aaco.tracelake import layout

NAME = "floors"
NO_FLOORS = "no step of a device was judged, so nothing says what must stay of it"


@documents.document(layout.finding(NAME), version=1)
@dataclass(frozen=True)
class Floors:
    """floors.json: of one step of the slowest rank its time, and what must stay of it after each kind of change.

    step_ns: the step without a profiler where it was timed (unprofiled), else the profiled one. chain_ns: the device's
    own work in the order of its streams, which no change of the host shortens. steps: that were judged. expected: by
    mechanism what recorded changes of its kind make likely; why_not_expected: why there is none. why_absent: why there
    is nothing of all this; then the times are 0.
    """

    step_ns: float
    unprofiled: bool
    steps: int
    chain_ns: float
    floors: tuple[MechanismFloor, ...]
    why_absent: str = ""
    expected: Mapping[str, Expected] = field(default_factory=dict)
    why_not_expected: Mapping[str, str] = field(default_factory=dict)

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
        return StepTime(self.step_ns, self.unprofiled)

    def under(self, mechanism: str) -> MechanismFloor:
        """Return the floor under a kind of change; one that says why it is absent where it is not known."""
        if self.why_absent:
            return MechanismFloor(mechanism, None, (), self.why_absent)
        return next((known for known in self.floors if known.mechanism == mechanism),
                    MechanismFloor(mechanism, None, (), "nothing says yet what must stay after such a change"))

    def ceiling(self, mechanism: str) -> float | None:
        """Return how many times faster a step can become at most by this change; None where no floor is known."""
        return ceiling(self.step, self.under(mechanism))


    def acts_on_pct(self) -> dict[str, float]:
        """Return by mechanism the share of a step that its targets take, per cent; nothing without a known floor."""
        return {known.mechanism: 100 * sum(target.own_ns for target in known.targets) / self.step_ns
                for known in self.floors if known.floor_ns is not None and known.targets and self.step_ns}


def floors_of(work: StepWork, step: StepTime, record: TrackRecord | None = None, why_no_record: str = "") -> Floors:
    """Return the floors of every kind of change, and what it is expected to gain. Raise Absent if no steps are counted.

    record: what changes gained on devices like this one; None for the reason in why_no_record.
    """
    floors = [floor(work, [mechanism]) for mechanism in MECHANISMS.values()]
    likely, why = dict[str, Expected](), dict[str, str]()
    for known, mechanism in zip(floors, MECHANISMS.values(), strict=True):
        try:
            if record is None:
                raise Absent(why_no_record)
            likely[mechanism.name] = expected(step, known, changed_step(work, step, [mechanism]), [mechanism.name],
                                              record)
        except Absent as reason:
            why[mechanism.name] = str(reason)
    return Floors(step.ns, step.unprofiled, work.steps, device_chain_ns(work), tuple(floors), "", likely, why)


def without_floors(reason: Absent) -> Floors:
    """Return the document of a session in which no floor can be known, with the reason."""
    return Floors(0.0, False, 0, 0.0, (), str(reason))
