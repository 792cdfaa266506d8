"""The documents of what was recorded: the manifest, what ran and where, and the laboratory around it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field, field_validator

from aaco.core.documents import Count, Document, Part, Real, Whole, document
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.answers import CpuTimes

Facts = dict[str, Any]  # by names that are not ours: options of a runtime, facts of a machine


class SealedFile(Part):
    """A file of the bundle as it was sealed."""

    sha256: str
    bytes: Count
    rows: Count | None


@document(layout.MANIFEST)
class Manifest(Document):
    """manifest.json."""

    files: dict[str, SealedFile]
    absent: dict[str, str]

    @field_validator("files", "absent")
    @classmethod
    def _inside(cls, named: dict[str, Any]) -> dict[str, Any]:
        """A foreign manifest must not name a file outside its bundle."""
        for name in named:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise ValueError("a name leads out of the bundle")
        return named


class Git(Part):
    """The state of the code under test."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None


class HostMemory(Part):
    """The host's memory."""

    total_bytes: Count | None = None
    swap_bytes: Count | None = None
    transparent_huge_pages: str | None = None
    transparent_huge_page_defrag: str | None = None
    huge_pages: dict[str, Count] | None = None
    numa_balancing: Count | None = None


class RecordedMachine(Part):
    """The machine, and what it was measured to be capable of. card: the whole record of the measurement."""

    id: str | None = None
    label: str | None = None
    cpu_model: str | None = None
    sockets: Count | None = None
    cores: Count | None = None
    threads: Count | None = None
    memory_bytes: Count | None = None
    gpus: list[Facts] | None = None
    card: Facts | None = None
    ceilings: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = None


@document(layout.ENVIRONMENT)
class Environment(Document):
    """env.json: a section for each part of the surroundings; why_absent: of a fact by its dotted name."""

    captured_utc: str | None = None
    host: Facts | None = None
    os: Facts | None = None
    kernel: Facts | None = None
    cpu: Facts | None = None
    clock: Facts | None = None
    memory: HostMemory | None = None
    numa: Facts | None = None
    virtualization: Facts | None = None
    cgroup: Facts | None = None
    process: Facts | None = None
    load: Facts | None = None
    gpu: Facts | None = None
    python: Facts | None = None
    onnxruntime: Facts | None = None
    packages: Facts | None = None
    variables: Facts | None = None
    labels: Facts | None = None
    git: Git | None = None
    why_absent: dict[str, str] | None = None
    machine: RecordedMachine | None = None


class FedTensor(Part):
    """An input as it was fed to the model."""

    name: str
    dtype: str
    shape: list[Count]
    sha256: str | None = None


class KeptOutput(Part):
    """An output of the model, of which elements may be in outputs.npz."""

    name: str
    dtype: str
    shape: list[Count] | None
    elements: Count | None
    sha256: str | None
    not_finite: Count | None
    kept: Count
    why_not_kept: str


class NullLoop(Part):
    """The measuring loop's own weight."""

    inside_ns: Real
    per_iteration_ns: Real | None = None


class WarmUp(Part):
    """How a pass warmed up."""

    iterations: Count
    stopped_by: str


class CleanPass(Part):
    """A clean pass in a fresh process."""

    load_ms: Real | None = None
    warmup: WarmUp | None = None
    stopped_by: str | None = None
    null_loop: NullLoop | None = None
    witness: Facts | None = None
    probes: list[Facts] | None = None
    cpu: CpuTimes | None = None
    telemetry: Facts | None = None
    cooling: Facts | None = None


class Assigned(Part):
    """Nodes that one provider took together."""

    provider: str
    nodes: list[str]


class ModelTensor(Part):
    """An input or output as the runtime describes it; a side that is not fixed has a name, or none."""

    name: str
    type: str
    shape: list[Whole | str | None] | None


class ProfilePass(Part):
    """The profiled pass."""

    onnxruntime: str | None = None
    build: str | None = None
    providers: list[str] | None = None
    provider_options: Facts | None = None
    assignment: list[Assigned] | None = None
    inputs: list[ModelTensor] | None = None
    outputs: list[ModelTensor] | None = None
    dumped: list[str] | None = None
    stages_absent: str | None = None
    offered: bool | None = None
    offered_absent: str | None = None
    profiling_start_realtime_ns: Whole
    cpu: CpuTimes | None = None
    events: dict[str, Count] | None = None
    warmup: Count
    iterations: Count | None = None
    names_made: Count | None = None


class CustomOpLibrary(Part):
    """A library of custom operators that was registered with ONNX Runtime."""

    path: str
    sha256: str


@document(layout.ORT_CONFIG)
class Runtime(Document):
    """ort_config.json: what ran. device, device_calls, device_counters: how a device was traced, and its counters."""

    backend: str | None = None
    provider: str | None = None
    provider_options: Facts | None = None
    session_options: Facts | None = None
    graph_optimization: str | None = None
    custom_ops: list[CustomOpLibrary] = Field(default=[])
    fed: list[FedTensor] = Field(default=[])
    batch: Count | None = None
    batch_fixed_by_model: bool | None = None
    produced: list[KeptOutput] | None = None
    passes: list[CleanPass] = Field(default=[])
    onnxruntime: str | None = None
    build: str | None = None
    providers: list[str] | None = None
    assignment: list[Assigned] | None = None
    inputs: list[ModelTensor] | None = None
    outputs: list[ModelTensor] | None = None
    profile: ProfilePass | None = None
    device: Facts | None = None
    device_calls: Facts | None = None
    device_counters: list[Facts] | None = None


