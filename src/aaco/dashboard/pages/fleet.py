"""The page of the lake of a fleet: regressions, slow nodes, stragglers, heat map, trends and kernels."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from aaco.core.errors import NoBaseline
from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.site import Site
from aaco.dashboard.paths import without_folders
from aaco.fleet.scan import FleetFilter
from aaco.report.renderers import fleet_page

Name = Annotated[str, Query(max_length=300)]


def router(site: Site) -> APIRouter:
    """Return the route `/fleet`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)

    @pages.get("/fleet")
    def fleet(model: Name = "", device: Name = "") -> HTMLResponse:
        asked = {"model": model, "device": device}
        try:
            document = site.fleet.overview(FleetFilter(model or None, device or None))
        except NoBaseline:
            return look.render("fleet.html", here="fleet", asked=asked, held=None, body="")
        links = {entry.session_id: look.address(f"/sessions/{entry.session_id}") for entry in site.index.entries()}
        body = Markup(without_folders(fleet_page.body(document, links, "wide")))
        return look.render("fleet.html", here="fleet", asked=asked, held=document["status"], body=body)

    return pages
