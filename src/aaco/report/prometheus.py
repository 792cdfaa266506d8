"""Points as Prometheus's text (https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).

Names are made of OpenTelemetry's as its specification says (specs/otel/compatibility/prometheus_and_openmetrics): dots
become underscores and units words at the end, so a collector that converts what is sent by OTLP arrives at the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aaco.report.points import Point

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WORDS = {"s": "seconds", "By": "bytes", "W": "watts", "J": "joules", "Cel": "celsius", "Hz": "hertz"}
PER = {"s": "second", "By": "byte"}


def render(points: Iterable[Point], absent: Sequence[str] = ()) -> str:
    """The text: one block per metric, each with its meaning and kind. absent: reasons, as comments."""
    blocks: dict[str, list[Point]] = {}
    for point in points:
        blocks.setdefault(name(point), []).append(point)
    comments = [f"# absent: {_one_line(why)}" for why in absent]
    lines = [*comments, *(line for metric, found in blocks.items() for line in _block(metric, found))]
    return "".join(f"{line}\n" for line in lines)


def name(point: Point) -> str:
    """The metric's name: aaco_latency_p50_seconds."""
    words = [re.sub(r"[^A-Za-z0-9_:]+", "_", point.name)]
    suffix = _unit(point.unit, point.kind)
    if suffix and not words[0].endswith(f"_{suffix}"):
        words.append(suffix)
    return "_".join([*words, *(["total"] if point.kind == "counter" else [])])


def _unit(unit: str, kind: str) -> str:
    """The words for a unit: nothing for a count of what braces name, `ratio` for a gauge of 1."""
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
        if labels not in seen:  # of two equal series a reader would refuse all
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
