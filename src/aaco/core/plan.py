"""What to run, decided once and written into the session before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
HOST = "host"  # the backend of a command: it runs where it likes


class Command(BaseModel):
    """A command line to run in place of a model, without a shell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # An argument may hold any byte but NUL, as surrogates; pydantic's own str refuses those.
    argv: tuple[SkipValidation[str], ...] = Field(min_length=1)
    timeout_s: float | None = Field(default=None, gt=0, description="a run that takes longer fails the session")
    ignore_failure: bool = Field(default=False, description="keep the times of runs that failed")

    @property
    def name(self) -> str:
        """The program's name, without its folder."""
        return os.fsencode(Path(self.argv[0]).name).decode(errors="backslashreplace")


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
    command: Command | None = Field(default=None, description="run this instead; each process is then one run of it")

    @classmethod
    def of_command(cls, command: Command, runs: int = 10, warmup: int = 1, **rest: Any) -> Plan:
        """A plan to run a command: first `warmup` times unmeasured, then `runs` times, always in a fresh process."""
        return cls(model=command.name, backend=HOST, command=command, processes=runs, warmup=warmup, iterations=1,
                   profile=False, **rest)
