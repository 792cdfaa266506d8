"""The forms of what was found: the truth of a trace, its examinations, the bottleneck."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from aaco.core.documents import Count, Document, Part, Real, Whole
from aaco.tracelake.forms.evidence import CapturePart


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


class StackOfKernels(Part):
    """A kernel under what launched it."""

    path: Annotated[list[str], Field(min_length=1, max_length=200)]
    family: str
    ns: Count
    pieces: Count


class Stacks(Examined):
    """stacks.json."""

    stacks: Annotated[list[StackOfKernels], Field(min_length=1)]


class Bottleneck(Document):
    """bottleneck.json: for other programs; a report judges anew by the readings."""

    bottleneck_class: str
    confidence: Annotated[float, Field(ge=0, le=1)] | None
    top_evidence: list[dict[str, Any]]
