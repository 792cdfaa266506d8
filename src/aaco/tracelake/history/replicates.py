"""What sessions measured, as a comparison sees it: the values of every process, and what they were measured on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from aaco.core import statistics
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.tracelake.history.measures import MEASURES

RAW_LIMIT = 2000  # latencies of a process are kept one by one up to this many; the order is that of the run
# Samples are comparable only where all of these are equal; None (not recorded) equals only None.
IDENTITY = ("machine_id", "backend", "model_hash", "config_hash", "batch")

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scalar = str | int | Finite | bool | None
Fact = Scalar | tuple[Scalar, ...]
Count = Annotated[int, Field(ge=1)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)  # most commands read none of them


class ProcessSample(_Stored):
    """What one fresh process measured: the unit of replication. Times in ms; a statistic without support is null."""

    iterations: Count
    median_ms: Positive
    mean_ms: Positive
    std_ms: Finite | None
    p90_ms: Positive | None
    p99_ms: Positive | None
    min_ms: Positive
    max_ms: Positive
    latencies_ms: tuple[Positive, ...] | None = Field(description=f"in run order; null above {RAW_LIMIT} iterations")

    @classmethod
    def of(cls, latencies_ms: NDArray[np.float64]) -> ProcessSample:
        """The sample of these latencies (at least one). Raises pydantic's ValidationError unless all are positive."""
        count = len(latencies_ms)
        return cls(iterations=count, median_ms=float(np.median(latencies_ms)), mean_ms=float(latencies_ms.mean()),
                   std_ms=float(latencies_ms.std(ddof=1)) if count > 1 else None,
                   p90_ms=_quantile(latencies_ms, 0.9), p99_ms=_quantile(latencies_ms, 0.99),
                   min_ms=float(latencies_ms.min()), max_ms=float(latencies_ms.max()),
                   latencies_ms=tuple(latencies_ms.tolist()) if count <= RAW_LIMIT else None)


class KernelSum(_Stored):
    """One kernel over the profiled inferences: how often it ran and for how long in all."""

    family: str
    kernel_name: str
    calls: Count
    total_ns: Annotated[int, Field(ge=0)]


class Profile(_Stored):
    """Where the profiled inferences spent their time, in whole ns summed over `inferences`.

    window_ns runs from the first kernel's start to the last one's end within each inference, so that exactly
    window_ns = sum of total_ns + gaps_ns - overlap_ns.
    """

    inferences: Count
    window_ns: Count
    gaps_ns: Annotated[int, Field(ge=0, description="time with no kernel running")]
    overlap_ns: Annotated[int, Field(ge=0, description="time counted more than once because kernels ran side by side")]
    kernels: tuple[KernelSum, ...]

    @model_validator(mode="after")
    def _conserves(self) -> Profile:
        total = sum(kernel.total_ns for kernel in self.kernels)
        if self.window_ns != total + self.gaps_ns - self.overlap_ns:
            raise ValueError("window_ns is not the sum of kernels and gaps less overlap")
        return self


class Replicate(_Stored):
    """One session as a comparison sees it: its processes' samples, its profile, and what it was measured on."""

    session_id: str
    created_utc: str | None = None
    processes: tuple[ProcessSample, ...] = Field(min_length=1)
    profile: Profile | None = None
    why_no_profile: str = ""
    machine_id: str | None = None
    backend: str | None = None
    model: str | None = None
    model_hash: str | None = None
    config_hash: str | None = None
    batch: int | None = None
    git_commit: str | None = None
    git_branch: str | None = None
    tool_version: str | None = None
    scheduler_interference: float | None = Field(default=None, description="run-queue wait / wall; null: not recorded")
    noise_on_median_pct: float | None = Field(
        default=None, description="how much recorded interference moved the median; null: no telemetry")
    quality: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None, description="measurement_quality; null: too little was measured to tell")
    quality_parts: str = Field(default="", description="what the quality is made of, the worst first")
    environment: dict[str, Fact] = Field(default={}, description="flattened, e.g. cpu.governor: performance")

    @property
    def disturbed(self) -> float | None:
        """The sentinel's effect on the median as a share; of older sessions, the time spent waiting; None: unknown."""
        if self.noise_on_median_pct is None:
            return self.scheduler_interference
        return self.noise_on_median_pct / 100

    @computed_field  # type: ignore[prop-decorator]
    @property
    def environment_digest(self) -> str:
        """SHA-256 of the environment, keys sorted: equal digests mean an equal environment."""
        return hashlib.sha256(json.dumps(self.environment, sort_keys=True).encode()).hexdigest()

    def values(self, metric: str) -> tuple[float, ...]:
        """Each process's value of a metric of MEASURES. Raises Absent, with the reason, where there is none."""
        measured = MEASURES[metric].of(self)
        if not measured:
            raise Absent(f"session {self.session_id}: {MEASURES[metric].why_absent}")
        return measured


class Baseline(_Stored):
    """A baseline file. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    name: str
    metric: Literal["latency_ms"] = "latency_ms"
    created_utc: str
    updated_utc: str
    replicates: tuple[Replicate, ...] = Field(min_length=1)

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The sessions it holds, in the order they were added."""
        return tuple(replicate.session_id for replicate in self.replicates)


def require_same_identity(replicates: Sequence[Replicate], name: str) -> None:
    """Raise UsageError naming a session that was not measured on the same thing as the first, and how they differ."""
    first = replicates[0]
    for replicate, fact in product(replicates[1:], IDENTITY):
        mine, theirs = getattr(first, fact), getattr(replicate, fact)
        if mine != theirs:
            raise UsageError(f"baseline {name}: {fact} of {first.session_id} is {mine!r}, of {replicate.session_id} "
                             f"{theirs!r}", "save it under another name, or --replace this one")


def _quantile(sample: NDArray[np.float64], q: float) -> float | None:
    try:
        return statistics.quantile(sample, q).value
    except Absent:
        return None
