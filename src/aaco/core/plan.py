"""What to run, decided once and written into the session before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

Count = Annotated[int, Field(ge=1, lt=2**63)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
# Up to eleven days: a wait longer than 24.8 days is more milliseconds than poll(2) takes.
Seconds = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Noise = Literal["tag", "discard", "repeat"]
Warmup = Whole | Literal["auto"]  # auto: until the latencies have settled
LONGEST_WARMUP = 500  # iterations of one that goes on until then
HOST = "host"  # the backend of a command: it runs where it likes


class Command(BaseModel):
    """A command line to run in place of a model, without a shell."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    # An argument may hold any byte but NUL, as surrogates; pydantic's own str refuses those.
    argv: tuple[SkipValidation[str], ...] = Field(min_length=1)
    timeout_s: Seconds | None = Field(default=None, description="a run that takes longer fails the session")
    ignore_failure: bool = Field(default=False, description="keep the times of runs that failed")

    @property
    def name(self) -> str:
        """The program's name, without its folder."""
        return os.fsencode(Path(self.argv[0]).name).decode(errors="backslashreplace")


class Plan(BaseModel):
    """One measurement: the workload, the backend and how long to look."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    model: str
    backend: str = "cpu"
    backend_why: str = Field(default="", description="why this backend, where --backend auto chose it")
    batch: Count | None = Field(
        default=None, description="samples per inference; empty: those of the given inputs, what the model fixes, or 1")
    warmup: Whole = 10
    settle: bool = Field(
        default=False, description="warm up until the latencies have settled, `warmup` iterations at most")
    iterations: Count = 100
    processes: Count = 1
    budget_s: Seconds | None = Field(default=None, description="stop measuring after this long, per process")
    precision_pct: Positive | None = Field(
        default=None, description="stop once the interval of the median is narrower than this share of it")
    io: Literal["host", "device"] = Field(
        default="host", description="where inputs and outputs lie: host copies them in each inference")
    profile: bool = True
    profile_iterations: Count = 10
    telemetry: bool = False
    ebpf: bool = Field(default=False, description="trace the scheduler with BPF; includes telemetry")
    cool_s: Seconds | None = Field(
        default=None, description="before every timed pass wait for cool devices, at most this long; empty: never")
    noise: Noise = Field(default="tag", description="tag disturbed iterations; discard: statistics over clean ones; "
                                                    "repeat: also measure on until there are enough of those")
    counters: tuple[str, ...] = Field(
        default=(), description="hardware counters, or groups of them, of the device's kernels")
    lab: str | None = Field(default=None, description="level of the laboratory around every pass; empty: none")
    lab_cpus: str | None = Field(default=None, description="its CPUs; empty: all but the first core")
    seed: Whole = 0
    inputs: str | None = Field(default=None, description=".npz with input tensors")
    shapes: dict[str, list[int]] = {}
    custom_ops: tuple[str, ...] = Field(default=(), description="libraries of custom operators for ONNX Runtime")
    tag: str = ""
    command: Command | None = Field(default=None, description="run this instead; each process is then one run of it")

    @property
    def watched_by(self) -> str | None:
        """The best tier to record the operating system with; None: it is not to be recorded."""
        return "T3" if self.ebpf else "T2" if self.telemetry else None

    @classmethod
    def of_command(cls, command: Command, runs: int = 10, warmup: int = 1, **rest: Any) -> Plan:
        """A plan to run a command: first `warmup` times unmeasured, then `runs` times, always in a fresh process."""
        return cls(model=command.name, backend=HOST, command=command, processes=runs, warmup=warmup, iterations=1,
                   batch=1, profile=False, **rest)


class Planned(Plan):
    """A plan as a session keeps it, maybe one of another version: what is not known here is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    model: str = ""
    imports: list[str] = Field(default=[], description="captures of other tools, in place of a run")
    skip_bad: bool = Field(default=False, description="malformed events of the captures were left out")
    device: str = Field(default="", description="the device of captures that do not name it, as the user says")
    endpoint: str = Field(default="", description="the endpoint of a language model that was asked, in place of a run")
