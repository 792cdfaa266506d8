"""Points sent by OTLP over HTTP: the official SDK's data model and exporter, nothing of our own on the wire."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramOfSdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from aaco import __version__
from aaco.core.addresses import require_address
from aaco.core.errors import AacoError
from aaco.report.exporters.histograms import Histogram
from aaco.report.exporters.points import Point

PATH = "/v1/metrics"


class _Heard(logging.Handler):
    """What the exporter says of a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())


def data(points: Iterable[Point], now_ns: int, histograms: Iterable[Histogram] = ()) -> MetricsData:
    """Return the points and histograms in the SDK's form. now_ns: the time of points without one."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    metrics = [Metric(name, points_of_name[0].meaning, points_of_name[0].unit, _values(points_of_name, now_ns))
               for name, points_of_name in by_name.items()]
    spreads: dict[str, list[Histogram]] = {}
    for histogram in histograms:
        spreads.setdefault(histogram.name, []).append(histogram)
    metrics += [Metric(name, spread[0].meaning, spread[0].unit, _spread(spread, now_ns))
                for name, spread in spreads.items()]
    scope = InstrumentationScope("aaco", __version__)
    resource = Resource.create({"service.name": "aaco", "service.version": __version__})
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def send(points: Sequence[Point], endpoint: str | None = None, timeout_s: float = 10.0,
         histograms: Sequence[Histogram] = ()) -> int:
    """Send the points and histograms; returns how many.

    Raises AacoError where they were not taken, UsageError for no address.

    endpoint: of a collector, with or without /v1/metrics; by default as OpenTelemetry's environment variables say,
    else http://localhost:4318. Outages are tried again within timeout_s.
    """
    if endpoint is not None:
        require_address(endpoint, "the collector's address")
        endpoint = endpoint if endpoint.rstrip("/").endswith(PATH) else endpoint.rstrip("/") + PATH
    heard, logger = _Heard(), logging.getLogger("opentelemetry")
    logger.addHandler(heard)
    logger.propagate = False
    try:
        exporter = OTLPMetricExporter(endpoint, timeout=timeout_s)
        try:
            result = exporter.export(data(points, time.time_ns(), histograms))
        finally:
            exporter.shutdown()
    finally:
        logger.removeHandler(heard)
        logger.propagate = True
    if result is not MetricExportResult.SUCCESS:
        why = f": {heard.words[-1]}" if heard.words else ""
        raise AacoError(f"the collector did not take the metrics{why}",
                        "is one listening there? --endpoint http://HOST:4318")
    return len(points) + len(histograms)


def _values(points: Sequence[Point], now_ns: int) -> Gauge | Sum:
    data_points = [NumberDataPoint(dict(point.attributes), 0, point.time_ns or now_ns, point.value) for point in points]
    if points[0].kind == "gauge":
        return Gauge(data_points)
    return Sum(data_points, AggregationTemporality.CUMULATIVE, is_monotonic=points[0].kind == "counter")


def _spread(histograms: Sequence[Histogram], now_ns: int) -> HistogramOfSdk:
    """Return histograms of one name in the SDK's form."""
    return HistogramOfSdk([HistogramDataPoint(
        dict(histogram.attributes), 0, histogram.time_ns or now_ns, histogram.count, histogram.total,
        list(histogram.counts), list(histogram.bounds), histogram.least, histogram.most)
        for histogram in histograms], AggregationTemporality.CUMULATIVE)
