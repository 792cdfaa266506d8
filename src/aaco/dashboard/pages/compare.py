"""Two sessions, or a session and a baseline: the verdict, and where the change sits. Nothing of it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from aaco import compare, compare_traces, imported, pipeline, root_cause
from aaco.compare import Request
from aaco.core import files
from aaco.core.errors import AacoError, UsageError
from aaco.core.session import Session
from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.site import Site
from aaco.dashboard.problems import Refusal
from aaco.report import tracediff
from aaco.report import verdict as report
from aaco.tracelake import baselines

OFFERED = 100  # sessions that are proposed; any other is taken by its id
MOST_ROWS = 15
Reference = Annotated[str, Query(max_length=300)]


def router(site: Site) -> APIRouter:
    """`/compare`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)

    @pages.get("/compare")
    def compared(baseline: Reference = "", session: Reference = "", why: bool = False) -> HTMLResponse:
        asked = {"baseline": baseline.strip(), "session": session.strip()}
        offered = [(each.session_id, " ".join(filter(None, (each.model, each.backend, each.tag))))
                   for each in site.index.entries()[:OFFERED] if each.status == "complete"]
        found, wrong = {}, None
        if all(asked.values()):
            try:
                found = _answer(site, asked["baseline"], asked["session"], why)
            except (AacoError, Refusal) as error:
                wrong = error
        return look.render("compare.html", here="compare", asked=asked, offered=offered, names=_names(site),
                           wrong=wrong, found=found)

    return pages


def _names(site: Site) -> list[str]:
    """The baselines that are there; a session of one's name is not looked for."""
    found = baselines.list_all(site.store) if files.is_folder(site.store) else []
    return [one.baseline.name for one in found if one.baseline]


def _answer(site: Site, baseline: str, session: str, why: bool) -> dict[str, Any]:
    """What the template shows of a comparison. Raises AacoError, Refusal."""
    after = site.session(session)
    if baseline in _names(site):
        return _judged(site, baseline, None, after, why)
    before = site.session(baseline)
    if before.id == after.id:
        raise UsageError("that is one session twice", "choose another on one side")
    kinds = imported.is_imported(before), imported.is_imported(after)
    if kinds[0] != kinds[1]:
        raise UsageError("a run and a trace of something else do not compare", "choose two runs, or two imports")
    return _traces(before, after) if all(kinds) else _judged(site, before.id, before, after, why)


def _judged(site: Site, name: str, before: Session | None, after: Session, why: bool) -> dict[str, Any]:
    """The verdict as `aaco diff` makes it, and on request its causes as `aaco root-cause` finds them."""
    analysis = site.settings.config.analysis
    current = compare.side(site.explained(after))
    reference = (compare.side(site.explained(before)) if before
                 else compare.reference_side(name, site.store, site.root, site.explained))
    request = Request(analysis.tolerance_pct, false_alarm_pct=analysis.false_alarm_pct)
    verdict = pipeline.judge(reference, current, site.settings, request)
    document = verdict.model_dump(mode="json")
    return {"kind": "verdict", "before": name, "after": after.id, "verdict": document,
            "rows": list(report.rows(document)), "causes": list(report.causes(document)),
            "why": _causes(site, name, after) if why or verdict.regression else None}


def _causes(site: Site, baseline: str, after: Session) -> dict[str, Any]:
    """The causes, or why they cannot be told."""
    try:
        return root_cause.why(after, baseline, site.explained, site.store, site.root).document()
    except AacoError as error:
        return {"why_none": error.what}


def _traces(before: Session, after: Session) -> dict[str, Any]:
    """What changed between two imported traces, exact in ns."""
    document = compare_traces.difference(before, after).document()
    tables = (("By family", [part for part in document["families"] if part["delta_ns"]], lambda part: part["family"]),
              ("By operation", document["groups"], tracediff.tail),
              ("By kernel", document["groups"], lambda group: group["kernel"]))
    return {"kind": "traces", "before": before.id, "after": after.id, "document": document,
            "relative_pct": tracediff.relative_pct(document), "account": tracediff.account(document),
            "tables": [(title, _rows(parts, key)) for title, parts, key in tables]}


def _rows(parts: list[Mapping[str, Any]], key: Any) -> list[tuple[str, dict[str, int]]]:
    rows = tracediff.summed(parts, lambda part: (key(part), ""))
    return [(name, row) for (name, _), row in rows[:MOST_ROWS]]
