"""The document of the latencies of inferences."""

from __future__ import annotations

from typing import Literal

from aaco.core.documents import Count, Document, Part, Real, document
from aaco.tracelake import layout


class Estimated(Part):
    """A statistic of latencies with its interval, or why it is absent."""

    value: Real | None
    ci_low: Real | None = None
    ci_high: Real | None = None
    why_absent: str | None = None


class PhaseLatencies(Part):
    """The latencies of one phase, in ms."""

    iterations: Count
    throughput_per_s: Real | None
    mean_ms: Estimated
    std_ms: Estimated
    p50_ms: Estimated
    p90_ms: Estimated
    p95_ms: Estimated
    p99_ms: Estimated
    min_ms: Estimated
    max_ms: Estimated
    iqr_ms: Estimated
    mad_ms: Estimated


@document(layout.SUMMARY)
class InferenceSummary(Document):
    """inference_summary.json: a phase without iterations is left out."""

    unit: Literal["ms"]
    batch: Count | None
    warmup: PhaseLatencies | None = None
    measurement: PhaseLatencies | None = None
    measurement_with_noise: PhaseLatencies | None = None
