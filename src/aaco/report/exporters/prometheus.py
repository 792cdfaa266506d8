"""Points as Prometheus's text (https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).

Names are derived from OpenTelemetry's by its specification (specs/otel/compatibility/prometheus_and_openmetrics): dots
become underscores and units words at the end. A collector that converts OTLP gets the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from aaco.report.exporters.histograms import Histogram
from aaco.report.exporters.points import Point

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WORDS = {"s": "seconds", "By": "bytes", "W": "watts", "J": "joules", "Cel": "celsius", "Hz": "hertz"}
PER = {"s": "second", "By": "byte"}


def render(points: Iterable[Point], absent: Sequence[str] = (), histograms: Iterable[Histogram] = ()) -> str:
    """Return the text: a block per metric with its meaning and kind. absent: reasons, as comments."""
    blocks: dict[str, list[Point]] = {}
    for point in points:
        blocks.setdefault(name(point), []).append(point)
    comments = [f"# absent: {_one_line(why)}" for why in absent]
    spreads: dict[str, list[Histogram]] = {}
    for histogram in histograms:
        spreads.setdefault(histogram_name(histogram), []).append(histogram)
    lines = [*comments, *(line for metric, samples in blocks.items() for line in _block(metric, samples)),
             *(line for metric, spread in spreads.items() for line in _buckets(metric, spread))]
    return "".join(f"{line}\n" for line in lines)


def histogram_name(histogram: Histogram) -> str:
    """Return the name of a histogram's metric, such as gen_ai_client_operation_duration_seconds."""
    return name(Point(histogram.name, histogram.unit, 0.0, ""))


def _buckets(metric: str, histograms: Sequence[Histogram]) -> Iterator[str]:
    """Yield a block; a bucket counts all values up to its end, as Prometheus has it."""
    yield f"# HELP {metric} {_escaped(_one_line(histograms[0].meaning), quotes=False)}"
    yield f"# TYPE {metric} histogram"
    for histogram in histograms:
        labels = {key: str(value) for key, value in histogram.attributes.items()}
        ends = [*map(repr, map(float, histogram.bounds)), "+Inf"]
        for end, count in zip(ends, accumulate(histogram.counts), strict=True):
            yield f"{metric}_bucket{_labels(labels | {'le': end})} {count}"
        yield f"{metric}_sum{_labels(labels)} {histogram.total!r}"
        yield f"{metric}_count{_labels(labels)} {histogram.count}"


def name(point: Point) -> str:
    """Return the metric's name, such as aaco_latency_p50_seconds."""
    words = [re.sub(r"[^A-Za-z0-9_:]+", "_", point.name)]
    suffix = _unit(point.unit, point.kind)
    if suffix and not words[0].endswith(f"_{suffix}"):
        words.append(suffix)
    return "_".join([*words, *(["total"] if point.kind == "counter" else [])])


def _unit(unit: str, kind: str) -> str:
    """Return the words for a unit: none for a count in braces, `ratio` for a gauge of 1."""
    if unit == "1":
        return "ratio" if kind == "gauge" else ""
    above, _, below = re.sub(r"\{[^}]*\}", "", unit).partition("/")
    counted = "" if above in ("", "1") else WORDS[above]
    return "_per_".join([counted, PER[below]]).lstrip("_") if below else counted


def _block(metric: str, points: Sequence[Point]) -> Iterator[str]:
    yield f"# HELP {metric} {_escaped(_one_line(points[0].meaning), quotes=False)}"
    yield f"# TYPE {metric} {'counter' if points[0].kind == 'counter' else 'gauge'}"
    seen = set[str]()
    for point in points:
        labels = _labels(point.attributes)
        if labels not in seen:  # a reader refuses all if two series are equal
            seen.add(labels)
            yield f"{metric}{labels} {point.value!r}"


def _labels(attributes: Mapping[str, str]) -> str:
    inside = ",".join(f'{re.sub(r"[^A-Za-z0-9_]+", "_", key)}="{_escaped(value)}"' for key, value in attributes.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str, quotes: bool = True) -> str:
    text = text.encode(errors="replace").decode().replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
