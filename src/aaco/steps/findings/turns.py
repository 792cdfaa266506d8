"""How fast each turn of conversations was answered."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from aaco.analytics.llm import turns as of_conversations
from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.points import UNKNOWN, points_of
from aaco.core.config import Analysis
from aaco.core.documents import decode, encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import REQUESTS
from aaco.tracelake import documents, layout, store


@finding(reads=(layout.LOAD, REQUESTS), report="turns", on_host=True)
def turns(session: Session, settings: Analysis) -> Results:
    """How fast each turn of conversations with a language model was answered, by what was in the server's cache."""
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    if load.turns:
        requests = store.read(session, REQUESTS)
        conversation = np.asarray(pc.fill_null(requests["conversation"], UNKNOWN).to_numpy(), np.int64)
        yield of_conversations.NAME, encode(of_conversations.turns_of(points_of(requests), conversation, load))
