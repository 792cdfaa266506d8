"""How fast an endpoint of a language model answered."""

from __future__ import annotations

from aaco.analytics.llm.gaps import COLUMNS
from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.summary import summarise
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import LLM_EVENTS, REQUESTS
from aaco.tracelake import documents, layout, queries, store


@finding(reads=(layout.LOAD, REQUESTS, LLM_EVENTS), report="endpoint", on_host=True)
def endpoint(session: Session, settings: Analysis) -> Results:
    """How fast an endpoint of a language model answered, what failed, and how exact its client was."""
    load = EndpointLoad.of(documents.require(session, layout.LOAD))
    events = queries.batches(session, LLM_EVENTS, COLUMNS)
    yield "endpoint", encode(summarise(store.read(session, REQUESTS), events, load))
