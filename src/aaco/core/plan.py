"""What to run, decided once and written into the session before anything starts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


class Plan(BaseModel):
    """One measurement: the workload, the backend and how long to look."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    backend: str = "cpu"
    batch: Count = 1
    warmup: Whole = 10
    iterations: Count = 100
    processes: Count = 1
    budget_s: float | None = Field(default=None, gt=0, description="stop measuring after this long, per process")
    precision_pct: float | None = Field(
        default=None, gt=0, description="stop once the interval of the median is narrower than this share of it")
    profile: bool = True
    profile_iterations: Count = 10
    telemetry: bool = False
    seed: Whole = 0
    inputs: str | None = Field(default=None, description=".npz with input tensors")
    shapes: dict[str, list[int]] = {}
    tag: str = ""
