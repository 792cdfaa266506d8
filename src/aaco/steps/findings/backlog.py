"""Whether a server keeps up with a load."""

from __future__ import annotations

from aaco.analytics.llm import backlog as requests_open
from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.points import points_of
from aaco.core.config import Analysis
from aaco.core.documents import decode, encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import REQUESTS
from aaco.tracelake import documents, layout, store


@finding(reads=(layout.LOAD, REQUESTS), report="backlog", on_host=True)
def backlog(session: Session, settings: Analysis) -> Results:
    """Whether an endpoint of a language model keeps up with its load, or requests pile up."""
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    yield requests_open.NAME, encode(requests_open.backlog_of(points_of(store.read(session, REQUESTS)), load))
