"""The report as one HTML page that loads nothing: style, script, plots and data are inside, and no script is data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aaco.analytics import metrics, rules
from aaco.analytics.explanation import STATISTICS, Explanation
from aaco.core import registry
from aaco.report import (
    breakdown,
    content,
    definition,
    format,
    graph,
    inventory,
    kernels,
    nodes,
    operators,
    outline,
    quality,
    reach,
    spikes,
    stacks,
    strip,
    telemetry,
)
from aaco.report.answers import answers
from aaco.report.outliers import outliers
from aaco.report.plots import bins, drawings, measured_ms, plots, series, series_text
from aaco.report.rows import Row
from aaco.report.svg import Drawing
from aaco.tracelake import layout

__all__ = ["plots", "render"]

MOST_KERNELS, MOST_NODES, MOST_FACTS = 60, 400, 400
ECDF_POINTS = 400
SECTIONS = (("verdict", "Verdict"), ("time", "Time"), ("quality", "Measurement"), ("kernels", "Kernels"),
            ("roofline", "Roofline"), ("iterations", "Iterations"), ("devices", "Devices"), ("change", "Change"),
            ("next", "Next steps"), ("metrics", "Metrics"), ("absent", "Absent"), ("environment", "Environment"),
            ("definitions", "Definitions"))
TILES = (("Median latency", "latency_p50_ms"), ("99th percentile", "latency_p99_ms"),
         ("Throughput, samples", "throughput_per_s"))
LAST_TILE = (("GPU active", "gpu_active_ratio"), ("Measurement quality", "measurement_quality"))
OF_A_TRACE = (("GPU active", "gpu_active_ratio"), ("Launch tax", "launch_tax_pct"),
              ("Short kernels", "microkernel_pct"), ("Kernels at once", "gpu_concurrency"))
SEVERE = "INCOMPLETE"
IN_TEMPLATE = {"content": content, "definition": definition, "format": format, "inventory": inventory,
               "graph": graph, "kernels": kernels, "operators": operators, "quality": quality, "reach": reach,
               "no_outlier": outline.NO_OUTLIER, "spikes": spikes, "stacks": stacks, "strip": strip}
TOO_FEW = {"p99_ns": "fewer than 100 calls do not support a 99th percentile", "std_ns": "one call has no spread"}


@dataclass(frozen=True)
class Tile:
    """A figure at the top of the page, or why it is absent."""

    label: str
    metric: str
    value: str
    note: str
    why_absent: str


def render(explanation: Explanation, drawn: Mapping[str, Drawing] | None = None) -> str:
    """The page. Its policy lets only its own style sheet and script run, by their hashes.

    drawn: the explanation's drawings (plots.drawings), by whoever has them already.
    """
    registry.load(metrics, "aaco.metrics")
    registry.load(rules, "aaco.rules")
    style = _resource("vendor/uPlot.min.css") + _resource("templates/report.css")
    script = "".join(map(_resource, ("vendor/uPlot.iife.min.js", "templates/colour.js", "templates/report.js")))
    return _environment().get_template("report.html").render(
        policy=_policy(style, script), style=style, script=script, data=_data(explanation),
        sections=SECTIONS, uplot=json.loads(_resource("vendor/VENDOR.json")), e=explanation,
        **_facts(explanation, drawings(explanation) if drawn is None else drawn))


def _facts(explanation: Explanation, drawn: Mapping[str, Drawing]) -> dict[str, Any]:
    """What the template shows and does not find in the modules it knows."""
    model, backend = content.heading(explanation)
    found = inventory.every(explanation)
    verdict = content.judged(explanation)
    banners, missing = content.banners(explanation), inventory.absent(explanation)
    thinned = any(one.thinned for one in series(explanation))
    return {
        "model": model, "backend": backend, "place": kernels.place(explanation), "verdict": verdict,
        "others": [other for other in explanation.diagnosis.considered if other is not verdict],
        "tiles": list(_tiles(explanation)), "answers": answers(explanation),
        "severe_banners": [text for text in banners if text.startswith(SEVERE)],
        "quiet_banners": [text for text in banners if not text.startswith(SEVERE)],
        "breakdowns": breakdown.every(explanation), "stack_files": stacks.files(explanation),
        "reached": reach.by_kernel(explanation), "outliers": outliers(explanation),
        "why_no_series": outline.why_no_iterations(explanation),
        "why_no_telemetry": missing.get(layout.GPU_EVENTS) or telemetry.why_none(explanation),
        "sources": partial(_sources, explanation),
        "files": found, "paths": {file.name for file in found},
        "groups": kernels.groups(explanation), "most_kernels": MOST_KERNELS, "too_few": TOO_FEW,
        "inferences": kernels.inferences(explanation),
        "executed": nodes.executed(explanation), "roof_notes": nodes.roof_notes(explanation),
        "most_nodes": MOST_NODES, "coverage": kernels.coverage(explanation),
        "drawings": {name: drawing.inline() for name, drawing in drawn.items()},
        "device_files": list(inventory.of_devices(explanation)),
        "series_text": series_text(explanation), "beyond": _beyond(explanation),
        "thinned": "; of each stretch the extremes" if thinned else "",
        "roofline_note": _roofline_note(explanation), "why_no_roofline": nodes.why_not_placed(explanation),
        "steps": content.next_steps(explanation), "absent": inventory.absent_readings(explanation),
        "metrics": [registry.METRICS[name] for name in explanation.readings],
        "measured": sum(reading.value is not None for reading in explanation.readings.values()),
        "meanings": {name: registry.METRICS[name].meaning for name in explanation.readings},
        "rules": {label: rule.meaning for label, rule in registry.RULES.items()},
        **_statistics(explanation.summary), **_surroundings(explanation)}


def _tiles(explanation: Explanation) -> Iterator[Tile]:
    """Four figures; where no device ran, the last is what the others are worth."""
    if explanation.captures:
        yield from (_tile(explanation, *tile) for tile in OF_A_TRACE)
        return
    yield from (_tile(explanation, *tile) for tile in TILES)
    device, worth = LAST_TILE
    yield _tile(explanation, *(worth if explanation.readings[device[1]].value is None else device))


def _sources(explanation: Explanation, paths: Iterable[str]) -> list[str]:
    """The captures that the files were made of."""
    return list(dict.fromkeys(filter(None, (inventory.captured(explanation, path) for path in paths))))


def _tile(explanation: Explanation, label: str, metric: str) -> Tile:
    found = explanation.readings[metric]
    if found.value is None:
        return Tile(label, metric, "", "", found.why_absent)
    value, _, interval = format.reading(found).partition(" [")
    note = f"95 % interval {interval.rstrip(']').replace(', ', ' to ')}" if interval else found.band
    if metric == "latency_p50_ms" and (by_process := content.medians_by_process(explanation)):
        note = f"{note}; by process {by_process}"
    return Tile(label, metric, value, note, "")


def _statistics(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of warm-up and measurement side by side."""
    phases = [phase for phase in ("warmup", "measurement", "measurement_with_noise") if phase in summary]
    rows = [("iterations", [f"{summary[phase]['iterations']:,}" for phase in phases])]
    rows += [(name, [_statistic(summary[phase][f"{name}_ms"]) for phase in phases]) for name in STATISTICS]
    return {"phases": phases, "statistics": rows}


