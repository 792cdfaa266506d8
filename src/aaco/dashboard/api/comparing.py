"""Routes to comparisons of sessions, baselines, and the history of measurements."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel, Field

from aaco import pipeline
from aaco.core.errors import NoBaseline, UsageError
from aaco.core.records import as_dict
from aaco.dashboard.lake import REFERENCE, Lake, TheLake, respond
from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake.history import baselines as store
from aaco.tracelake.history.history import NAME, History, Key
from aaco.workflows import compare_runs, compare_traces, judge

router = APIRouter(tags=["comparisons"])

NAME_OF_BASELINE = f"^{store.NAME.pattern}$"
BaselineName = Annotated[str, InPath(pattern=NAME_OF_BASELINE, examples=["release"])]
Reference = Annotated[str, Query(pattern=REFERENCE, description="a baseline's name, or a session's id or tag",
                                 examples=["release"])]
Text = Annotated[str | None, Query(max_length=4096)]


class BaselineRow(BaseModel):
    """A baseline in a list."""

    name: str
    version: int
    session_ids: list[str]
    updated_utc: str | None
    problem: str | None = Field(description="why it cannot be read")


class BaselineList(BaseModel):
    """The baselines of the store."""

    schema_version: int = 1
    baselines: list[BaselineRow]


class Pinning(BaseModel):
    """Which sessions to pin."""

    model_config = {"extra": "forbid"}
    sessions: list[Annotated[str, Field(pattern=REFERENCE)]] = Field(min_length=1, max_length=100,
                                                                      examples=[["latest"]])
    replace: bool = Field(False, description="replace the baseline by its next version")


class HistoryRow(BaseModel):
    """A history: what may be compared over time."""

    benchmark: str = Field(examples=["resnet50"])
    metric: str = Field(examples=["latency_ms"])
    machine: str
    config: str
    unit: str = Field(examples=["ms"])
    direction: Literal["lower_is_better", "higher_is_better"]


class HistoryList(BaseModel):
    """Histories of the store, a page."""

    schema_version: int = 1
    total: int
    histories: list[HistoryRow]


@router.get("/compare", summary="Is one session slower than another, or than a baseline?",
            response_model=RegressionVerdict | dict[str, Any])
async def compare(lake: TheLake, baseline: Reference,
                  current: Annotated[str, Query(pattern=REFERENCE, examples=["latest"])],
                  tolerance_pct: Annotated[float | None, Query(gt=0, lt=1000, description="tolerated slowdown")] = None,
                  force: Annotated[bool, Query(description="judge unlike things, too")] = False) -> Response:
    """The verdict as `aaco diff` gives it, or for two imported traces what changed; nothing is kept."""
    return respond(await lake.in_turn(_compare, lake, baseline, current, tolerance_pct, force))


def _compare(lake: Lake, baseline: str, current: str, tolerance_pct: float | None, force: bool) -> dict[str, Any]:
    session = lake.session(current)
    if session.record.is_import:
        before = lake.session(baseline)
        if not before.record.is_import:
            raise UsageError(f"session {before.id} was recorded, {session.id} was imported", "name two of a kind")
        return {"baseline": before.id, "current": session.id, **compare_traces.difference(before, session).document()}
    analysis = lake.settings.config.analysis
    request = compare_runs.DiffRequest(analysis.tolerance_pct if tolerance_pct is None else tolerance_pct, force,
                                       analysis.false_alarm_pct)
    named = store.NAME.fullmatch(baseline) and not baseline.endswith(store.SUFFIX) \
        and store.exists(lake.server.baselines, baseline)
    reference = compare_runs.reference_side(baseline, lake.server.baselines, lake.server.root, lambda before: before) \
        if named else compare_runs.side(pipeline.explain(lake.session(baseline), lake.settings))
    explained = compare_runs.side(pipeline.explain(session, lake.settings))
    return judge.judge(reference, explained, lake.settings, request).model_dump(mode="json")


@router.get("/baselines", response_model=BaselineList, summary="List the baselines")
def baselines(lake: TheLake) -> Response:
    """With the sessions that are pinned in each."""
    return respond({"schema_version": 1, "baselines": [
        {"name": listed.baseline.name if listed.baseline else listed.path.stem, "version": listed.version,
         "session_ids": list(listed.baseline.session_ids) if listed.baseline else [],
         "updated_utc": listed.baseline.updated_utc if listed.baseline else None, "problem": listed.problem or None}
        for listed in store.list_all(lake.server.baselines)]})


@router.get("/baselines/{name}", summary="One baseline")
def baseline(lake: TheLake, name: BaselineName) -> Response:
    """Its sessions and what they measured, without the single latencies."""
    document = store.load(lake.server.baselines, _require_name(name)).model_dump(mode="json")
    for replicate in document["replicates"]:
        for process in replicate["processes"]:
            process.pop("latencies_ms")
    return respond(document)


@router.put("/baselines/{name}", response_model=BaselineRow, summary="Pin sessions as a baseline")
async def pin(lake: TheLake, name: BaselineName, pinning: Pinning) -> Response:
    """As `aaco baseline save` does. Sessions that are in it already stay as they are."""
    saved = await lake.in_turn(_pin, lake, _require_name(name), pinning)
    return respond({"name": name, "version": saved.version, "session_ids": list(saved.baseline.session_ids),
                    "updated_utc": saved.baseline.updated_utc, "problem": None})


def _pin(lake: Lake, name: str, pinning: Pinning) -> Any:
    sessions = [lake.session(session_id) for session_id in pinning.sessions]
    judge.save_baseline(name, sessions, lake.settings, pinning.replace)
    return next(listed for listed in store.list_all(lake.server.baselines)
                if listed.baseline and listed.baseline.name == name)


@router.get("/histories", response_model=HistoryList, summary="What has a history")
def histories(lake: TheLake, benchmark: Text = None, metric: Text = None,
              offset: Annotated[int, Query(ge=0, le=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
              ) -> Response:
    """Benchmarks and metrics of the history of measurements; none where nothing was ever kept."""
    if not (lake.server.baselines / NAME).is_file():
        return respond({"schema_version": 1, "total": 0, "histories": []})
    with History.open(lake.server.baselines, create=False) as opened:
        keys = opened.keys()
        matching = [key for key in keys if benchmark in (None, key.benchmark) and metric in (None, key.metric)]
        rows = [as_dict(key) | dict(zip(("unit", "direction"), opened.unit(key), strict=True))
                for key in matching[offset:offset + limit]]
    return respond({"schema_version": 1, "total": len(matching), "histories": rows})


@router.get("/histories/sessions", summary="One history, session by session")
def history(lake: TheLake, benchmark: Annotated[str, Query(max_length=4096, examples=["resnet50"])],
            metric: Annotated[str, Query(max_length=4096)] = "latency_ms",
            machine: Annotated[str, Query(max_length=4096)] = "", config: Annotated[str, Query(max_length=4096)] = "",
            branch: Text = None) -> Response:
    """Median and spread of each session in the order of time; machine and config as /api/v1/histories gives them."""
    key = Key(benchmark, metric, machine, config)
    with History.open(lake.server.baselines, create=False) as opened:
        keys = opened.keys()
        if key not in keys:
            raise NoBaseline(f"no history of {benchmark} {metric} on that machine and configuration",
                             "GET /api/v1/histories lists them")
        rows: pa.Table = opened.sessions(key, branch)
    return respond({"schema_version": 1, **as_dict(key), "columns": rows.column_names,
                    "rows": list(zip(*(column.to_pylist() for column in rows.columns), strict=True))})


def _require_name(name: str) -> str:
    """Return the name of a baseline. Raise UsageError if it ends like a file, which the server's folder may have."""
    if name.endswith(store.SUFFIX):
        raise UsageError(f"{name!r} is a file's name", "a name without .json")
    return name
