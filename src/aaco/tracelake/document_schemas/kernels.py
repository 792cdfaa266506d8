"""The documents of kernels: what limits each class of them, where they were called, and which could be one."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from aaco.core.documents import Count, Document, FindingDocument, Part, Real, document
from aaco.tracelake import layout

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Signal(Part):
    """What decided the class of a kernel, or was looked at in vain."""

    signal: str
    value: Real | None
    threshold: int | Real | None = None
    direction: str | None = None
    holds: bool | None
    because: str


class KernelFacts(Part):
    """What is known of a kernel name; null where it was not recorded. Medians over its executions.

    compute_share, memory_share (DRAM and caches, the largest), lds_share: of the theoretical ceilings. lanes_ratio:
    active lanes of vector instructions. conflict_ratio: of cycles with indexed local memory. scalar_ratio: scalar
    instructions per vector instruction. occupancy_ratio: waves, of those that fit, as measured, estimated or allowed.
    memory_wait_share: waits for memory, of those for memory and for the kernel's own instructions. by: counters,
    shapes, or name. rate: the unit and type of the compute roof. ridge_ratio: the least time of its
    arithmetic over that of its bytes, by shapes. tile_side: the shorter side of a product's tile by its name, 1 of a
    product with a vector. communicates: it moves data between devices.
    """

    kernel_name: str
    family: str | None
    calls: Count
    total_ns: Count
    median_ns: Real
    short_ns: Real
    compute_share: Real | None = None
    memory_share: Real | None = None
    lds_share: Real | None = None
    lanes_ratio: Real | None = None
    conflict_ratio: Real | None = None
    scalar_ratio: Real | None = None
    occupancy_ratio: Real | None = None
    memory_wait_share: Real | None = None
    rate: str | None = None
    ridge_ratio: Real | None = None
    tile_side: Count | None = None
    communicates: bool = False
    by: str = "name"


class ClassifiedKernel(KernelFacts):
    """A kernel name with its class and the evidence that decided; of an unclear one, what was looked at. part: of the
    time budget, that the kernel's time counts in. skew_ns: of total_ns, as in the table kernel_groups.
    """

    model_config = ConfigDict(populate_by_name=True)

    label: str = Field(validation_alias="class", serialization_alias="class")
    evidence: list[Signal]
    part: str | None = None
    skew_ns: Count | None = None


@document(layout.finding("kernel_classes"))
class KernelClasses(FindingDocument):
    """kernel_classes.json. kernel_ns: of all kernels, also of those that are not listed; not in the first versions."""

    kernel_ns: Count | None = None
    kernels: list[ClassifiedKernel]


class Stack(Part):
    """A kernel under what launched it, outermost first: its family, its time in ns, and how many pieces it is of."""

    path: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=200)]
    family: str
    ns: Count
    pieces: Count


@document(layout.finding("stacks"))
class Stacks(FindingDocument):
    """stacks.json."""

    stacks: Annotated[list[Stack], Field(min_length=1)]


class Fusible(Part):
    """Kernels that could be one; equal ones share a row."""

    pattern: str
    op_types: list[str]
    times: Count
    saved_bytes: Count
    own_ns: int | Real | None
    saved_ns_at_most: Real | None
    saved_share_at_most: Real | None
    examples: list[list[str]] | None = None


@document(layout.finding("fusion"))
class Fusion(Document):
    """fusion.json. basis: what the bandwidth is; null if times come from the kernels only."""

    bandwidth_bytes_per_s: Amount | None = None
    basis: str
    opportunities: list[Fusible]
