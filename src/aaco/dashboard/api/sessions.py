"""Which sessions there are, and what each was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, Field

from aaco.core.session import Session
from aaco.dashboard.lake import ENCODER, TheLake, TheSession, told
from aaco.dashboard.problems import JSON
from aaco.governance.verdict import RegressionVerdict
from aaco.tracelake import documents, layout, manifest
from aaco.tracelake.forms.answers import Bottleneck
from aaco.tracelake.forms.evidence import StoredReading
from aaco.tracelake.index import Choice, Entry, stamp

HEADLINE = ("latency_p50_ms", "latency_p99_ms", "throughput_per_s", "gpu_active_ratio", "launch_tax_pct",
            "kernel_amplification_ratio", "compute_health_index")
MOST_HELD = 10_000  # summaries kept in memory, a few kB each

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
        """As the index takes it."""
        return Choice(self.tag, self.model, self.backend, self.status, self.since, self.until, self.text, self.sort,
                      self.order == "desc")


@router.get("/sessions", response_model=SessionList, summary="List sessions, newest first")
def sessions(lake: TheLake, selection: Annotated[Selection, Query()]) -> Response:
    """A page of the sessions, filtered and sorted. New, changed and removed ones show within a second."""
    chosen = selection.choice().of(lake.index.entries())
    page = chosen[selection.offset:selection.offset + selection.limit]
    return told({"schema_version": 1, "total": len(chosen), "offset": selection.offset, "limit": selection.limit,
                 "sessions": [row(each) for each in page]})


@router.get("/sessions/{session_id}", response_model=Summary, summary="One session's record and first numbers")
async def session(lake: TheLake, found: TheSession) -> Response:
    """The plan, the machine, how it ended; the bottleneck's class; the verdict's status; and the HEADLINE metrics."""
    now = (stamp(found.folder), stamp(found.folder, manifest.NAME))  # whatever is written anew, the manifest is, too
    held = lake.summaries.get(found.folder)
    if held is None or held[0] != now:
        document = _summary(found, lake.entry(found.id))  # too short to be worth a thread
        held = now, ENCODER.encode(document)
        if document["session"]["status"] != "running":  # which may end without a word
            if len(lake.summaries) >= MOST_HELD:
                lake.summaries.clear()
            lake.summaries[found.folder] = held
    return Response(held[1], media_type=JSON)


def _summary(found: Session, listed: Entry) -> dict[str, Any]:
    readings = documents.some(found, layout.DERIVED_METRICS, HEADLINE)
    verdict = documents.as_form(found, layout.VERDICT, RegressionVerdict) or {}
    return {"schema_version": 1, "session": row(listed),
            "record": found.record.model_dump(mode="json", exclude={"owner", "kept_by"}),
            "bottleneck_class": documents.some(found, layout.BOTTLENECK, list(Bottleneck.model_fields))
            .get("bottleneck_class"),
            "verdict_status": verdict.get("status"),
            "metrics": {name: readings[name] for name in HEADLINE if name in readings}}


def row(each: Entry) -> dict[str, Any]:
    """A session in a list, its folder below that of all sessions."""
    return each.row() | {"folder": f"{each.folder.parent.name}/{each.folder.name}"}
