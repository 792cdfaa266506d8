"""The documents of devices: their rooflines, the tiles of their products, the passes that were joined."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from aaco.core.documents import Count, Document, FindingDocument, Part, Real, Whole, document
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.trace_check import CapturePart

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ceiling = Literal["compute", "dram", "l2", "l1", "lds"]


class DeviceCeilings(Part):
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
    """Kernels beyond a theoretical ceiling. achieved, peak: of the worst, per second."""

    ceiling: Ceiling
    quantities: str
    kernels: Count
    kernel_name: str
    factor: Amount
    achieved: Amount
    peak: Amount


class DeviceRoofs(Part):
    """A device, its ceilings, and what was found wrong with its counters."""

    capture: Count | None = None
    device_id: Whole | None = None
    name: str | None
    arch: str | None
    compute_units: Count | None = None
    board: str | None
    problems: list[str]
    theoretical: DeviceCeilings
    measured: DeviceCeilings
    sources: list[str] | None = None
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
    l1_bytes: Amount | None = None
    lds_bytes: Amount | None
    intensity: Amount | None
    flops_per_s: Amount | None
    dram_bytes_per_s: Amount | None
    roof_share: Amount | None
    measured_roof_share: Amount | None
    occupancy_limit_pct: Amount | None
    dominant: str | None
    bound: Ceiling | None
    region: str | None = None
    uncounted: str | None
    occupancy_limited_by: str | None = None
    why_absent: str | None = None
    error: str | None = None
    limit: str | None = None


class PlacedOperator(Part):
    """An operator under its ceilings, by modelled work."""

    operator: str | None
    shapes: str | None
    dtypes: str | None = None
    family: str | None = None
    calls: Count
    device_ns: Count
    flops: int | None = None
    bytes: int | None = None
    capture: Count | None = None
    intensity: Amount | None
    rate: str | None
    flops_per_s: Amount | None
    bytes_per_s: Amount | None
    bound: Ceiling | None
    roof_share: Amount | None
    why_absent: str | None
    error: str | None
    limit: str | None = None


@document(layout.finding("roofline"))
class Rooflines(Document):
    """roofline.json. bound: the nearest ceiling; limit: the class that kernel_classes.json has."""

    devices: list[DeviceRoofs]
    kernels: Count
    placed: Count
    total_ns: Count
    placed_ns: Count
    ideal_ns: Real
    measured_ns: Count
    measured_ideal_ns: Real
    region_ns: dict[Literal["optimal", "compute_bound", "memory_bound", "latency_bound"], Count]
    bound_ns: dict[str, Count]
    measured_bound_ns: dict[str, Count]
    not_placed: dict[str, CapturePart]
    symbols: list[PlacedSymbol]
    operators: list[PlacedOperator] = Field(default=[])


class TiledProduct(Part):
    """Kernels of a matrix product, and the tiles that their name says."""

    operator_id: Count | None = None
    kernel_name: str | None = None
    tile: str | None = None
    split: str | None = None
    kernels: Count
    device_ns: Count
    workgroups: Count | None = None
    threads: Count | None = None
    batch: Count
    rows: Count
    columns: Count
    depth: Count
    tiles: Count
    units: Count
    waves: Count
    tile_efficiency: Real
    wave_efficiency: Real
    tile_of_result: Annotated[list[Count], Field(min_length=2, max_length=2)]
    split_count: Count
    agreement: str
    efficiency: Real


@document(layout.finding("products"))
class TiledProducts(Document):
    """products.json."""

    products: list[TiledProduct]


class InferencesWork(Part):
    """The kernels in inferences of a pass: their time, and the time in which at least one of them ran."""

    inferences: Count
    kernels: Count
    ns: Count
    busy_ns: Count
    latency_ms: Real | None = None
    wall_ns: Count | None = None


class CountedExecution(Part):
    """An execution that counted, and how many of its dispatches are kernels of the trace, or why none is."""

    tool: str | None = None
    version: str | None = None
    counters: list[str] | None = None
    devices: list[dict[str, Any]] | None = None
    inferences: Count | None = None
    dispatches: Count | None = None
    joined: Count | None = None
    why_not: str | None = None


@document(layout.finding("device_passes"))
class DevicePasses(FindingDocument):
    """device_passes.json: how the passes of a traced device were joined; or why they could not be."""

    profiled: InferencesWork | None = None
    timed: InferencesWork | None = None
    identical: Count | None = None
    aligned: Count | None = None
    first_difference: Count | None = None
    named: Count | None = None
    named_ns: Count | None = None
    unnamed: dict[str, Count] | None = None
    methods: dict[str, Count] | None = None
    tracer: str | None = None
    with_calls: bool | None = None
    latency_ms: Real | None = None
    wall_ns: Count | None = None
    copies: Count | None = None
    host_nodes: Count | None = None
    problems: list[str] | None = None
    checked: InferencesWork | None = None
    counters: list[CountedExecution] | None = None
    plain_latency_ms: Real | None = None
    why_absent: str | None = None
