"""Routes to the list of sessions and to the summary of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, Field

from aaco.core.session import Session
from aaco.dashboard.lake import TheLake, TheSession, encode, respond
from aaco.dashboard.problems import JSON
from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake import documents, layout, manifest
from aaco.tracelake.document_schemas.answers import StoredReading
from aaco.tracelake.index import Choice, Entry, stamp

HEADLINE = ("latency_p50_ms", "latency_p99_ms", "throughput_per_s", "gpu_active_ratio", "launch_tax_pct",
            "kernel_amplification_ratio", "compute_health_index")
MOST_HELD = 10_000  # summaries kept in memory, a few kB each
OF_BOTTLENECK = ("bottleneck_class", "confidence", "top_evidence")  # what its document cannot be without

router = APIRouter(tags=["sessions"])

Sort = Literal["created_utc", "session_id", "status", "model", "backend", "tag"]
Status = Literal["running", "complete", "incomplete", "failed", "unreadable"]
Time = Annotated[datetime, AfterValidator(lambda time: time if time.tzinfo else time.replace(tzinfo=UTC))]


class SessionRow(BaseModel):
    """A session in a list."""

    session_id: str = Field(examples=["20260101_120000_1a2b3c"])
    status: Status
    model: str = Field(examples=["resnet50"])
    backend: str = Field(examples=["cpu"])
    tag: str
    created_utc: str | None
    finished_utc: str | None
    folder: str = Field(description="below the folder of sessions")
    failure: str | None = Field(description="why it failed, or cannot be read")


class SessionList(BaseModel):
    """A page of a list."""

    schema_version: int = 1
    total: int = Field(description="sessions that were asked for, on all pages")
    offset: int
    limit: int
    sessions: list[SessionRow]


class Summary(BaseModel):
    """A session at a glance; what it has not come to is null, or not among the metrics."""

    schema_version: int = 1
    session: SessionRow
    record: dict[str, Any] = Field(description="session.json")
    bottleneck_class: str | None
    verdict_status: str | None = Field(description="of the last `aaco diff`")
    metrics: dict[str, StoredReading]


class Selection(BaseModel):
    """Which sessions, in which order, and which page of them."""

    model_config = {"extra": "forbid"}
    tag: str | None = Field(None, max_length=300, description="of this tag", examples=["nightly"])
    model: str | None = Field(None, max_length=300, description="of this model", examples=["resnet50"])
    backend: str | None = Field(None, max_length=300, description="on this backend, or `imported`", examples=["cpu"])
    status: Status | None = Field(None, examples=["complete"])
    since: Time | None = Field(None, description="created then or later", examples=["2026-01-01T00:00:00Z"])
    until: Time | None = Field(None, description="created before then")
    text: str | None = Field(None, max_length=300, description="in the id or the tag")
    sort: Sort = "created_utc"
    order: Literal["asc", "desc"] = "desc"
    offset: int = Field(0, ge=0, le=2**31)
    limit: int = Field(50, ge=1, le=1000)

    def choice(self) -> Choice:
        """Return the selection in the form that the index takes."""
        return Choice(self.tag, self.model, self.backend, self.status, self.since, self.until, self.text, self.sort,
                      self.order == "desc")


@router.get("/sessions", response_model=SessionList, summary="List sessions, newest first")
def sessions(lake: TheLake, selection: Annotated[Selection, Query()]) -> Response:
    """A page of the sessions, filtered and sorted. New, changed and removed ones show within a second."""
    matching = selection.choice().of(lake.index.entries())
    page = matching[selection.offset:selection.offset + selection.limit]
    return respond({"schema_version": 1, "total": len(matching), "offset": selection.offset, "limit": selection.limit,
                    "sessions": [row(entry) for entry in page]})


@router.get("/sessions/{session_id}", response_model=Summary, summary="One session's record and first numbers")
async def session(lake: TheLake, session: TheSession) -> Response:
    """The plan, the machine, how it ended; the bottleneck's class; the verdict's status; and the HEADLINE metrics."""
    now = (stamp(session.folder), stamp(session.folder, manifest.NAME))  # whatever changes, the manifest does
    cached = lake.summaries.get(session.folder)
    if cached is None or cached[0] != now:
        document = _summary(session, lake.entry(session.id))  # too short to be worth a thread
        cached = now, encode(document)
        if document["session"]["status"] != "running":  # which may end without a word
            if len(lake.summaries) >= MOST_HELD:
                lake.summaries.clear()
            lake.summaries[session.folder] = cached
    return Response(cached[1], media_type=JSON)


def _summary(session: Session, entry: Entry) -> dict[str, Any]:
    readings = documents.some(session, layout.DERIVED_METRICS, HEADLINE)
    verdict = documents.as_form(session, layout.VERDICT, RegressionVerdict) or {}
    return {"schema_version": 1, "session": row(entry),
            "record": session.record.model_dump(mode="json", exclude={"owner", "kept_by"}),
            "bottleneck_class": documents.some(session, layout.BOTTLENECK, OF_BOTTLENECK)
            .get("bottleneck_class"),
            "verdict_status": verdict.get("status"),
            "metrics": {name: readings[name] for name in HEADLINE if name in readings}}


def row(entry: Entry) -> dict[str, Any]:
    """Return the row of a session in a list, with its folder relative to the folder of sessions."""
    return entry.row() | {"folder": f"{entry.folder.parent.name}/{entry.folder.name}"}
