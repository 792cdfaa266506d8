"""capture.json, format 2: what a captured kernel launch consists of. Memory and code are blobs.

A region's memory is cut into pages from its base on; the last page may be shorter. A page is named by its SHA-256, so
that equal pages, and pages of zeros, are stored once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from aaco.core.documents import Document, Part

VERSION = 2
PAGE_BYTES = 2 << 20  # the granule of memory that CUDA maps
ADDRESSES = 1 << 64
MOST_REGION = 1 << 48  # bytes: more than any device or host has
MOST_CODE = 512 << 20
MOST_ARGUMENTS = 1 << 16  # bytes; CUDA takes 32,764, HSA's kernarg segment is of this order

Vendor = Literal["NVIDIA", "AMD"]
RegionRole = Literal["kernarg", "device", "managed", "host", "global"]
When = Literal["before", "after"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Address = Annotated[int, Field(ge=0, lt=ADDRESSES)]
Text = Annotated[str, Field(min_length=1, max_length=1 << 16)]
Hex = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=2 * MOST_ARGUMENTS)]
Extent = Annotated[int, Field(ge=1, lt=1 << 32)]


class CapturedFrom(Part):
    """The device and software that the launch was captured on."""

    vendor: Vendor
    device: Text
    isa: Text = Field(description="what the device runs: sm_90, gfx942")
    granule_bytes: int = Field(ge=1, le=1 << 30, description="smallest piece of memory that can be mapped")
    memory_bytes: int | None = Field(default=None, ge=1, lt=MOST_REGION)
    driver: Text | None = Field(default=None, description="version of the driver; null in captures of the first format")
    tools: dict[str, str] = Field(default={}, description="versions of what captured: CUDA, CUPTI, ROCm")

    @property
    def is_amd(self) -> bool:
        """Return whether it is a GPU of AMD."""
        return self.vendor == "AMD"


class ArgumentPlace(Part):
    """The place of an argument in the launch's argument bytes."""

    offset: int = Field(ge=0, lt=MOST_ARGUMENTS)
    size: int = Field(ge=0, le=MOST_ARGUMENTS)


class LaunchAttribute(Part):
    """An attribute of the launch as the driver took it: its number, and its bytes in hex."""

    id: int = Field(ge=0, lt=1 << 32)
    hex: Hex


class KernelLaunch(Part):
    """One launch of a kernel."""

    symbol: Text
    demangled: Text | None = None
    number: int = Field(ge=0, lt=1 << 63, description="which of the program's launches of this kernel, from 0")
    grid: tuple[Extent, Extent, Extent]
    grid_unit: Literal["blocks", "work-items"] = Field(description="CUDA counts blocks, HSA packets count work-items")
    block: tuple[Extent, Extent, Extent]
    dynamic_lds_bytes: int = Field(ge=0, lt=1 << 32)
    arguments: Hex = Field(description="all argument bytes in hex, each argument at its offset")
    layout: list[ArgumentPlace] | None = Field(default=None, description="null: the driver or code object has none")
    passed_as: Literal["pointers", "buffer"] = Field(description="buffer: as CUDA's `extra`, or a kernarg segment")
    attributes: list[LaunchAttribute] = Field(default=[])

    @model_validator(mode="after")
    def _arguments_are_there(self) -> KernelLaunch:
        size = len(self.arguments) // 2
        if any(place.offset + place.size > size for place in self.layout or ()):
            raise ValueError(f"an argument lies outside the {size} bytes of arguments")
        return self


class CapturedCode(Part):
    """The code object as the driver loaded it; a blob."""

    kind: Literal["cubin", "hsaco"]
    sha256: Digest | None = Field(default=None, description="null in captures of the first format")
    bytes: int = Field(ge=1, le=MOST_CODE)


class CapturedRegion(Part):
    """An allocation, or a variable of the module, and the digests of its pages before and after the launch."""

    base: Address
    size: int = Field(ge=1, le=MOST_REGION)
    role: RegionRole
    symbol: Text | None = Field(default=None, description="the module's variable; of the role global only")
    before: list[Digest] | None = Field(default=None, description="null in captures of the first format: no digests")
    after: list[Digest] | None = Field(default=None, description="null: not captured")

    @property
    def end(self) -> int:
        """Return the first address after the region."""
        return self.base + self.size

    @model_validator(mode="after")
    def _is_somewhere(self) -> CapturedRegion:
        if self.end > ADDRESSES:
            raise ValueError(f"{self.size} bytes at {self.base:#x} end beyond the last address")
        if (self.role == "global") != (self.symbol is not None):
            raise ValueError("a region of the role global has a symbol, and no other has")
        return self


class NotCaptured(Part):
    """Something that the launch may have used and the capture does not hold, and why."""

    what: Text
    why: Text


class CaptureDocument(Document):
    """capture.json. Fields are added, never renamed; `schema_version` rises when a meaning changes."""

    schema_version: int = VERSION
    format: Literal["aaco-capture"] = "aaco-capture"
    tool_version: Text | None = Field(default=None, description="null in captures of the first format")
    captured_from: CapturedFrom
    launch: KernelLaunch
    code: CapturedCode
    page_bytes: int = Field(default=PAGE_BYTES, ge=4096, le=64 << 20)
    regions: list[CapturedRegion] = Field(max_length=1 << 20)
    not_captured: list[NotCaptured] = Field(default=[])

    @field_validator("page_bytes")
    @classmethod
    def _is_a_power_of_two(cls, size: int) -> int:
        if size & (size - 1):
            raise ValueError("not a power of two")
        return size

    @model_validator(mode="after")
    def _memory_fits(self) -> CaptureDocument:
        check_overlaps(self.regions)
        for region in self.regions:
            for digests in (region.before, region.after):
                if digests is not None and len(digests) != pages_of(region, self.page_bytes):
                    raise ValueError(f"region {region.base:#x} of {region.size} bytes has {len(digests)} pages")
        return self


class RegionUse(Part):
    """What replays measured of a region: whether it is read, and how much of it the kernel writes."""

    base: Address
    read: bool
    written: Literal["all", "some", "none"]
    written_bytes: int | None = Field(default=None, ge=0, le=MOST_REGION, description="null: could not be measured")
    survives: bool = Field(default=True, description="false: with this region inverted the launch fails or hangs")


class MeasuredRoles(Document):
    """roles.json: what a kernel reads and writes, measured by replays of the capture with this capture.json."""

    capture_sha256: Digest
    method: Text
    regions: list[RegionUse]


def pages_of(region: CapturedRegion, page_bytes: int) -> int:
    """Return of how many pages a region consists."""
    return -(-region.size // page_bytes)


def check_overlaps(regions: list[CapturedRegion]) -> None:
    """Raise ValueError if two regions share an address."""
    ordered = sorted(regions, key=lambda region: region.base)
    for left, right in pairwise(ordered):
        if left.end > right.base:
            raise ValueError(f"regions {left.base:#x} and {right.base:#x} overlap")
