"""Which sessions there are, and what each was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, Field

from aaco.dashboard.lake import Lake, TheLake, TheSession, told
from aaco.tracelake.index import Choice, Entry

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
    """A page of the sessions, filtered and sorted. New, changed and removed ones show within half a second."""
    chosen = selection.choice().of(lake.index.entries())
    page = chosen[selection.offset:selection.offset + selection.limit]
    return told({"schema_version": 1, "total": len(chosen), "offset": selection.offset, "limit": selection.limit,
                 "sessions": [row(lake, each) for each in page]})


@router.get("/sessions/{session_id}", summary="One session's record")
def session(lake: TheLake, found: TheSession) -> Response:
    """What session.json says: the plan, the machine, when it ran, how it ended."""
    return told({"schema_version": 1, "session": row(lake, lake.entry(found.id)),
                 "record": found.record.model_dump(mode="json", exclude={"owner", "kept_by"})})


def row(lake: Lake, each: Entry) -> dict[str, Any]:
    """A session in a list, its folder below that of all sessions."""
    return each.row() | {"folder": each.folder.relative_to(lake.server.root).as_posix()}
