"""The application: a guard, the REST API, and the pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI

from aaco import __version__
from aaco.dashboard import pages, problems
from aaco.dashboard.access import Guard
from aaco.dashboard.api import answers, comparing, docs, events, fleet, prometheus, sessions, tables, uploads
from aaco.dashboard.lake import Lake
from aaco.dashboard.problems import Problem
from aaco.dashboard.settings import ServerSettings
from aaco.tracelake.share.audit import Audit

API = "/api/v1"
ROUTERS: tuple[APIRouter, ...] = (sessions.router, answers.router, tables.router, comparing.router, uploads.router,
                                 events.router, fleet.router)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Problem, "description": text} for status, text in (
    (400, "It asks for something that cannot be."), (401, "No token, or a wrong one."),
    (403, "The caller may not do it."), (404, "There is no such thing."), (422, "A value that cannot be."))}


def create_app(settings: ServerSettings) -> FastAPI:
    """Return the application over the sessions of the settings. Its routes serve `app.state.lake`."""
    app = FastAPI(title="AACO", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
                  summary="Sessions of measurements: lists, tables, answers and comparisons.")
    app.state.lake = Lake(settings)
    for router in ROUTERS:
        app.include_router(router, prefix=API, responses=ERRORS)
    app.include_router(docs.router)
    pages.add(app, app.state.lake)
    app.include_router(prometheus.router, responses=ERRORS)  # where Prometheus looks for it
    problems.install(app, pages.look.failed)
    app.add_middleware(Guard, settings=settings, audit=Audit.open(settings.audit))
    return app
