"""The history of measurements: every series with what became of it, and one series with its changes of level."""

from __future__ import annotations

from threading import Lock
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from aaco import histories
from aaco.core import files
from aaco.core.errors import NoBaseline
from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.site import Site
from aaco.dashboard.problems import missing
from aaco.governance.series.documents import WORST_FIRST
from aaco.governance.series.drift import Drift, Question
from aaco.report.levels import draw
from aaco.tracelake.history import NAME, Key

PAGE = 100  # series
SHOWN = 40  # sessions listed below a series
Named = Annotated[str, Query(max_length=1000)]


class Examined:
    """What became of every series of the store; looked into again when the store was written."""

    def __init__(self, site: Site) -> None:
        self._site, self._lock = site, Lock()
        self._kept: tuple[object, list[Drift]] | None = None

    def every(self) -> list[Drift]:
        """Of every series, the worst news first; empty where there is no store. Raises BadBundle, StorageError."""
        stamps = [path.stat().st_mtime_ns for path in (self._site.store / NAME, self._site.store / f"{NAME}-wal")
                  if files.is_file(path)]
        with self._lock:
            if self._kept is None or self._kept[0] != stamps:
                self._kept = stamps, self._examined() if stamps else []
            return self._kept[1]

    def _examined(self) -> list[Drift]:
        try:
            series = histories.of_store(self._site.store, histories.Choice())
        except NoBaseline:
            return []
        found, _, _ = histories.examine(series, Question())
        return sorted(found, key=lambda one: (WORST_FIRST.index(one.status), one.series.key))


def router(site: Site) -> APIRouter:
    """`/history`, and one series of it at `/history/series`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)
    examined = Examined(site)

    @pages.get("/history")
    def history(q: Annotated[str, Query(max_length=300)] = "", status: str = "",
                page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> HTMLResponse:
        every = examined.every()
        chosen = [one for one in every if q.lower() in f"{one.series.key.benchmark} {one.series.key.metric}".lower()
                  and status in ("", one.status)]
        part, pager = look.paged(chosen, page, PAGE)
        return look.render("history.html", here="history", asked={"q": q, "status": status}, states=WORST_FIRST,
                           rows=part, total=len(every), store=str(site.store), **pager)

    @pages.get("/history/series")
    def series(benchmark: Named, metric: Named, machine: Named = "", config: Named = "") -> HTMLResponse:
        key = Key(benchmark, metric, machine, config)
        found = next((one for one in examined.every() if one.series.key == key), None)
        if found is None:
            raise missing("no such history", "the list of histories")
        known = {each.session_id for each in site.index.entries()}
        newest = range(len(found.series.values) - 1, max(-1, len(found.series.values) - 1 - SHOWN), -1)
        return look.render("series.html", here="history", one=found, drawing=Markup(draw(found).inline()),
                           newest=newest, known=known)

    return pages
