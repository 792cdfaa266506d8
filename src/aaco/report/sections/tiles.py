"""The headline figures of a session, for the HTML report and the dashboard."""

from __future__ import annotations

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.core import registry
from aaco.report import format
from aaco.report.sections import content

OF_A_RUN = {"latency_p50_ms": "Median latency", "latency_p99_ms": "99th percentile",
            "throughput_per_s": "Throughput, samples", "gpu_active_ratio": "GPU active"}
OF_A_TRACE = {"gpu_active_ratio": "GPU active", "launch_tax_pct": "Launch tax", "microkernel_pct": "Short kernels",
              "gpu_concurrency": "Kernels at once"}
WITHOUT_A_DEVICE = {"measurement_quality": "Measurement quality"}  # in place of the GPU's activity


class Tile(Struct, frozen=True):
    """A headline figure with its interval or band, or why it is absent."""

    label: str
    metric: str
    value: str
    note: str
    why_absent: str

    @property
    def meaning(self) -> str:
        """Return the metric's definition."""
        return registry.METRICS[self.metric].meaning


def labels(explanation: Explanation) -> dict[str, str]:
    """Return the four metrics with their labels."""
    return OF_A_TRACE if explanation.captures else OF_A_RUN


def tiles(explanation: Explanation) -> list[Tile]:
    """Return the four figures."""
    return [_tile(explanation, label, metric) for metric, label in labels(explanation).items()]


def tiles_alone(explanation: Explanation) -> list[Tile]:
    """Return the four figures for a page that shows nothing else near them.

    The median carries the median of each process. Where no device ran, the quality of the measurement takes the place
    of the GPU's activity.
    """
    figures = labels(explanation)
    if not explanation.captures and explanation.readings["gpu_active_ratio"].value is None:
        figures = {metric: figures[metric] for metric in figures if metric != "gpu_active_ratio"} | WITHOUT_A_DEVICE
    by_process = "" if explanation.captures else content.medians_by_process(explanation)
    return [_tile(explanation, label, metric, by_process if metric == "latency_p50_ms" else "")
            for metric, label in figures.items()]


def _tile(explanation: Explanation, label: str, metric: str, by_process: str = "") -> Tile:
    reading = explanation.readings[metric]
    if reading.value is None:
        return Tile(label, metric, "", "", reading.why_absent)
    value, _, interval = format.reading(reading).partition(" [")
    note = f"95 % interval {interval.rstrip(']').replace(', ', ' to ')}" if interval else reading.band
    return Tile(label, metric, value, f"{note}; by process {by_process}" if by_process else note, "")
