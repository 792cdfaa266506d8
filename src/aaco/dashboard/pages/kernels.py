"""The page of a session's kernels, summed by name: sorted, filtered, in pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from aaco.dashboard.pages import look
from aaco.dashboard.pages.session import head
from aaco.dashboard.pages.site import Site
from aaco.report.sections import kernels

PAGE = 100  # kernels
Column = Literal["kernel_name", "family", "total_ns", "calls", "mean_ns", "p50_ns", "p99_ns"]
COLUMNS = (("total_ns", "Total"), ("calls", "Calls"), ("mean_ns", "Mean"), ("p50_ns", "Median"), ("p99_ns", "p99"))


def add(pages: APIRouter, site: Site) -> None:
    """Add the route `/sessions/ID/kernels`."""
    @pages.get("/sessions/{session_id}/kernels")
    def listed(session_id: str, q: Annotated[str, Query(max_length=300)] = "", family: str = "",
               sort: Column = "total_ns", order: Literal["asc", "desc"] = "desc",
               page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> HTMLResponse:
        session = site.session(session_id)
        explained = site.explained(session)
        groups = kernels.groups(explained)
        matching = _sorted([row for row in groups if _matches(row, q, family)], sort, order == "desc")
        part, pager = look.paged(matching, page, PAGE)
        asked = {"q": q, "family": family, "sort": sort, "order": order}
        return look.render(
            "kernels.html", here="sessions", **head(site, session.id, explained), asked=asked, total=len(groups),
            rows=part, **pager, columns=COLUMNS, families=list(kernels.families(explained)),
            place=kernels.place(explained), why_none="" if groups else kernels.why_none(explained),
            skew_notes=kernels.skew_notes(explained),
            shown_ns=sum(row["total_ns"] for row in matching), total_ns=sum(row["total_ns"] for row in groups))


def _matches(row: dict[str, Any], text: str, family: str) -> bool:
    return text.lower() in row["kernel_name"].lower() and family in ("", row["family"] or "unknown family")


def _sorted(rows: list[dict[str, Any]], by: str, descending: bool) -> list[dict[str, Any]]:
    """Return the sorted rows. Rows without a value come last in both orders."""
    valued = [row for row in rows if row[by] is not None]
    return [*sorted(valued, key=lambda row: row[by], reverse=descending), *(row for row in rows if row[by] is None)]
