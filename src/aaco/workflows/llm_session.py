"""The session of a load on a language model, before there is an answer."""

from __future__ import annotations

from pathlib import Path

from aaco import __version__
from aaco.analytics.llm.load import EndpointLoad
from aaco.collectors.inventory import environment, machine
from aaco.core import clocks
from aaco.core.config import Settings
from aaco.core.documents import encode
from aaco.core.records import as_dict
from aaco.core.session import Session
from aaco.tracelake import layout

REQUESTS = 100  # of a load that does not say how many


def begin(load: EndpointLoad, settings: Settings, tag: str, telemetry: bool = False) -> Session:
    """Return a session with the first facts. telemetry: whether the devices are to be recorded. Raise StorageError."""
    backend = load.process.backend or "genai" if load.process else "endpoint"
    plan = {"model": load.model, "backend": backend, "endpoint": load.url, "processes": 1, "profile": False}
    plan |= {"telemetry": True} if telemetry else {}
    session = Session.create(settings.config.storage.sessions_dir, plan, tag, __version__)
    host = machine.identify()
    session.amend(clocks=as_dict(clocks.snapshot()), machine_id=host.id, backend_asked=backend,
                  backend_ran=backend)
    session.write_json(layout.ENVIRONMENT,
                       environment.capture(Path.cwd()) | {"machine": as_dict(host) | {"card": None}})
    session.write_json(layout.LOAD, encode(load))
    return session
