"""What one measured process is told to do; it travels as JSON from runner.ort to runner.worker."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Job:
    """One worker process's work. Paths are absolute."""

    parent: int  # process that waits for this one
    kind: str  # "time": the clean pass, "profile": the pass with node profiling and graph dumps
    model: str
    provider: str
    provider_options: dict[str, str]
    session_options: dict[str, int]
    inputs: str  # .npz with one array per model input; bfloat16 as numpy keeps it, two bytes without a meaning
    outcome: str  # where the worker leaves its JSON outcome
    rows: str  # where it appends its iterations
    warmup: int
    iterations: int
    install: str = ""  # what a user does to get the provider
    budget_ns: int | None = None
    precision_pct: float | None = None
    profile: str = ""  # where the ORT profile goes
    dumps: dict[str, str] = field(default_factory=dict)  # optimisation level -> file for the optimised graph
    offered: str = ""  # where the graph goes that was offered to the provider, if those dumps are refused
