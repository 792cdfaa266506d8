"""The page of all sessions: filtered by words, model, backend and state; running ones, and ones that became slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from aaco.core.errors import AacoError, UsageError
from aaco.dashboard.pages import look
from aaco.dashboard.pages.site import Site, glance, judged
from aaco.tracelake.index import Choice, Entry

PAGE = 50  # sessions
RECENT = 100  # sessions whose verdicts are read
MOST_NEWS = 6
MOST_NAMES = 200  # models or backends in a menu
STATES = ("complete", "running", "failed", "incomplete", "unreadable")
COLUMNS = (("session_id", "Session"), ("status", "State"), ("model", "Model"), ("backend", "Backend"), ("tag", "Tag"))
Column = Literal["session_id", "created_utc", "status", "model", "backend", "tag"]


def add(pages: APIRouter, site: Site) -> None:
    """Add the route `/`, and the one from two ticked sessions to their comparison."""
    @pages.get("/")
    def overview(q: Annotated[str, Query(max_length=200)] = "", model: str = "", backend: str = "", status: str = "",
                 sort: Column = "created_utc", order: Literal["asc", "desc"] = "desc",
                 page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> HTMLResponse:
        entries = site.index.entries()
        choice = Choice(model=model or None, backend=backend or None, status=status or None, text=q or None, by=sort,
                        descending=order == "desc")
        matching = choice.of(entries)
        part, pager = look.paged(matching, page, PAGE)
        asked = {"q": q, "model": model, "backend": backend, "status": status, "sort": sort, "order": order}
        return look.render(
            "overview.html", here="sessions", total=len(entries), **pager,
            rows=[glance(entry) for entry in part], asked=asked, columns=COLUMNS, states=STATES,
            models=_names(entries, "model"), backends=_names(entries, "backend"),
            running=[entry for entry in entries[:RECENT] if entry.status == "running"], **_news(entries))

    @pages.get("/pick")
    def pick(session: Annotated[list[str], Query(max_length=50)] = []) -> RedirectResponse:  # noqa: B006
        """Redirect to the comparison of two ticked sessions; the older one is the baseline."""
        if len(session) != 2:
            raise UsageError(f"{len(session)} sessions are ticked, a comparison takes two", "go back and tick two")
        before, after = sorted(session, key=lambda session_id: site.entry(session_id).created_utc or "")
        return RedirectResponse(look.address("/compare", baseline=before, session=after), 303)


def _names(entries: Sequence[Entry], field: str) -> list[str]:
    return sorted({getattr(entry, field) for entry in entries} - {""})[:MOST_NAMES]


def _news(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the newest session, and the recent ones with a regression as verdict."""
    slower, counts = [], Counter[str]()
    for entry in entries[:RECENT]:
        try:
            judgement = judged(entry)
        except AacoError:  # its own page says what is wrong with it
            continue
        counts.update([judgement["verdict"]] if judgement else [])
        if judgement.get("verdict") == "regressed":
            slower.append(entry.row() | judgement)
    newest = next((entry for entry in entries if entry.status != "unreadable"), None)
    return {"newest": glance(newest) if newest else None, "slower": slower[:MOST_NEWS], "many_slower": len(slower),
            "judged": dict(counts), "looked": min(RECENT, len(entries))}
