"""The page of what was tried on a session: how far each change came, and what does not apply."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.session import head
from aaco.dashboard.pages.site import Site
from aaco.report.sections.findings import trials as view


def router(site: Site) -> APIRouter:
    """Return the route `/sessions/ID/tried`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)

    @pages.get("/sessions/{session_id}/tried")
    def tried(session_id: str) -> HTMLResponse:
        session = site.session(session_id)
        explained = site.explained(session)
        document = explained.examined.get("trials")
        rows = [] if document is None else list(view.heading(document))
        return look.render("trials.html", here="sessions", **head(site, session.id, explained), document=document,
                           rows=rows, not_tried=_reasons(document))

    return pages


def _reasons(document: Any) -> dict[str, list[str]]:
    return {} if document is None else view.by_reason(document["not_tried"])
