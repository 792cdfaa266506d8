"""A run while it is at work: how far it is, and its newest latencies, told by the API's stream of events."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.site import Site


def router(site: Site) -> APIRouter:
    """`/sessions/ID/live`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)

    @pages.get("/sessions/{session_id}/live")
    def live(session_id: str) -> HTMLResponse:
        found, entry = site.session(session_id), site.entry(session_id)
        return look.render("live.html", here="sessions", id=found.id, entry=entry, tag=entry.tag, machine="",
                           model=entry.model or "session", backend=entry.backend, imported=entry.backend == "imported")

    return pages
