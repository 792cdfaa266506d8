"""What a step can gain at most by each kind of change."""

from __future__ import annotations

from aaco.analytics.advice import floors as of_session
from aaco.analytics.workload.facts import NAME as FACTS
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.analytics.workload.platform import AMD
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.steps import track_records
from aaco.steps.findings import step_work
from aaco.steps.readings import unprofiled
from aaco.tracelake import documents, layout
from aaco.tracelake.memory import give_back

NONE_ON_AMD = "no changes were recorded on devices of AMD yet"


@finding(reads=(layout.CAPTURES,), after=("windows", "attribution", "operator_costs", "kernel_classes", FACTS))
def floors(session: Session, settings: Analysis) -> Results:
    """What must stay of a step after each kind of change, and so how much faster it can become at most."""
    if not documents.holds(session, layout.finding("windows")):
        return
    try:
        work, step = step_work.find(session, unprofiled(session))
        give_back(0)  # what reading it took, before as much is computed of it
        workload = documents.decoded(session, WorkloadFacts)
        facts = workload.values if workload else {}
        record = None if AMD in facts.get("vendor", ()) else track_records.shipped()
        session_floors = of_session.floors_of(work, step, record, NONE_ON_AMD, facts)
    except Absent as reason:
        session_floors = of_session.without_floors(reason)
    yield of_session.NAME, session_floors.document()
