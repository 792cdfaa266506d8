"""The schema of the JSON report (json_report.py), for docs/reference/schemas and for programs that read it.

Documents of the bundle (the record, the machine, the findings) are in the report unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Document = dict[str, Any]
Count = Annotated[int, Field(ge=0)]


class _ReportModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReportReading(_ReportModel):
    """A metric: its value with its interval, or why it is absent; and what defines it."""

    value: float | None
    unit: str
    ci_low: float | None
    ci_high: float | None
    why_absent: str | None = Field(description="set where value is null")
    caveat: str | None
    method: str | None
    band: str | None
    bands: list[str]
    better: Literal["lower", "higher", "none"]
    formula: str
    source: str
    inputs: list[str]


class QualityPart(_ReportModel):
    """A part of the measurement quality: 0-1, its weight, and the metric that it rests on."""

    worth: float
    weight: float
    metric: str


class Quality(_ReportModel):
    """The measurement quality with what it is made of; coverage: the share of the weight that was measured."""

    score: float | None
    coverage: float
    described: str
    parts: dict[str, QualityPart]


class CoveragePart(_ReportModel):
    """Kernels and their time."""

    count: Count
    ns: int


class KernelCoverage(_ReportModel):
    """Where every kernel of the capture went: used and dropped sum to in_file in count and ns."""

    in_file: CoveragePart
    used: CoveragePart
    unattributed: CoveragePart | None
    dropped: dict[str, CoveragePart]


class NodeRoofline(_ReportModel):
    """The executed nodes under the roofs, or why they have no place there."""

    executed_nodes: list[Document] | None
    why_absent: str | None


class BundleFile(_ReportModel):
    """A file of the bundle; rows where it is a table."""

    name: str
    rows: Count | None


class Step(_ReportModel):
    """What to do next, and which finding asks for it."""

    because: str
    step: str


class TimePart(_ReportModel):
    """A part of a breakdown."""

    name: str
    ns: Count


class TimeBreakdown(_ReportModel):
    """Parts that sum to the whole exactly."""

    whole: str
    ns: Count
    parts: list[TimePart]


class LongIteration(_ReportModel):
    """An iteration beyond Tukey's fence, and what was recorded around it."""

    process: Count
    iteration: Count
    latency_ms: float
    excess_ms: float
    why: str
    explained: bool


class Report(_ReportModel):
    """`aaco report --format json`. Fields are added, never renamed; schema_version rises when a meaning changes."""

    schema_version: Literal[1]
    session_id: str
    folder: str
    status: str
    model: str
    backend: str
    kernels_ran_on: str | None
    banners: list[str]
    record: Document
    model_facts: Document
    runtime: Document
    machine: Document
    environment: Document
    summary: Document
    process_medians_ms: list[float]
    readings: dict[str, ReportReading]
    diagnosis: Document
    measurement_quality: Quality
    coverage: KernelCoverage | None
    trace_check: Document | None
    kernel_roofline: Document | None
    trace: Document | None
    examined: Document
    time: list[TimeBreakdown]
    kernel_families_ns: dict[str, int]
    top_kernel_groups: list[Document]
    roofline: NodeRoofline
    long_iterations: list[LongIteration]
    absent_files: dict[str, str]
    files: list[BundleFile]
    next_steps: list[Step]
    commands: list[Step]
    verdict: Document | None
