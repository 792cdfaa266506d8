"""How much faster a session's step can become by named changes: the floor that advice has, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling, ceiling_of, floor, kept_ns, scaled
from aaco.analytics.advice.floors import NAME as FLOORS
from aaco.analytics.advice.floors import Floors
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.mechanisms.larger_batch import LARGER_BATCH, larger_batch
from aaco.analytics.advice.recommend import why_not_advised
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.steps.findings import step_work
from aaco.steps.readings import unprofiled
from aaco.tracelake import documents, layout


class AskedFloor(Struct, frozen=True):
    """The floor of changes done together, and the step that its ceiling is of; None for the reason in the floor.

    why_not_advised: the facts of the workload by which advice refuses them; empty where it offers one.
    """

    step: StepTime | None
    floor: MechanismFloor
    why_not_advised: str = ""

    @property
    def ceiling(self) -> float | None:
        """How many times faster the step can become at most; None without a floor."""
        return ceiling(self.step, self.floor) if self.step else None

    @property
    def ceiling_of(self) -> str | None:
        """What the ceiling is of, in words; None without a step."""
        return ceiling_of(self.step, self.floor) if self.step else None

    @property
    def kept_ms(self) -> float | None:
        """What must stay of it, ms; None without a floor."""
        kept = kept_ns(self.step, self.floor) if self.step else None
        return None if kept is None else kept / 1e6


def floor_of(session: Session, mechanisms: Sequence[str], factors: Mapping[str, float]) -> AskedFloor:
    """Return the floor of these kinds of changes, and of kernels at these factors. Raise BadBundle."""
    changes = [*(_as_advised(session, name) for name in mechanisms), *([scaled(factors)] if factors else [])]
    facts = documents.decoded(session, WorkloadFacts)
    against = why_not_advised(mechanisms, facts.values if facts else None)
    try:
        work, step = step_work.find(session, unprofiled(session))
    except Absent as reason:
        name = " + ".join(change.name for change in changes)
        return AskedFloor(None, MechanismFloor(name, None, (), str(reason)), against)
    return AskedFloor(step, floor(work, changes), against)


def _as_advised(session: Session, name: str) -> Mechanism:
    """Return a kind of change, a larger batch of as many samples as advice looked at. Raise BadBundle."""
    if name != LARGER_BATCH.name or not documents.holds(session, layout.finding(FLOORS)):
        return MECHANISMS[name]
    advised = Floors.of(documents.read(session, layout.finding(FLOORS))).under(name)
    return larger_batch(advised.samples) if advised.samples > 1 else LARGER_BATCH
