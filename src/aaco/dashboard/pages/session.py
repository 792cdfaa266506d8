"""The page of a session: its main answers on one screen, and a link to the whole report."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from aaco.analytics.explanation import Explanation
from aaco.dashboard.api.answers import ALONE
from aaco.dashboard.pages import look
from aaco.dashboard.pages.site import Site
from aaco.dashboard.paths import without_folders
from aaco.report import format
from aaco.report.plots.plots import drawings
from aaco.report.renderers import html
from aaco.report.rows import Row
from aaco.report.sections import content, first_screen, tiles, truth

FIGURES = {"devices": "Devices over time", "latency_series": "Latency by iteration",
           "latency_histogram": "Distribution of latencies", "kernels": "Kernels that took most time"}


def add(pages: APIRouter, site: Site) -> None:
    """Add the routes `/sessions/ID` and `/sessions/ID/report`."""
    @pages.get("/sessions/{session_id}")
    def summary(session_id: str) -> HTMLResponse:
        session = site.session(session_id)
        explained = site.explained(session)
        return look.render("session.html", here="sessions", **head(site, session.id, explained), **_answers(explained))

    @pages.get("/sessions/{session_id}/report")
    def report(session_id: str) -> HTMLResponse:
        page = without_folders(html.render(site.explained(site.session(session_id))))
        return HTMLResponse(page, headers=look.HEADERS | ALONE)


def head(site: Site, session_id: str, explained: Explanation) -> dict[str, Any]:
    """Return the facts at the top of every page of a session."""
    model, backend = content.heading(explained)
    record = explained.record
    return {"id": session_id, "model": model, "backend": backend, "entry": site.entry(session_id), "tag": record["tag"],
            "machine": explained.machine.get("label") or explained.machine.get("id") or "",
            "imported": bool(explained.captures)}


def _answers(explained: Explanation) -> dict[str, Any]:
    verdict, figures = content.judged(explained), tiles.tiles(explained)
    drawn = drawings(explained)
    banners = content.banners(explained)
    severe = [text for text in banners if text.startswith(content.SEVERE)]
    return {
        "severe": severe, "notes": [text for text in banners if text not in severe],
        "tiles": [tile for tile in figures if not tile.why_absent],
        "unmeasured": {tile.label: tile.why_absent for tile in figures if tile.why_absent},
        "screen": first_screen.first_screen(explained),
        "bottleneck": [row for row in _other_rows(content.bottleneck(explained), explained)
                       if row.label != "Classification"],
        "summary": _other_rows(content.summary(explained), explained),
        "evidence": content.evidence(verdict) if verdict else [], "steps": content.next_steps(explained),
        "change": _present(content.change(explained)), "verdict": explained.verdict,
        "truth": truth.rows(explained.truth),
        "figures": [(title, Markup(drawn[name].inline())) for name, title in FIGURES.items()
                    if name in drawn]}


def _other_rows(rows: list[Row], explained: Explanation) -> list[Row]:
    """Return the rows that are neither a tile nor absent."""
    shown = tiles.labels(explained)
    return [row for row in _present(rows) if row.metric not in shown]


def _present(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.text.startswith(format.NA)]
