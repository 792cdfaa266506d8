"""Routes to the answers of a session: metrics, diagnosis, verdict, files, and the whole report."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from aaco import pipeline
from aaco.core.session import Session
from aaco.dashboard.lake import TheLake, TheSession, respond
from aaco.dashboard.paths import without_folders
from aaco.dashboard.problems import missing
from aaco.governance.verdict_document import RegressionVerdict
from aaco.report.renderers import json_report, output_formats
from aaco.tracelake import documents, layout, manifest
from aaco.tracelake.document_schemas.answers import Bottleneck, StoredReading
from aaco.tracelake.document_schemas.evidence import Manifest

router = APIRouter(prefix="/sessions/{session_id}", tags=["answers"])


# The report carries its own policy. This one isolates its script from the rest of this site, in addition to the
# escaping of all that a bundle holds.
ALONE = {"Content-Security-Policy": "sandbox allow-scripts allow-popups allow-modals allow-downloads"}


class Metrics(BaseModel):
    """Readings by name; one that was not measured has no value and says why."""

    schema_version: int
    metrics: dict[str, StoredReading]


@router.get("/metrics", response_model=Metrics, summary="Every metric's reading")
def metrics(session: TheSession, names: Annotated[str | None, Query(
        max_length=4000, description="only these, separated by commas", examples=["latency_p50_ms,throughput_per_s"])]
        = None) -> Response:
    """Value, unit and interval, or why it is absent, as they were sealed (metrics/derived_metrics.json)."""
    document = _kept(session, layout.DERIVED_METRICS)
    readings = {name: reading for name, reading in document.items() if isinstance(reading, dict)}
    selected = readings if names is None else dict.fromkeys(filter(None, names.split(",")))
    for name in selected:
        if name not in readings:
            raise missing(f"session {session.id} has no metric {name[:80]!r}",
                          f"GET /api/v1/sessions/{session.id}/metrics")
    return respond({"schema_version": document["schema_version"],
                    "metrics": {name: readings[name] for name in selected}})


@router.get("/diagnosis", response_model=Bottleneck, summary="What the bottleneck is, with the evidence")
def diagnosis(session: TheSession) -> Response:
    """Metrics/bottleneck.json: the class that stands, evidence for and against, what is unknown, what to do."""
    return respond(_kept(session, layout.BOTTLENECK))


@router.get("/verdict", response_model=RegressionVerdict, summary="Whether it was slower than its baseline")
def verdict(session: TheSession) -> Response:
    """Regress/verdict.json, where `aaco diff` kept one; GET /api/v1/compare judges without keeping."""
    return respond(documents.as_form(session, layout.VERDICT, RegressionVerdict) or _absent(session, layout.VERDICT))


@router.get("/files", response_model=Manifest, summary="Its files with their SHA-256, and why others are absent")
def files(session: TheSession) -> Response:
    """manifest.json."""
    return respond(_kept(session, manifest.NAME))


@router.get("/report", summary="The whole report as a document",
            responses={200: {"description": "As `aaco report --format json` prints it."}})
async def report(lake: TheLake, session: TheSession) -> Response:
    """Everything that a report shows. It is made on demand, which takes a second or so."""
    return respond(await lake.in_turn(_report, session, lake.settings))


@router.get("/page", summary="The whole report as a page", response_class=Response,
            responses={200: {"content": {"text/html": {}}, "description": "One page that needs no other file."}})
async def page(lake: TheLake, session: TheSession, form: Annotated[Literal["html", "markdown"], Query()] = "html"
               ) -> Response:
    """As `aaco report --format html` writes it."""
    text = await lake.in_turn(_page, session, lake.settings, form)
    return Response(without_folders(text), media_type=f"text/{form}", headers=ALONE)


def _report(session: Session, settings: Any) -> dict[str, Any]:
    shown = json_report.render(pipeline.explain(session, settings))
    private = {"owner", "kept_by"}
    record = {name: value for name, value in shown["record"].items() if name not in private}
    return shown | {"folder": session.folder.name, "record": record}


def _page(session: Session, settings: Any, form: Literal["html", "markdown"]) -> str:
    return output_formats.render(pipeline.explain(session, settings), form, "plain")


def _kept(session: Session, name: str) -> dict[str, Any]:
    return documents.read(session, name) or _absent(session, name)


def _absent(session: Session, name: str) -> dict[str, Any]:
    """Raise Refusal with the reason from the manifest."""
    why = documents.read(session, manifest.NAME).get("absent", {}).get(name) if manifest.is_sealed(session) else \
        f"the session is {session.status}"
    raise missing(f"session {session.id} has no {name}: {why or 'nothing says why'}",
                  f"aaco analyze {session.id} recomputes answers; aaco diff judges")
