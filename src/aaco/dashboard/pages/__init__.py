"""The pages of the dashboard, on the application that serves the REST API. They only read."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from aaco.dashboard.lake import Lake
from aaco.dashboard.pages import compare, fleet, history, kernels, live, look, overview, session, timeline, trials
from aaco.dashboard.pages.site import Site

PARTS = (overview, session, live, kernels, timeline, trials, compare, history, fleet)


def add(app: FastAPI, lake: Lake) -> None:
    """Add every page to the application."""
    site, pages = Site(lake), APIRouter(route_class=look.PageRoute, include_in_schema=False)
    for part in PARTS:
        part.add(pages, site)
    app.include_router(look.router)
    app.include_router(pages)