def _statistic(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return f"absent: {found['why_absent']}"
    return format.quantity(found["value"], "ms", found.get("ci_low"), found.get("ci_high"))


def _surroundings(explanation: Explanation) -> dict[str, Any]:
    """The few facts that matter most, and all of them by their document."""
    record, runtime = explanation.record, explanation.runtime
    chosen = {"machine": explanation.machine.get("label"), "machine id": explanation.machine.get("id"),
              "ONNX Runtime": runtime.get("onnxruntime"), "provider asked": record.get("backend_asked"),
              "provider that ran": record.get("backend_ran"), "model hash": record.get("model_hash"),
              "configuration hash": record.get("config_hash"), "aaco": record.get("tool_version")}
    documents = (("The run and its plan", record), ("The model", explanation.model), ("The runtime", runtime),
                 ("The machine and its measured ceilings", explanation.machine),
                 ("The environment", explanation.environment))
    return {"essentials": inventory.flat(chosen),
            "environment": [(title, _limited(inventory.flat(document))) for title, document in documents]}


def _limited(rows: list[Row]) -> list[Row]:
    left = len(rows) - MOST_FACTS
    return rows if left <= 0 else [*rows[:MOST_FACTS], Row("and more", f"{left:,} facts are in the bundle's files")]


def _beyond(explanation: Explanation) -> str:
    values = measured_ms(explanation)
    beyond = bins(values)[2] if len(values) else 0
    return f"; {beyond:,} beyond its right edge, up to {format.quantity(values.max(), 'ms')}" if beyond else ""


def _roofline_note(explanation: Explanation) -> str:
    flat = [node for node in nodes.executed(explanation) if not node.roof or not 0 < node.roof.intensity < np.inf]
    if not flat:
        return "All executed nodes are shown."
    share = format.percent(sum(node.share for node in flat))
    what = f"{format.plural(len(flat), 'node')} without modelled arithmetic or a roof of its type"
    return f"{what} ({share} of time) not shown."


def _data(explanation: Explanation) -> dict[str, Any]:
    """What the script plots: latencies in one unit, rounded to seven significant digits."""
    found, values = series(explanation), measured_ms(explanation)
    every = np.concatenate([one.latency_ms for one in found]) if found else np.ones(1)
    scale, unit = format.scaling(float(np.median(every)), "ms")
    edges, counts, _ = bins(values / scale) if len(values) else (np.zeros(0), np.zeros(0, np.int64), 0)
    at = np.linspace(0, 100, min(ECDF_POINTS, len(values)) + 1)[1:]
    ranked = np.percentile(values / scale, at, method="inverted_cdf") if len(values) else np.zeros(0)
    return {
        "unit": unit.strip(), "median": _short([np.median(values) / scale])[0] if len(values) else None,
        "warmup": min((one.warmup for one in found), default=0),
        "series": [{"process": one.process, "turn": one.turn.astype(int).tolist(),
                    "latency": _short(one.latency_ms / scale)} for one in found],
        "outliers": [{"process": one.process, "turn": one.turn, "latency": _short([one.latency_ms / scale])[0]}
                     for one in outliers(explanation)],
        "histogram": {"edges": _short(edges), "counts": counts.tolist()},
        "ecdf": {"latency": _short(ranked), "pct": _short(at)}}


def _short(values: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


def _policy(style: str, script: str) -> str:
    return (f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; "
            "form-action 'none'")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _resource(name: str) -> str:
    return (files("aaco.report") / name).read_text()


@cache
def _environment() -> Environment:
    environment = Environment(loader=PackageLoader("aaco.report"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True, finalize=_cleaned)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals |= IN_TEMPLATE
    return environment


def _cleaned(value: Any) -> Any:
    """Every text that the template prints, without the letters that steer; markup was made from cleaned text."""
    return format.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
