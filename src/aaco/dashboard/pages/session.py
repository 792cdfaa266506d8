"""One session: its main answers on one screen, and the whole report behind a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from aaco.analytics.explanation import Explanation
from aaco.core import registry
from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.site import Site
from aaco.report import content, format, html
from aaco.report.plots import drawings
from aaco.report.rows import Row

FIGURES = {"devices": "Devices over time", "latency_series": "Latency by iteration",
           "latency_histogram": "Distribution of latencies", "kernels": "Kernels that took most time"}
TILES = {"Median latency": "latency_p50_ms", "99th percentile": "latency_p99_ms",
         "Throughput, samples": "throughput_per_s", "GPU active": "gpu_active_ratio"}
OF_A_TRACE = {"GPU active": "gpu_active_ratio", "Launch tax": "launch_tax_pct", "Short kernels": "microkernel_pct",
              "Kernels at once": "gpu_concurrency"}
# The report is a page of its own with its own policy in it; this one keeps its script from everything of this site,
# though what a bundle holds could at worst be text in it.
ALONE = "sandbox allow-scripts allow-popups allow-modals allow-downloads"


@dataclass(frozen=True)
class Tile:
    """A figure, with its interval or band beside it; or why it is absent."""

    name: str
    value: str
    note: str
    why_absent: str
    meaning: str


def router(site: Site) -> APIRouter:
    """`/sessions/ID` and its `/report`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)

    @pages.get("/sessions/{session_id}")
    def summary(session_id: str) -> HTMLResponse:
        found = site.session(session_id)
        explained = site.explained(found)
        return look.render("session.html", here="sessions", **head(site, found.id, explained), **_answers(explained))

    @pages.get("/sessions/{session_id}/report")
    def report(session_id: str) -> HTMLResponse:
        page = html.render(site.explained(site.session(session_id)))
        return HTMLResponse(page, headers=look.HEADERS | {"Content-Security-Policy": ALONE})

    return pages


def head(site: Site, session_id: str, explained: Explanation) -> dict[str, Any]:
    """What stands above every page of a session."""
    model, backend = content.heading(explained)
    record = explained.record
    return {"id": session_id, "model": model, "backend": backend, "entry": site.entry(session_id), "tag": record["tag"],
            "machine": explained.machine.get("label") or explained.machine.get("id") or "",
            "imported": bool(explained.captures)}


def _answers(explained: Explanation) -> dict[str, Any]:
    verdict = content.judged(explained)
    drawn = drawings(explained)
    told = content.banners(explained)
    severe = told[:1] if explained.status != "complete" else []  # the first says that the run is not whole
    return {
        "severe": severe, "notes": told[len(severe):],
        "tiles": [_tile(explained, *one) for one in _tiles(explained).items()],
        "label": explained.diagnosis.label.replace("_", " "), "why": explained.diagnosis.abstained_because,
        "bottleneck": _without_tiles(content.bottleneck(explained), explained)[1:],
        "summary": _rest(content.summary(explained), explained),
        "evidence": content.evidence(verdict) if verdict else [], "steps": content.next_steps(explained),
        "change": content.change(explained), "judged": explained.verdict["status"] if explained.verdict else "",
        "truth": content.trace_truth(explained),
        "figures": [(title, Markup(drawn[name].inline())) for name, title in FIGURES.items()
                    if name in drawn]}


def _tiles(explained: Explanation) -> dict[str, str]:
    return OF_A_TRACE if explained.captures else TILES


def _tile(explained: Explanation, name: str, metric: str) -> Tile:
    found = explained.readings[metric]
    meaning = registry.METRICS[metric].meaning
    if found.value is None:
        return Tile(name, "", "", found.why_absent, meaning)
    value, _, interval = format.reading(found).partition(" [")
    note = f"95 % interval {interval.rstrip(']').replace(', ', ' to ')}" if interval else found.band
    return Tile(name, value, note, "", meaning)


def _rest(rows: list[Row], explained: Explanation) -> list[Row]:
    """The rows of the summary that are no tile, and not absent."""
    return [row for row in _without_tiles(rows, explained) if not row.text.startswith("absent")]


def _without_tiles(rows: list[Row], explained: Explanation) -> list[Row]:
    shown = set(_tiles(explained).values())
    return [row for row in rows if row.metric not in shown]
