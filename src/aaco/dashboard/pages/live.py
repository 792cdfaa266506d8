"""The page of a running session: progress and the newest latencies, from the API's stream of events."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from aaco.dashboard.pages import look
from aaco.dashboard.pages.site import Site


def add(pages: APIRouter, site: Site) -> None:
    """Add the route `/sessions/ID/live`."""
    @pages.get("/sessions/{session_id}/live")
    def live(session_id: str) -> HTMLResponse:
        session, entry = site.session(session_id), site.entry(session_id)
        return look.render("live.html", here="sessions", id=session.id, entry=entry, tag=entry.tag, machine="",
                           model=entry.model or "session", backend=entry.backend, imported=entry.backend == "imported")
