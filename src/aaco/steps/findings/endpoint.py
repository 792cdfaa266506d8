"""How fast an endpoint of a language model answered."""

from __future__ import annotations

import pyarrow as pa

from aaco.analytics.llm.gaps import COLUMNS
from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.summary import summarise
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.tracelake import documents, layout, queries, store


@finding(reads=(REQUESTS,), report="endpoint", on_host=True)
def endpoint(session: Session, settings: Analysis) -> Results:
    """How fast an endpoint of a language model answered, what failed, and how exact its client was."""
    load = documents.decoded(session, EndpointLoad)
    if not load and len(_sources(session)) > 1:
        return
    events = queries.batches(session, LLM_EVENTS, COLUMNS) if store.holds(session, LLM_EVENTS) else ()
    yield "endpoint", encode(summarise(store.read(session, REQUESTS), events, load, _steps(session)))


def _steps(session: Session) -> pa.Table | None:
    return store.read(session, ENGINE_STEPS) if store.holds(session, ENGINE_STEPS) else None


def _sources(session: Session) -> list[int]:
    """Return the captures that have requests: those of several may be the same ones, on clocks of their own."""
    return [capture["index"] for capture in documents.read(session, layout.CAPTURES).get("captures", [])
            if REQUESTS.name in capture["tables"]]
