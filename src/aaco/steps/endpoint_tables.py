"""The tables of a session with an endpoint of a language model: from the record of its reads."""

from __future__ import annotations

from dataclasses import replace

from aaco.analytics.llm.load import PROCESS, EndpointLoad
from aaco.core import tables
from aaco.core.documents import encode
from aaco.core.session import Session
from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.llm.parse import Parsing
from aaco.steps.analyzed import Analyzed
from aaco.tracelake import documents, layout, store
from aaco.tracelake.queries import Tables

NOT_READ = "the record of the answers was not read yet: aaco analyze SESSION"
NOT_OF_AN_ENDPOINT = "an endpoint was asked: what happens inside the server is not seen from here"
NOT_OF_A_DECODER = ("only the tokens of the decoder were timed: aaco run MODEL, or aaco trace -- aaco llm MODEL, "
                    "sees more")


def why_unseen(session: Session) -> str:
    """Return why the tables and files of a run are not there."""
    return NOT_OF_A_DECODER if str(session.record.plan.get("endpoint")).startswith(PROCESS) else NOT_OF_AN_ENDPOINT


def make(session: Session) -> None:
    """Read the record and write the tables; of one that was cut short all that came until then. Raise AacoError."""
    load = EndpointLoad.of(documents.require(session, layout.LOAD))
    parsing = Parsing(session.folder / layout.READS, [load.model, *load.answers_as])
    store.stream(session, LLM_EVENTS, parsing.events())
    store.write(session, REQUESTS, parsing.requests())
    if (steps := parsing.steps()).num_rows:
        store.write(session, ENGINE_STEPS, steps)
    session.write_json(layout.LOAD, encode(replace(load, clock_steps=parsing.looks.steps, packets=parsing.packets)))


def of_endpoint(session: Session) -> Analyzed:
    """Return the tables as stored, each read on first access, and why others are missing. Raise BadBundle."""
    stored = Tables(session)
    from_record = (REQUESTS.name, LLM_EVENTS.name)
    missing = {name: NOT_READ if name in from_record else why_unseen(session) for name in tables.ALL
               if name not in stored}
    return Analyzed(stored, missing, {}, {}, {}, False)
