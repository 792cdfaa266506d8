"""The route to what the lake of a fleet says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from aaco.dashboard.lake import TheLake, respond
from aaco.fleet.scan import FleetFilter

router = APIRouter(tags=["fleet"])

Name = Annotated[str | None, Query(max_length=300)]
Labels = Annotated[tuple[Annotated[str, Field(max_length=300)], ...],
                   Query(max_length=8, description="NAME=VALUE: only sessions with all of these labels")]


def chosen(model: str | None, device: str | None, label: Sequence[str]) -> FleetFilter:
    """Return which sessions a request asks for; what a form leaves empty asks nothing. Raise UsageError."""
    return FleetFilter.of(model or None, device or None, [pair for pair in label if pair])


class FleetOverview(BaseModel):
    """What `aaco fleet status`, `regressions`, `top`, `heatmap`, `trend`, `scaling`, `health` and `labels` say."""

    schema_version: int = 1
    metric: str = Field(examples=["latency_ms"])
    fdr: float = Field(examples=[0.05])
    status: dict[str, Any]
    regressions: dict[str, Any]
    top: dict[str, Any]
    heatmap: dict[str, Any]
    trend: dict[str, Any]
    scaling: dict[str, Any] = {}
    health: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    unmeasured: list[dict[str, Any]] = Field(description="sessions without a value, by the reason")


@router.get("/fleet", response_model=FleetOverview, summary="What is off in the fleet, where, and where it heads")
async def fleet(lake: TheLake, model: Name = None, device: Name = None, label: Labels = ()) -> Response:
    """Regressions, slow nodes, stragglers, heat map, trends, scaling, kernels, health of devices and labels of the
    lake in `storage.fleet_dir`."""
    return respond(await lake.in_turn(lake.fleet.overview, chosen(model, device, label)))
