"""Routes to a session's tables, as pages of JSON or Arrow, and to SQL over them in a separate process."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel, Field

from aaco.core import tables as specs
from aaco.core.redaction.columns import redact_table
from aaco.dashboard import apart
from aaco.dashboard.lake import ENCODER, TheLake, TheSession, respond
from aaco.dashboard.problems import JSON, missing
from aaco.tracelake import queries
from aaco.tracelake.queries import QueryableSession

router = APIRouter(prefix="/sessions/{session_id}", tags=["tables"])

ARROW = "application/vnd.apache.arrow.stream"
Format = Annotated[Literal["json", "arrow"], Query(description="JSON, or an Arrow IPC stream")]
FORMS: dict[int | str, dict[str, Any]] = {200: {"content": {ARROW: {}}, "description": "Rows, as JSON or as Arrow."}}


class Column(BaseModel):
    """A column of a table."""

    name: str = Field(examples=["dur_ns"])
    type: str = Field(examples=["int64"])
    meaning: str


class TableRow(BaseModel):
    """A table that the session has."""

    name: str = Field(examples=["kernels"])
    rows: int
    meaning: str
    columns: list[Column]


class TableList(BaseModel):
    """The tables that have rows."""

    schema_version: int = 1
    tables: list[TableRow]


class Page(BaseModel):
    """Rows of a table, each a list in the order of the columns."""

    schema_version: int = 1
    columns: list[str] = Field(examples=[["kernel_name", "dur_ns"]])
    total: int
    offset: int
    rows: list[list[Any]] = Field(examples=[[["gemm", 1200]]])


class Answer(BaseModel):
    """Rows of an answer; whether the query had more."""

    schema_version: int = 1
    columns: list[str] = Field(examples=[["name", "total_ns"]])
    rows: list[list[Any]] = Field(examples=[[["gemm", 1200]]])
    truncated: bool


class Question(BaseModel):
    """A query."""

    model_config = {"extra": "forbid"}
    query: str = Field(min_length=1, max_length=16_000, pattern=r"^[^\x00]*$",
                       examples=["select name, count(*), sum(dur_ns) from events group by all order by 3 desc"],
                       description="a single SELECT over the session's tables; `events` is everything with a time")
    limit: int = Field(1000, ge=1, le=1_000_000, description="rows at most; of JSON 10,000")
    format: Literal["json", "arrow"] = "json"


@router.get("/tables", response_model=TableList, summary="The tables that have rows")
def tables(session: TheSession) -> Response:
    """With their columns and what they mean."""
    session_tables = queries.Tables(session)
    return respond({"schema_version": 1, "tables": [
        {"name": name, "rows": session_tables.rows(name), "meaning": specs.ALL[name].meaning, "columns": [
            {"name": column, "type": str(kind), "meaning": meaning}
            for column, (kind, meaning) in specs.ALL[name].columns.items()]} for name in session_tables]})


@router.get("/tables/{name}", response_model=Page, responses=FORMS, summary="Rows of a table")
async def table(lake: TheLake, session: TheSession,
                name: Annotated[str, InPath(max_length=100, examples=["kernels"])],
                columns: Annotated[str | None, Query(max_length=4000, examples=["kernel_name,dur_ns"],
                                                     description="only these, separated by commas")] = None,
                offset: Annotated[int, Query(ge=0, le=2**40)] = 0,
                limit: Annotated[int, Query(ge=1, le=1_000_000, description="of JSON 10,000 at most")] = 100,
                format: Format = "json") -> Response:
    """In the table's order. Integers are exact: times in ns have more digits than a JavaScript number holds.

    Arrow keeps types and dictionaries; the header X-Total-Rows says how many rows the table has.
    """
    if name not in specs.ALL:
        raise missing(f"no table {name[:80]!r}", f"GET /api/v1/sessions/{session.id}/tables lists them")
    selected = list(filter(None, columns.split(","))) if columns is not None else None
    return await lake.in_turn(_page, session, name, selected, offset, lake.limits.of_form(limit, format), format)


def _page(session: QueryableSession, name: str, columns: list[str] | None, offset: int, limit: int,
          form: str) -> Response:
    total, rows = queries.rows(session, specs.ALL[name]), redact_table(session.page(name, columns, offset, limit))
    if form == "arrow":
        return Response(_stream(rows), media_type=ARROW, headers={"X-Total-Rows": str(total)})
    page = {"schema_version": 1, "columns": rows.column_names, "total": total, "offset": offset,
            "rows": list(zip(*(column.to_pylist() for column in rows.columns), strict=True))}
    return Response(ENCODER.encode(page), media_type=JSON)  # the capture's own words, unchanged


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


@router.post("/sql", response_model=Answer, responses=FORMS, summary="Ask a SELECT over its tables")
async def sql(lake: TheLake, session: TheSession, question: Question) -> Response:
    """Nothing can be changed and no other file be read. Time, memory and rows of an answer are limited."""
    limit = lake.limits.of_form(question.limit, question.format)
    words = ["sql", "--session", str(session.folder), "--format", question.format, "--limit", str(limit), "--",
             question.query]
    bounds = apart.Bounds(lake.limits.sql_s, lake.limits.sql_memory_bytes, lake.limits.answer_bytes)
    async with lake.turn():
        answer = await apart.call(lake.server, words, bounds)
    return Response(answer, media_type=JSON if question.format == "json" else ARROW)
