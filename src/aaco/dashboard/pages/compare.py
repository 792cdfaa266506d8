"""The page of a comparison: two sessions, or a session and a baseline. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from aaco.core import files
from aaco.core.errors import AacoError, UsageError
from aaco.core.session import Session
from aaco.dashboard.pages import look
from aaco.dashboard.pages.site import Site
from aaco.dashboard.problems import Refusal
from aaco.report.sections import tracediff
from aaco.report.sections import verdict as report
from aaco.tracelake.history import baselines
from aaco.workflows import compare_runs, compare_traces, judge, root_cause
from aaco.workflows.compare_runs import DiffRequest

OFFERED = 100  # sessions in the list of proposals; others are entered by id
MOST_ROWS = 15
Reference = Annotated[str, Query(max_length=300)]


def add(pages: APIRouter, site: Site) -> None:
    """Add the route `/compare`."""
    @pages.get("/compare")
    def compared(baseline: Reference = "", session: Reference = "", why: bool = False) -> HTMLResponse:
        asked = {"baseline": baseline.strip(), "session": session.strip()}
        offered = [(entry.session_id, " ".join(filter(None, (entry.model, entry.backend, entry.tag))))
                   for entry in site.index.entries()[:OFFERED] if entry.status == "complete"]
        answer: dict[str, Any] = {}
        wrong: AacoError | None = None
        if all(asked.values()):
            try:
                answer = _answer(site, asked["baseline"], asked["session"], why)
            except AacoError as error:
                wrong = error
            except Refusal as error:  # its remedy is of the API
                wrong = UsageError(error.what)
        return look.render("compare.html", here="compare", asked=asked, offered=offered, names=_names(site),
                           wrong=wrong, found=answer)


def _names(site: Site) -> list[str]:
    """Return the names of the baselines. A name among them is never looked up as a session."""
    listed = baselines.list_all(site.store) if files.is_folder(site.store) else []
    return [listing.baseline.name for listing in listed if listing.baseline]


def _answer(site: Site, baseline: str, session: str, why: bool) -> dict[str, Any]:
    """Return what the template shows of a comparison. Raise AacoError, Refusal."""
    after = site.session(session)
    if baseline in _names(site):
        return _judged(site, baseline, None, after, why)
    before = site.session(baseline)
    if before.id == after.id:
        raise UsageError("that is one session twice", "choose another on one side")
    kinds = before.record.is_import, after.record.is_import
    if kinds[0] != kinds[1]:
        raise UsageError("a run and a trace of something else do not compare", "choose two runs, or two imports")
    return _traces(before, after) if all(kinds) else _judged(site, before.id, before, after, why)


def _judged(site: Site, name: str, before: Session | None, after: Session, why: bool) -> dict[str, Any]:
    """Return the verdict of `aaco diff`, and on request the causes of `aaco root-cause`."""
    analysis = site.settings.config.analysis
    current = compare_runs.side(site.explained(after))
    reference = (compare_runs.side(site.explained(before)) if before
                 else compare_runs.reference_side(name, site.store, site.root, site.explained))
    request = DiffRequest(analysis.tolerance_pct, false_alarm_pct=analysis.false_alarm_pct)
    verdict = judge.judge(reference, current, site.settings, request)
    document = verdict.model_dump(mode="json")
    return {"kind": "verdict", "before": name, "after": after.id, "verdict": document,
            "rows": list(report.rows(document)), "causes": list(report.causes(document)),
            "why": _causes(site, name, after, request) if why or verdict.regression else None}


def _causes(site: Site, baseline: str, after: Session, request: DiffRequest) -> dict[str, Any]:
    """Return the causes, or why there are none."""
    try:
        return root_cause.why(after, baseline, site.explained, site.store, site.root, request).document()
    except AacoError as error:
        return {"why_none": error.what}


def _traces(before: Session, after: Session) -> dict[str, Any]:
    """Return what changed between two imported traces, in ns."""
    document = compare_traces.difference(before, after).document()
    tables = (("By family", [part for part in document["families"] if part["delta_ns"]], lambda part: part["family"]),
              ("By operation", document["groups"], tracediff.tail),
              ("By kernel", document["groups"], lambda group: group["kernel"]))
    return {"kind": "traces", "before": before.id, "after": after.id, "document": document,
            "spans": [(span, tracediff.relative_pct(span)) for span in tracediff.spans_of(document)],
            "account": tracediff.account(document),
            "tables": [(title, _rows(parts, key)) for title, parts, key in tables]}


def _rows(parts: list[Mapping[str, Any]], key: Any) -> list[tuple[str, dict[str, int]]]:
    rows = tracediff.summed(parts, lambda part: (key(part), ""))
    return [(name, row) for (name, _), row in rows[:MOST_ROWS]]
