"""Where in a program the host waits for the device."""

from __future__ import annotations

from aaco.analytics.attribution.wait_places import COLUMNS, NAME, WaitPlaceCollector
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import API_CALLS
from aaco.tracelake import queries


@finding(reads=(API_CALLS,), report=NAME)
def wait_places(session: Session, settings: Analysis) -> Results:
    """Where in the program the host waits for the device."""
    collector = WaitPlaceCollector()
    for rows in queries.batches(session, API_CALLS, COLUMNS):
        collector.feed(rows)
    found = collector.result()
    if found.places:
        yield NAME, encode(found)
