"""The page of what was tried on a session: how far each change came, and what does not apply."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from aaco.dashboard.pages import look
from aaco.dashboard.pages.session import head
from aaco.dashboard.pages.site import Site
from aaco.report.sections.findings import trials as view


def add(pages: APIRouter, site: Site) -> None:
    """Add the route `/sessions/ID/tried`."""
    @pages.get("/sessions/{session_id}/tried")
    def tried(session_id: str) -> HTMLResponse:
        session = site.session(session_id)
        explained = site.explained(session)
        document = explained.examined.get("trials")
        rows = [] if document is None else list(view.heading(document))
        return look.render("trials.html", here="sessions", **head(site, session.id, explained), document=document,
                           rows=rows, not_tried=view.by_reason(document["not_tried"]) if document else {})
