"""The documents of an import: what was read of which file, and the latency that was given with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from aaco.core.documents import Count, Document, Part, Whole, document
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.trace_check import CapturePart

Facts = dict[str, Any]  # by names that are not ours: options of a runtime, facts of a machine


class CaptureTable(Part):
    """What a capture gave a table."""

    rows: Count
    ns: Whole
    start_ns: Whole | None
    end_ns: Whole | None
    on_host: Count | None = None
    dispatched: Count | None = None
    fills: Count | None = None
    fill_ns: Whole | None = None


class CaptureFile(Part):
    """A file of a capture."""

    path: str
    bytes: Count | None = None
    sha256: str
    kept: str | None = None


class UnknownFile(Part):
    """A file among the captures that is not one."""

    path: str
    why: str


class CaptureDevice(Part):
    """A device of a capture."""

    id: Whole | None = None
    name: str | None = None
    arch: str | None = None
    compute_units: Count | None = None
    vram_bytes: Count | None = None


class Capture(Part):
    """A capture of another tool, and the account of every record in it."""

    index: Count
    files: list[CaptureFile] = Field(min_length=1)
    executions: list[list[Whole]] = Field(default=[])
    rank: Whole | None
    format: str
    tool: str | None
    tool_version: str | None
    clock: str | None = None
    records: dict[str, Count] | None = None
    kernels: CapturePart | None
    left_out: dict[str, CapturePart]
    devices: list[CaptureDevice]
    streams: list[list[Whole]] | None = None
    world_size: Whole | None = None
    part: str | None = None
    ambiguous_ids: bool = False
    host: str | None = None
    problems: list[str]
    tables: dict[str, CaptureTable]
    span_ns: Annotated[list[Whole], Field(min_length=2, max_length=2)] | None
    metadata: Facts | None = None
    metadata_left_out: Count | None = None


@document(layout.CAPTURES)
class Captures(Document):
    """captures.json: what an import read."""

    captures: list[Capture]
    rows: dict[str, Count] | None = None
    counted: list[Facts] | None = None
    kernels_ran_on: str = ""
    unrecognised: Count = 0
    unrecognised_files: list[UnknownFile] = Field(default=[])
    notes: list[str] = Field(default=[])
    references_to_nothing: dict[str, Count] = Field(default={})


@document(layout.GIVEN_LATENCY)
class GivenLatency(Document):
    """given_latency.json: how long a step takes without a profiler, as it was given with a capture."""

    count: Annotated[int, Field(ge=1, lt=2**63)]
    median_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    source: str
    steps: Annotated[int, Field(ge=1, lt=2**63)] | None = None  # of each device in the capture, if given
    fastest_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # a tenth are faster; of ten and more
