"""The document of the sealed readings: every metric, or why it was not measured."""

from __future__ import annotations

from aaco.core.documents import Document, Part, Real, document
from aaco.tracelake import layout


class StoredReading(Part):
    """A metric's reading as it was sealed."""

    value: Real | None
    unit: str | None = None
    ci_low: Real | None
    ci_high: Real | None
    why_absent: str | None
    caveat: str | None = None
    method: str | None = None
    band: str | None
    bands: list[str] | None = None
    better: str | None = None
    formula: str | None = None
    source: str | None = None
    inputs: list[str] | None = None


@document(layout.DERIVED_METRICS)
class DerivedMetrics(Document):
    """derived_metrics.json: readings by the names of their metrics, and the version."""

    __pydantic_extra__: dict[str, StoredReading]
