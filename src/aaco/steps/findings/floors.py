"""What a step can gain at most by each kind of change."""

from __future__ import annotations

from aaco.analytics.advice import floors as of_session
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.steps import step_work
from aaco.steps.readings import unprofiled
from aaco.tracelake import documents, layout


@finding(reads=(layout.CAPTURES,), after=("windows", "attribution", "operator_costs", "kernel_classes"))
def floors(session: Session, settings: Analysis) -> Results:
    """What must stay of a step after each kind of change, and so how much faster it can become at most."""
    if not documents.holds(session, layout.finding("windows")):
        return
    try:
        found = of_session.floors_of(*step_work.find(session, unprofiled(session)))
    except Absent as reason:
        found = of_session.without_floors(reason)
    yield of_session.NAME, found.document()
