"""Points as Prometheus's text (https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).

Names are derived from OpenTelemetry's by its specification (specs/otel/compatibility/prometheus_and_openmetrics): dots
become underscores and units words at the end. A collector that converts OTLP gets the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aaco.report.exporters.points import Point

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WORDS = {"s": "seconds", "By": "bytes", "W": "watts", "J": "joules", "Cel": "celsius", "Hz": "hertz"}
PER = {"s": "second", "By": "byte"}


def render(points: Iterable[Point], absent: Sequence[str] = ()) -> str:
    """Return the text: a block per metric with its meaning and kind. absent: reasons, as comments."""
    blocks: dict[str, list[Point]] = {}
    for point in points:
        blocks.setdefault(name(point), []).append(point)
    comments = [f"# absent: {_one_line(why)}" for why in absent]
    lines = [*comments, *(line for metric, samples in blocks.items() for line in _block(metric, samples))]
    return "".join(f"{line}\n" for line in lines)


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
