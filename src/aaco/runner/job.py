"""The job of one measured process; it travels as JSON from runner.ort to runner.worker."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Job(Struct, frozen=True):
    """One worker process's work. Paths are absolute."""

    parent: int  # process that waits for this one, or for the profiler that started it
    kind: str  # "time": the clean pass, "profile": with node profiling and graph dumps, "once": one inference
    model: str
    provider: str
    provider_options: dict[str, str]
    session_options: dict[str, Any]  # attributes of SessionOptions and, by dotted names, entries of its configuration
    inputs: str  # .npz with one array per model input; bfloat16 as numpy keeps it, two bytes without a meaning
    outcome: str  # where the worker leaves its JSON outcome
    rows: str  # where it appends its iterations
    account: str  # where it appends its own account
    warmup: int
    iterations: int
    resident: bool = False  # inputs and outputs stay in the device's memory
    settle: bool = False  # warm up until the latencies have settled: `warmup` is the most
    region: bool = False  # whether CUDA's profiler is notified where the measured inferences begin and end
    canaries: bool = False  # whether its account has them
    probes: bool = False  # whether it times known work before and after its inferences
    level: str = "all"  # how far the graph is optimised
    custom_ops: tuple[str, ...] = ()  # libraries of custom operators
    entries: dict[str, str] = field(default_factory=dict)  # of the session's configuration, by ONNX Runtime's names
    install: str = ""  # what a user does to get the provider
    burst_ns: int = 0  # after as much of inferences it sleeps for rest_ns; 0: never
    rest_ns: int = 0
    budget_ns: int | None = None
    precision_pct: float | None = None
    named: str = ""  # a copy of the model with names for all nodes; empty: the model has them
    profile: str = ""  # where the ORT profile goes
    dumps: dict[str, str] = field(default_factory=dict)  # optimisation level -> file for the optimised graph
    outputs: str = ""  # where the outputs of the last measured inference go; empty: they are not kept
    offered: str = ""  # where the graph goes that was offered to the provider, if those dumps are refused


class DuetJob(Struct, frozen=True):
    """One process's work in a duet, as JSON on stdin. Paths are absolute.

    sides: per side, the job that opens it. mine: the sides that live in this process. vary: whether every pair has
    inputs of its own. hear, tell: file descriptors of the pipes between the processes, if there are two.
    """

    parent: int
    outcome: str
    rows: str
    sides: list[dict[str, Any]]
    mine: list[int]
    created: list[int]
    first: list[int]
    warmup: int
    vary: bool = False
    hear: int = -1
    tell: int = -1
