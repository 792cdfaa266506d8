"""The pages of the history of measurements: every series with its status, and one series with its level changes."""

from __future__ import annotations

from threading import Lock
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from aaco.core import files
from aaco.core.errors import NoBaseline
from aaco.core.words import in_percent
from aaco.dashboard.pages import look
from aaco.dashboard.pages.site import Site
from aaco.dashboard.problems import missing
from aaco.governance.changepoints.documents import WORST_FIRST
from aaco.governance.changepoints.drift import Drift, Question, Series
from aaco.report import format
from aaco.report.plots.levels import draw
from aaco.tracelake.history.history import NAME, Key
from aaco.workflows import history as histories

PAGE = 100  # series
SHOWN = 40  # sessions listed below a series
Named = Annotated[str, Query(max_length=1000)]


def happened(drift: Drift) -> str:
    """Return what became of a series, in words that fit a column: "level shift +8.0 % on 2026-11-20"."""
    if drift.status == "drifting" and drift.trend:
        return f"drifts {in_percent(drift.trend.slope_pct, sign='+')} a session"
    if drift.news is None:
        return drift.why
    since = "" if drift.status in ("regressed", "improved") else "steady since the "
    return f"{since}level shift {format.change(drift.news.change_pct)} {when(drift.series, drift.news.index)}"


def when(series: Series, index: int) -> str:
    """Return the day of a session of the series, or its name if its time is not recorded."""
    day = date_of(series, index)
    return f"on {day}" if day else f"at {format.cut(series.session_ids[index], 40)}"


def date_of(series: Series, index: int) -> str:
    """Return the day of a session of the series, UTC; empty if its time is not recorded."""
    time_ns = series.times_ns[index]
    return format.day(time_ns) if time_ns else ""


class ExaminedHistories:
    """The drift of every series of the store, computed again when the store changes."""

    def __init__(self, site: Site) -> None:
        self._site, self._lock = site, Lock()
        self._kept: tuple[object, list[Drift]] | None = None

    def every(self) -> list[Drift]:
        """Return the drift of every series, worst first; empty without a store. Raise BadBundle, StorageError."""
        stamps = [path.stat().st_mtime_ns for path in (self._site.store / NAME, self._site.store / f"{NAME}-wal")
                  if files.is_file(path)]
        with self._lock:
            if self._kept is None or self._kept[0] != stamps:
                self._kept = stamps, self._examine() if stamps else []
            return self._kept[1]

    def _examine(self) -> list[Drift]:
        try:
            series = histories.of_store(self._site.store, histories.HistoryFilter())
        except NoBaseline:
            return []
        drifts, _, _ = histories.examine(series, Question())
        return sorted(drifts, key=lambda drift: (WORST_FIRST.index(drift.status), drift.series.key))


def add(pages: APIRouter, site: Site) -> None:
    """Add the routes `/history` and `/history/series`."""
    examined = ExaminedHistories(site)

    @pages.get("/history")
    def history(q: Annotated[str, Query(max_length=300)] = "", status: str = "",
                page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> HTMLResponse:
        drifts = examined.every()
        matching = [drift for drift in drifts
                    if q.lower() in f"{drift.series.key.benchmark} {drift.series.key.metric}".lower()
                    and status in ("", drift.status)]
        part, pager = look.paged(matching, page, PAGE)
        return look.render("history.html", here="history", asked={"q": q, "status": status}, states=WORST_FIRST,
                           rows=part, total=len(drifts), happened=happened, **pager)

    @pages.get("/history/series")
    def series(benchmark: Named, metric: Named, machine: Named = "", config: Named = "") -> HTMLResponse:
        key = Key(benchmark, metric, machine, config)
        drift = next((drift for drift in examined.every() if drift.series.key == key), None)
        if drift is None:
            raise missing("no such history", "the list of histories")
        session_ids = {entry.session_id for entry in site.index.entries()}
        newest = range(len(drift.series.values) - 1, max(-1, len(drift.series.values) - 1 - SHOWN), -1)
        return look.render("series.html", here="history", one=drift, drawing=Markup(draw(drift).inline()),
                           newest=newest, known=session_ids, happened=happened(drift), date_of=date_of)
