"""How a server answers a rising load."""

from __future__ import annotations

from aaco.analytics.llm.load_sweep import NAME, LoadSteps, sweep_of
from aaco.core.config import Analysis
from aaco.core.documents import decode, encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.tracelake import documents, layout


@finding(reads=(layout.LOAD_STEPS,), report="load_sweep", on_host=True)
def load_sweep(session: Session, settings: Analysis) -> Results:
    """From which load on a server does not keep up, and where more load brings less."""
    yield NAME, encode(sweep_of(decode(documents.require(session, layout.LOAD_STEPS), LoadSteps)))
