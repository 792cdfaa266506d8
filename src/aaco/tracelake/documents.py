"""The form of every JSON document of a bundle that is read again: what a reader may count on without asking.

`read` hands out the document itself, not a model of it, so that what it holds beyond its form is shown as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from aaco.core import documents, files
from aaco.core.documents import Count, Document, Part, Real, Whole
from aaco.core.errors import BadBundle
from aaco.core.session import Session
from aaco.tracelake import layout

MANIFEST = "manifest.json"


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


class Account(Part):
    """Where the kernels of a capture went."""

    in_file: CapturePart | None
    used: CapturePart
    linked: CapturePart | None
    unlinked: CapturePart
    dropped: CapturePart | None
    left_out: dict[str, CapturePart]


class Finding(Part):
    """Something that speaks for or against the truth of a capture."""

    weight: Literal["lost", "wrong", "doubt", "note"]
    text: str
    advice: str | None
    alarms: bool


class CheckedCapture(Part):
    """A capture, and what was found when it was held against itself."""

    capture: Count
    file: str
    rank: Whole | None
    account: Account
    findings: list[Finding]


class TraceCheck(Document):
    """trace_check.json."""

    captures: list[CheckedCapture]


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ceiling = Literal["compute", "dram", "l2", "l1", "lds"]


class Roofs(Part):
    """Ceilings of a device, of one kind."""

    flops_per_s: dict[str, Positive]
    bytes_per_s: dict[str, Positive]
    absent: dict[str, str]


class Contradicted(Part):
    """Counters that cannot all be right."""

    what: str
    kernels: Count
    of: Count
    example: str


class ImpossibleWork(Part):
    """Kernels beyond a theoretical ceiling."""

    ceiling: Ceiling
    quantities: str
    kernels: Count
    kernel_name: str
    factor: Amount
    achieved: Amount
    peak: Amount


class DeviceRoofs(Part):
    """A device, its ceilings, and what was found wrong with its counters."""

    name: str | None
    arch: str | None
    board: str | None
    problems: list[str]
    theoretical: Roofs
    measured: Roofs
    absent: dict[str, str]
    contradictions: list[Contradicted]
    impossible: list[ImpossibleWork]


class PlacedSymbol(Part):
    """Kernels of one name under their ceilings."""

    kernel_name: str
    calls: Count
    total_ns: Count
    flops: Amount | None
    dram_bytes: Amount | None
    l2_bytes: Amount | None
    lds_bytes: Amount | None
    intensity: Amount | None
    flops_per_s: Amount | None
    dram_bytes_per_s: Amount | None
    roof_share: Amount | None
    measured_roof_share: Amount | None
    occupancy_limit_pct: Amount | None
    dominant: str | None
    bound: Ceiling | None
    uncounted: str | None


class PlacedOperator(Part):
    """An operator under its ceilings, by modelled work."""

    operator: str | None
    shapes: str | None
    calls: Count
    device_ns: Count
    intensity: Amount | None
    flops_per_s: Amount | None
    bytes_per_s: Amount | None
    rate: str | None
    bound: Ceiling | None
    roof_share: Amount | None
    why_absent: str | None
    error: str | None


class Rooflines(Document):
    """roofline.json."""

    devices: list[DeviceRoofs]
    kernels: Count
    placed: Count
    total_ns: Count
    placed_ns: Count
    measured_ns: Count
    ideal_ns: Real
    measured_ideal_ns: Real
    region_ns: dict[Literal["optimal", "compute_bound", "memory_bound", "latency_bound"], Count]
    bound_ns: dict[str, Count]
    measured_bound_ns: dict[str, Count]
    not_placed: dict[str, CapturePart]
    symbols: list[PlacedSymbol]
    operators: list[PlacedOperator] = Field(default=[])


class ClockShift(Part):
    """How a capture's times are brought to the first one's clock."""

    capture: Count | None
    origin_ns: Whole
    offset_ns: Whole
    drift_ppm: Real
    worst_ns: Count


class Examined(Document):
    """What an examination of a session found; analytics asks for the rest where it reads it.

    Every one was written with its version: `{}` is what damage leaves, not an examination that found nothing.
    """

    @model_validator(mode="after")
    def _was_written(self) -> Examined:
        if "schema_version" not in self.model_fields_set:
            raise ValueError("it has no schema_version")
        return self


class Together(Examined):
    """collectives.json."""

    shifts: list[ClockShift] = Field(default=[])


class Fusible(Part):
    """Kernels that could be one: those alike as one row."""

    pattern: str
    op_types: list[str]
    times: Count
    saved_bytes: Count
    own_ns: Real | None
    saved_ns_at_most: Real | None
    saved_share_at_most: Real | None


class Fusion(Document):
    """fusion.json."""

    basis: str
    opportunities: list[Fusible]


class TiledProduct(Part):
    """Kernels of a matrix product, and the tiles that their name says."""

    kernels: Count
    device_ns: Count
    batch: Count
    rows: Count
    columns: Count
    depth: Count
    tiles: Count
    units: Count
    waves: Count
    split_count: Count
    tile_of_result: Annotated[list[Count], Field(min_length=2, max_length=2)]
    tile_efficiency: Real
    wave_efficiency: Real
    efficiency: Real
    agreement: str


class TiledProducts(Document):
    """products.json."""

    products: list[TiledProduct]


class Signal(Part):
    """What decided the class of a kernel, or was looked at in vain."""

    signal: str
    value: Real | None
    holds: bool | None
    because: str


class ClassifiedKernel(Part):
    """A kernel name and what limits it."""

    kernel_name: str
    total_ns: Count
    label: str = Field(alias="class")
    by: str
    evidence: list[Signal]


class KernelClasses(Examined):
    """kernel_classes.json. kernel_ns: of all kernels, also of those that are not listed; not in the first versions."""

    kernel_ns: Count | None = None
    kernels: list[ClassifiedKernel]


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


class Bottleneck(Document):
    """bottleneck.json: for other programs; a report judges anew by the readings."""

    bottleneck_class: str
    confidence: Annotated[float, Field(ge=0, le=1)] | None
    top_evidence: list[dict[str, Any]]


FORMS: dict[str, type[Part]] = {
    MANIFEST: Manifest, layout.ENVIRONMENT: Environment, layout.ORT_CONFIG: Runtime, layout.COMMAND: CommandRuns,
    layout.DUET: DuetRun,
    layout.MODEL_META: ModelMeta, layout.DERIVED_METRICS: DerivedMetrics, layout.CAPTURES: Captures,
    layout.CAPSULE: Capsule, layout.TRACE_CHECK: TraceCheck, layout.BOTTLENECK: Bottleneck,
    **dict.fromkeys((*layout.TRACE.values(), *layout.EXAMINED.values()), Examined),
    layout.TRACE["collectives"]: Together, layout.GIVEN_LATENCY: GivenLatency,
    layout.EXAMINED["roofline"]: Rooflines, layout.EXAMINED["fusion"]: Fusion,
    layout.EXAMINED["products"]: TiledProducts, layout.EXAMINED["kernel_classes"]: KernelClasses,
}


def holds(session: Session, name: str) -> bool:
    """Whether the bundle has anything of this name, be it readable or not."""
    return os.path.lexists(session.folder / name)


def read(session: Session, name: str) -> dict[str, Any]:
    """A document of the bundle that has its form; empty where the run did not get that far. Raises BadBundle."""
    return require(session, name) if holds(session, name) else {}


def damage(session: Session, name: str) -> Iterator[str]:
    """A remark where a document that reports do not read, as they make it anew, cannot be read by others either."""
    try:
        read(session, name)
    except BadBundle as error:
        what = error.what.removeprefix(f"{session.folder / name}: ")
        yield f"{name} is damaged ({what}); this is judged anew, and aaco analyze {session.id} writes the file again."


def require(session: Session, name: str) -> dict[str, Any]:
    """A document of the bundle that has its form. Raises BadBundle, also where there is none."""
    path = session.folder / name
    return documents.check(path, FORMS[name], path.stem.replace("_", " "))


def replace(session: Session, name: str, document: Mapping[str, Any] | None) -> None:
    """Write a document into the bundle, or where there is none see that no older one stays. Raises StorageError."""
    if document is not None:
        session.write_json(name, dict(document))
    else:
        remove(session, name)


def remove(session: Session, *names: str) -> None:
    """See that files of the bundle do not stay, whether or not they are there. Raises StorageError."""
    with files.storage(session.folder):
        for name in names:
            (session.folder / name).unlink(missing_ok=True)


def as_form(session: Session, name: str, form: type[BaseModel]) -> dict[str, Any] | None:
    """A document in the fields of a form that lies above this layer; None where there is none. Raises BadBundle."""
    if not holds(session, name):
        return None
    path = session.folder / name
    return documents.load(path, form, path.stem.replace("_", " ")).model_dump(mode="json")
