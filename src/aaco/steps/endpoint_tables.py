"""The tables of a session with an endpoint of a language model, from the record of its reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
from msgspec.structs import replace

from aaco.analytics.llm.load import EndpointLoad
from aaco.core import tables
from aaco.core.documents import decode, encode
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import ENGINE_STEPS, GPU_EVENTS, LLM_EVENTS, REQUESTS, SAMPLES
from aaco.llm.parse import Parsing
from aaco.steps.analyzed import Analyzed, why_not_of_endpoint
from aaco.steps.device import telemetry
from aaco.tracelake import documents, layout, store
from aaco.tracelake.queries import Tables

NOT_WATCHED = "the load was sent without --telemetry"


def make(session: Session) -> None:
    """Read the record and write the tables; of one that was cut short all that came until then. Raise AacoError."""
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    parsing = Parsing(session.folder / layout.READS, [load.model, *load.answers_as])
    store.stream(session, LLM_EVENTS, parsing.events())
    store.write(session, REQUESTS, parsing.requests())
    if (steps := parsing.steps()).num_rows:
        store.write(session, ENGINE_STEPS, steps)
    for name, read in _telemetry(session).items():
        with suppress(Absent):
            store.write(session, tables.ALL[name], read())
    session.write_json(layout.LOAD, encode(replace(load, clock_steps=parsing.looks.steps, packets=parsing.packets)))


def of_endpoint(session: Session) -> Analyzed:
    """Return the tables as stored, each read on first access, and why others are missing. Raise BadBundle."""
    stored = Tables(session)
    missing = {name: why_not_of_endpoint(session, name) for name in tables.ALL if name not in stored}
    missing |= {name: why for name, why in _why_not_watched(session) if name not in stored}
    return Analyzed(stored, missing, {}, {}, {}, False)


def _telemetry(session: Session) -> dict[str, Callable[[], pa.Table]]:
    """Return by name what reads the telemetry of the devices; nothing where none was to be recorded."""
    return telemetry.of_devices(session) if (session.folder / layout.DEVICE_RAW).is_dir() else {}


def _why_not_watched(session: Session) -> Iterator[tuple[str, str]]:
    """Yield why there is no telemetry of the devices, by table."""
    readers = _telemetry(session)
    for name in (GPU_EVENTS.name, SAMPLES.name):
        if name not in readers:
            yield name, NOT_WATCHED
            continue
        try:
            readers[name]()
        except Absent as reason:
            yield name, str(reason)
