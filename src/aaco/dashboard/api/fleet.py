"""The route to what the lake of a fleet says."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from aaco.dashboard.lake import TheLake, respond
from aaco.fleet.scan import FleetFilter

router = APIRouter(tags=["fleet"])

Name = Annotated[str | None, Query(max_length=300)]


class FleetOverview(BaseModel):
    """What `aaco fleet status`, `regressions`, `top`, `heatmap`, `trend` and `scaling` say, by one metric."""

    schema_version: int = 1
    metric: str = Field(examples=["latency_ms"])
    fdr: float = Field(examples=[0.05])
    status: dict[str, Any]
    regressions: dict[str, Any]
    top: dict[str, Any]
    heatmap: dict[str, Any]
    trend: dict[str, Any]
    scaling: dict[str, Any] = {}
    unmeasured: list[dict[str, Any]] = Field(description="sessions without a value, by the reason")


@router.get("/fleet", response_model=FleetOverview, summary="What is off in the fleet, where, and where it heads")
async def fleet(lake: TheLake, model: Name = None, device: Name = None) -> Response:
    """Regressions, slow nodes, stragglers, heat map, trends, scaling and kernels of the lake in `storage.fleet_dir`."""
    return respond(await lake.in_turn(lake.fleet.overview, FleetFilter(model or None, device or None)))
