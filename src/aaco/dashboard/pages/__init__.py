"""The dashboard's pages: rendered here, on the application that serves the REST API, and only reading."""

from __future__ import annotations

from fastapi import FastAPI

from aaco.dashboard.lake import Lake
from aaco.dashboard.pages import compare, history, kernels, live, look, overview, session, timeline
from aaco.dashboard.pages.site import Site

PARTS = (overview, session, live, kernels, timeline, compare, history)


def add(app: FastAPI, lake: Lake) -> None:
    """Put every page onto the application."""
    site = Site(lake)
    app.include_router(look.router)
    for part in PARTS:
        app.include_router(part.router(site))