class CommandRun(Part):
    """One run of a command."""

    process: Count | None = None
    phase: str | None = None
    start_ns: Whole | None = None
    end_ns: Whole | None = None
    code: Whole
    user_ns: Count | None = None
    system_ns: Count | None = None
    max_rss_bytes: Count | None = None
    max_rss_floor_bytes: Count | None = None
    faults_minor: Count | None = None
    faults_major: Count | None = None
    switches_voluntary: Count | None = None
    switches_involuntary: Count | None = None
    stdout_bytes: Count | None = None
    stderr_bytes: Count | None = None
    telemetry: Facts | None = None
    cooling: Facts | None = None


@document(layout.COMMAND)
class CommandRuns(Document):
    """command.json: the command that was run, and what each run took."""

    argv: list[str] = Field(min_length=1)
    executable_sha256: str | None = None
    runs: list[CommandRun]


class AfterExecution(Part):
    """A step that made the files of an execution readable."""

    argv: list[str]
    code: Whole


class Execution(Part):
    """An execution of a command under a profiler; code and wall_ns are null until it has ended."""

    kind: str
    tool: str
    folder: str
    argv: list[str]
    counters: list[str]
    code: Whole | None
    wall_ns: Count | None
    said: str
    telemetry: Facts | None
    refused: str | None = None
    after: list[AfterExecution] | None = None


class ProfilerTool(Part):
    """A profiler that was used."""

    path: str
    version: str | None


@document(layout.EXECUTIONS)
class Executions(Document):
    """executions.json: how each execution of a command under a profiler went."""

    schema_version: int = 2
    tools: dict[str, ProfilerTool]
    executions: list[Execution]


class DuetProcess(Part):
    """A process of a comparison in turns, as it was planned."""

    process: Count
    kind: str
    created: list[Count] | None
    first: list[Count]


class DuetCost(Part):
    """What a process of a comparison in turns cost, from its start to its end; energy is all that the hardware took."""

    process: Count
    kind: str
    took_s: float
    energy_j: float | None


@document(layout.DUET)
class DuetRun(Document):
    """duet.json: how a comparison in turns was to be made; what it met is there when it has ended."""

    seed: Count
    terms: dict[str, Any]
    labels: Annotated[list[str], Field(min_length=2, max_length=2)]
    sides: list[dict[str, str | None]]
    planned: list[DuetProcess]
    reproduce_command: str
    ran: dict[str, dict[str, str]] | None = None
    device: dict[str, int | str] | None = None
    stopped_by: str | None = None
    differences: list[dict[str, Any]] | None = None
    costs: list[DuetCost] | None = None
    energy_counted: str | None = None
    why_no_energy: str | None = None


class GraphTensor(Part):
    """An input or output of a model's graph; a side that is not fixed has a name, or none."""

    name: str
    dtype: str | None
    shape: list[Whole | str | None] | None


@document(layout.MODEL_META)
class ModelMeta(Document):
    """model_meta.json: the model's file, and what its graph holds. Costs are null where shapes are not known."""

    name: str | None = None
    sha256: str | None = None
    bytes: Count | None = None
    files: list[str] | None = None
    synthetic_weights: bool | None = None
    ir_version: Count | None = None
    opset_imports: dict[str, Count] | None = None
    producer: str | None = None
    graph_name: str | None = None
    inputs: list[GraphTensor] | None = None
    outputs: list[GraphTensor] | None = None
    node_count: Count | None = None
    op_counts: dict[str, Count] | None = None
    parameter_count: Count | None = None
    parameter_bytes: Count | None = None
    subgraph_count: Count | None = None
    total_flops: int | None = None
    total_bytes: int | None = None
    unmodelled: dict[str, Any] | None = None
    unknown_shapes: Count | None = None
    unknown_trips: Count | None = None
    inference_refused: str | None = None


class AskedLevel(Part):
    """The requested level of a laboratory, and the achieved one: all its essential knobs took effect."""

    asked: str
    achieved: str


class KnobOutcome(Part):
    """The result of one knob. held: null if there was nothing to set."""

    knob: str
    held: bool | None
    asked: dict[str, str]
    before: dict[str, str] | None = None
    why_not: str


class KnobDrift(Part):
    """What another process changed while the laboratory was active."""

    knob: str
    target: str
    asked: str
    now: str


@document(layout.CAPSULE)
class Capsule(Document):
    """capsule.json: the laboratory that the session was measured in. hash: of what makes two capsules the same."""

    lab: str | None = None
    began_utc: str | None = None
    ended_utc: str | None = None
    level: AskedLevel
    cpus: str
    knobs: list[KnobOutcome]
    hardware: Facts | None = None
    software: Facts | None = None
    env_hash: str | None = None
    drift: list[KnobDrift]
    hash: str | None = None
