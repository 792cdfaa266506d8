"""What a session says of itself: its metrics, diagnosis, verdict, files, and the whole report as a document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from aaco.core.session import Session
from aaco.dashboard.lake import TheLake, TheSession, told
from aaco.dashboard.problems import missing
from aaco.governance.verdict import RegressionVerdict
from aaco.tracelake import documents, layout, manifest
from aaco.tracelake.forms.answers import Bottleneck
from aaco.tracelake.forms.evidence import Manifest, StoredReading

router = APIRouter(prefix="/sessions/{session_id}", tags=["answers"])


class Metrics(BaseModel):
    """Readings by name; one that was not measured has no value and says why."""

    schema_version: int
    metrics: dict[str, StoredReading]


@router.get("/metrics", response_model=Metrics, summary="Every metric's reading")
def metrics(found: TheSession, names: Annotated[str | None, Query(
        max_length=4000, description="only these, separated by commas", examples=["latency_p50_ms,throughput_per_s"])]
        = None) -> Response:
    """Value, unit and interval, or why it is absent, as they were sealed (metrics/derived_metrics.json)."""
    document = _kept(found, layout.DERIVED_METRICS)
    readings = {name: each for name, each in document.items() if isinstance(each, dict)}
    wanted = readings if names is None else dict.fromkeys(filter(None, names.split(",")))
    for name in wanted:
        if name not in readings:
            raise missing(f"session {found.id} has no metric {name[:80]!r}", f"GET /api/v1/sessions/{found.id}/metrics")
    return told({"schema_version": document["schema_version"], "metrics": {name: readings[name] for name in wanted}})


@router.get("/diagnosis", response_model=Bottleneck, summary="What the bottleneck is, with the evidence")
def diagnosis(found: TheSession) -> Response:
    """Metrics/bottleneck.json: the class that stands, evidence for and against, what is unknown, what to do."""
    return told(_kept(found, layout.BOTTLENECK))


@router.get("/verdict", response_model=RegressionVerdict, summary="Whether it was slower than its baseline")
def verdict(found: TheSession) -> Response:
    """Regress/verdict.json, where `aaco diff` kept one; GET /api/v1/compare judges without keeping."""
    return told(documents.as_form(found, layout.VERDICT, RegressionVerdict) or _absent(found, layout.VERDICT))


@router.get("/files", response_model=Manifest, summary="Its files with their SHA-256, and why others are absent")
def files(found: TheSession) -> Response:
    """manifest.json."""
    return told(_kept(found, manifest.NAME))


@router.get("/report", summary="The whole report as a document",
            responses={200: {"description": "As `aaco report --format json` prints it."}})
async def report(lake: TheLake, found: TheSession) -> Response:
    """Everything that a report shows. It is made on demand, which takes a second or so."""
    return told(await lake.in_turn(_report, found, lake.settings))


@router.get("/page", summary="The whole report as a page", response_class=Response,
            responses={200: {"content": {"text/html": {}}, "description": "One page that needs no other file."}})
async def page(lake: TheLake, found: TheSession, form: Annotated[Literal["html", "markdown"], Query()] = "html"
               ) -> Response:
    """As `aaco report --format html` writes it."""
    text = await lake.in_turn(_page, found, lake.settings, form)
    return Response(text, media_type=f"text/{form}")


def _report(found: Session, settings: Any) -> dict[str, Any]:
    from aaco import pipeline
    from aaco.report import document

    shown = document.render(pipeline.explain(found, settings))
    private = {"owner", "kept_by"}
    record = {name: value for name, value in shown["record"].items() if name not in private}
    return shown | {"folder": found.folder.name, "record": record}


def _page(found: Session, settings: Any, form: Literal["html", "markdown"]) -> str:
    from aaco import pipeline
    from aaco.report import forms

    return forms.render(pipeline.explain(found, settings), form, "plain")


def _kept(found: Session, name: str) -> dict[str, Any]:
    return documents.read(found, name) or _absent(found, name)


def _absent(found: Session, name: str) -> dict[str, Any]:
    """Raises Refusal with the reason that the manifest gives."""
    why = documents.read(found, manifest.NAME).get("absent", {}).get(name) if manifest.is_sealed(found) else \
        f"the session is {found.status}"
    raise missing(f"session {found.id} has no {name}: {why or 'nothing says why'}",
                  f"aaco analyze {found.id} makes answers anew, aaco diff a verdict")
