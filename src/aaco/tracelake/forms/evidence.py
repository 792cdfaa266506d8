"""The forms of what was recorded or read: the manifest, what ran and where, what an import read."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field, field_validator

from aaco.core.documents import Count, Document, Part, Real, Whole


class Entry(Part):
    """A file of the bundle as it was sealed."""

    sha256: str
    bytes: Count
    rows: Count | None


class Manifest(Document):
    """manifest.json."""

    files: dict[str, Entry]
    absent: dict[str, str]

    @field_validator("files", "absent")
    @classmethod
    def _inside(cls, named: dict[str, Any]) -> dict[str, Any]:
        """A manifest of a stranger must not make us read what lies outside its bundle."""
        for name in named:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise ValueError("a name leads out of the bundle")
        return named


class Git(Part):
    """The state of the code under test."""

    commit: str | None = None
    branch: str | None = None


class Memory(Part):
    """The host's memory."""

    total_bytes: Count | None = None


class Host(Part):
    """The machine, and what it was measured to be capable of."""

    id: str | None = None
    label: str | None = None
    ceilings: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = None


class Environment(Document):
    """env.json."""

    git: Git | None = None
    memory: Memory | None = None
    machine: Host | None = None


class Fed(Part):
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


class Pass(Part):
    """A clean pass in a fresh process."""

    stopped_by: str | None = None
    null_loop: NullLoop | None = None


class Assigned(Part):
    """Nodes that one provider took together."""

    provider: str
    nodes: list[str]


class ProfilePass(Part):
    """The profiled pass."""

    warmup: Count
    profiling_start_realtime_ns: Whole
    assignment: list[Assigned] | None = None
    stages_absent: str | None = None
    offered_absent: str | None = None
    events: dict[str, Count] | None = None


class Runtime(Document):
    """ort_config.json: what ran."""

    onnxruntime: str | None = None
    provider: str | None = None
    provider_options: dict[str, Any] | None = None
    graph_optimization: str | None = None
    batch: Count | None = None
    batch_fixed_by_model: bool | None = None
    produced: list[KeptOutput] | None = None
    fed: list[Fed] = Field(default=[])
    passes: list[Pass] = Field(default=[])
    assignment: list[Assigned] | None = None
    profile: ProfilePass | None = None


class CommandRun(Part):
    """One run of a command."""

    code: Whole


class CommandRuns(Document):
    """command.json: the command that was run, and what each run took."""

    argv: list[str] = Field(min_length=1)
    runs: list[CommandRun]


class DuetProcess(Part):
    """A process of a comparison in turns, as it was planned."""

    process: Count
    kind: str
    created: list[Count] | None
    first: list[Count]


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


class ModelMeta(Document):
    """model_meta.json."""

    name: str | None = None


class StoredReading(Part):
    """A metric's reading as it was sealed."""

    value: Real | None
    why_absent: str | None
    ci_low: Real | None
    ci_high: Real | None
    band: str | None
    caveat: str | None = None


class DerivedMetrics(Document):
    """derived_metrics.json: readings by the names of their metrics, beside the version."""

    __pydantic_extra__: dict[str, StoredReading]


class CapturePart(Part):
    """Some records of a capture; below zero where more came out than went in."""

    count: Whole
    ns: Whole


class CaptureTable(Part):
    """What a capture gave a table."""

    rows: Count
    ns: Whole
    start_ns: Whole | None
    end_ns: Whole | None


class CaptureFile(Part):
    """A file of a capture."""

    path: str
    sha256: str


class UnknownFile(Part):
    """A file beside the captures that is none."""

    path: str
    why: str


class CaptureDevice(Part):
    """A device of a capture."""

    name: str | None = None
    arch: str | None = None


class Capture(Part):
    """A capture of another tool, and the account of every record in it."""

    index: Count
    files: list[CaptureFile] = Field(min_length=1)
    format: str
    tool: str | None
    tool_version: str | None
    rank: Whole | None
    kernels: CapturePart | None
    left_out: dict[str, CapturePart]
    devices: list[CaptureDevice]
    problems: list[str]
    tables: dict[str, CaptureTable]
    span_ns: Annotated[list[Whole], Field(min_length=2, max_length=2)] | None


class Captures(Document):
    """captures.json: what an import read."""

    captures: list[Capture]
    kernels_ran_on: str = ""
    unrecognised: Count = 0
    unrecognised_files: list[UnknownFile] = Field(default=[])
    references_to_nothing: dict[str, Count] = Field(default={})
    notes: list[str] = Field(default=[])


class GivenLatency(Document):
    """given_latency.json: how long a step takes without a profiler, as it was given with a capture."""

    count: Annotated[int, Field(ge=1, lt=2**63)]
    median_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    source: str


class AskedLevel(Part):
    """The level of a laboratory that was asked for, and the one whose essential knobs all held."""

    asked: str
    achieved: str


class KnobOutcome(Part):
    """What became of one knob. held: null where there was nothing to turn."""

    knob: str
    held: bool | None
    asked: dict[str, str]
    why_not: str


class KnobDrift(Part):
    """What somebody else changed while the laboratory stood."""

    knob: str
    target: str
    asked: str
    now: str


class Capsule(Document):
    """capsule.json."""

    level: AskedLevel
    cpus: str
    knobs: list[KnobOutcome]
    drift: list[KnobDrift]
