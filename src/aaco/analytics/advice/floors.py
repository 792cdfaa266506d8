"""The floors of a session: of each kind of change the least time of a step, and so what it can gain at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling, device_chain_ns, floor
from aaco.analytics.advice.mechanisms import MECHANISMS
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
    own work in the order of its streams, which no change of the host shortens. steps: that were judged. why_absent: why
    there is none of it; then the times are 0.
    """

    step_ns: float
    unprofiled: bool
    steps: int
    chain_ns: float
    floors: tuple[MechanismFloor, ...]
    why_absent: str = ""

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


def floors_of(work: StepWork, step: StepTime) -> Floors:
    """Return the floors of every kind of change. Raise Absent if no steps are counted."""
    chain_ns = device_chain_ns(work)
    return Floors(step.ns, step.unprofiled, work.steps, chain_ns,
                  tuple(floor(work, [mechanism]) for mechanism in MECHANISMS.values()))


def without_floors(reason: Absent) -> Floors:
    """Return the document of a session in which no floor can be known, with the reason."""
    return Floors(0.0, False, 0, 0.0, (), str(reason))
