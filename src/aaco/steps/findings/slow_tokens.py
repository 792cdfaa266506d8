"""Why slow tokens of an endpoint were slow, by the steps of its engine."""

from __future__ import annotations

from aaco.analytics.llm import slow_tokens as explained
from aaco.analytics.llm.load import EndpointLoad
from aaco.core.config import Analysis
from aaco.core.documents import decode, encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.tracelake import documents, layout, store


@finding(reads=(layout.LOAD, REQUESTS, LLM_EVENTS, ENGINE_STEPS), report="slow_tokens", on_host=True)
def slow_tokens(session: Session, settings: Analysis) -> Results:
    """Why slow tokens of an endpoint were slow: a prompt in between, the device, the host, or no step at all."""
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    if load.process:
        return  # its steps have no part on a device, and no other request's prompt comes between its tokens
    requests, events, steps = (store.read(session, table) for table in (REQUESTS, LLM_EVENTS, ENGINE_STEPS))
    yield explained.NAME, encode(explained.slow_tokens(requests, events, steps, load))
