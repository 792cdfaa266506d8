"""The page of the lake of a fleet: regressions, slow nodes, stragglers, heat map, trends and kernels."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from aaco.core.errors import NoBaseline
from aaco.dashboard.api.fleet import Labels, chosen
from aaco.dashboard.pages import look
from aaco.dashboard.pages.site import Site
from aaco.dashboard.paths import without_folders
from aaco.report import format
from aaco.report.renderers import fleet_page
from aaco.report.sections import fleet as sections

Name = Annotated[str, Query(max_length=300)]


def add(pages: APIRouter, site: Site) -> None:
    """Add the route `/fleet`."""
    @pages.get("/fleet")
    def fleet(model: Name = "", device: Name = "", label: Labels = ()) -> HTMLResponse:
        asked = {"model": model, "device": device, "labels": [pair for pair in label if pair]}
        try:
            document = site.fleet.overview(chosen(model, device, label))
        except NoBaseline:
            return look.render("fleet.html", here="fleet", asked=asked, held=None, body="")
        links = {entry.session_id: look.address(f"/sessions/{entry.session_id}") for entry in site.index.entries()}
        labels = [sections.label(row) for row in document["labels"]["labels"]]
        links |= {format.cut(pair, sections.LABEL): look.address("/fleet", label=pair) for pair in labels}
        body = Markup(without_folders(fleet_page.body(document, links, "wide")))
        return look.render("fleet.html", here="fleet", asked=asked, held=document["status"], labels=labels, body=body)
