"""The report as one HTML page that loads nothing: it contains style, script, plots and data. Data is never script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from jinja2 import Environment

from aaco.analytics import metrics, rules
from aaco.analytics.explanation import STATISTICS, Explanation
from aaco.analytics.kernels import places
from aaco.core import registry
from aaco.report import format
from aaco.report.names import shorten
from aaco.report.plots import flame_graph, timeline_strip
from aaco.report.plots.plots import bins, drawings, measured_ms, plots, series, series_text
from aaco.report.renderers import outline
from aaco.report.renderers.one_file import environment, policy, resource
from aaco.report.rows import Row
from aaco.report.sections import (
    breakdown,
    catalogue,
    content,
    definition,
    inventory,
    kernels,
    nodes,
    quality,
    roofline_headroom,
    telemetry,
)
from aaco.report.sections.first_screen import first_screen
from aaco.report.sections.outliers import outliers
from aaco.report.sections.tiles import tiles_alone
from aaco.report.svg import Drawing
from aaco.tracelake import layout

__all__ = ["plots", "render"]

MOST_KERNELS, MOST_NODES, MOST_FACTS = 60, 400, 400
ECDF_POINTS = 400
IN_TEMPLATE = {"content": content, "definition": definition, "format": format, "inventory": inventory,
               "kernels": kernels, "places": places, "quality": quality, "reach": roofline_headroom,
               "no_outlier": outline.NO_OUTLIER, "limit_words": format.kernel_limit, "shorten": shorten,
               "flame_graph": flame_graph, "strip": timeline_strip, "sections_of": catalogue.on_page}
TOO_FEW = {"p99_ns": "fewer than 100 calls do not support a 99th percentile", "std_ns": "one call has no spread"}


def render(explanation: Explanation, drawn: Mapping[str, Drawing] | None = None) -> str:
    """Return the page. Its policy allows only its own style sheet and script, by their hashes.

    drawn: the explanation's drawings (plots.drawings), if the caller has them.
    """
    registry.load(metrics, "aaco.metrics")
    registry.load(rules, "aaco.rules")
    style = resource("vendor/uPlot.min.css") + resource("templates/report.css")
    script = "".join(map(resource, ("vendor/uPlot.iife.min.js", "templates/colour.js", "templates/report.js")))
    return _environment().get_template("report.html").render(
        policy=policy(style, script), style=style, script=script, data=_data(explanation),
        page_parts=catalogue.PAGE, uplot=json.loads(resource("vendor/VENDOR.json")), e=explanation,
        **_facts(explanation, drawings(explanation) if drawn is None else drawn))


def _facts(explanation: Explanation, drawn: Mapping[str, Drawing]) -> dict[str, Any]:
    """Return what the template shows and does not call itself."""
    model, backend = content.heading(explanation)
    files_listed = inventory.every(explanation)
    verdict = content.judged(explanation)
    banners = content.banners(explanation)
    thinned = any(run.thinned for run in series(explanation))
    return {
        "model": model, "backend": backend, "place": kernels.place(explanation), "verdict": verdict,
        "others": [other for other in explanation.diagnosis.considered if other is not verdict],
        "tiles": tiles_alone(explanation), "screen": first_screen(explanation),
        "severe_banners": [text for text in banners if text.startswith(content.SEVERE)],
        "quiet_banners": [text for text in banners if not text.startswith(content.SEVERE)],
        "breakdowns": breakdown.every(explanation), "stack_files": flame_graph.files(explanation),
        "reached": roofline_headroom.by_kernel(explanation), "outliers": outliers(explanation),
        "why_no_series": outline.why_no_iterations(explanation),
        "why_no_telemetry": _why_no_telemetry(explanation), "nothing": _nothing(explanation, drawn),
        "sources": partial(_sources, explanation),
        "files": files_listed, "paths": {file.name for file in files_listed},
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


def _nothing(explanation: Explanation, drawn: Mapping[str, Drawing]) -> dict[str, str]:
    """Return why parts of the page have nothing to show, by their ids."""
    no_kernels = "" if breakdown.every(explanation) or kernels.groups(explanation) else kernels.why_none(explanation)
    reasons = {
        "time": no_kernels, "kernels": "" if nodes.executed(explanation) else no_kernels,
        "roofline": "" if {"roofline", "counters"} & drawn.keys() else nodes.why_not_placed(explanation),
        "iterations": "" if "latency_series" in drawn else outline.why_no_iterations(explanation),
        "devices": "" if "gpu_series" in drawn else _why_no_telemetry(explanation),
        "change": "" if explanation.verdict else explanation.absent.get(layout.VERDICT, "not compared with a baseline")}
    return {part: why.removeprefix(f"{format.NA}: ") for part, why in reasons.items()
            if why and not catalogue.rows_of_part(part, explanation)}


def _why_no_telemetry(explanation: Explanation) -> str:
    return explanation.absent.get(layout.GPU_EVENTS) or telemetry.why_none(explanation)


def _sources(explanation: Explanation, paths: Iterable[str]) -> list[str]:
    """Return the captures that the files were made from."""
    return list(dict.fromkeys(filter(None, (inventory.captured(explanation, path) for path in paths))))


def _statistics(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of warm-up and measurement, by phase."""
    phases = [phase for phase in ("warmup", "measurement", "measurement_with_noise") if phase in summary]
    rows = [("iterations", [f"{summary[phase]['iterations']:,}" for phase in phases])]
    rows += [(name, [_statistic(summary[phase][f"{name}_ms"]) for phase in phases]) for name in STATISTICS]
    return {"phases": phases, "statistics": rows}


def _statistic(statistic: Mapping[str, Any]) -> str:
    if statistic["value"] is None:
        return format.unavailable(statistic["why_absent"])
    return format.quantity(statistic["value"], "ms", statistic.get("ci_low"), statistic.get("ci_high"))


def _surroundings(explanation: Explanation) -> dict[str, Any]:
    """Return the essential facts, and all facts by document."""
    record, runtime = explanation.record, explanation.runtime
    essentials = {"machine": explanation.machine.get("label"), "machine id": explanation.machine.get("id"),
                  "ONNX Runtime": runtime.get("onnxruntime"), "provider asked": record.get("backend_asked"),
                  "provider that ran": record.get("backend_ran"), "model hash": record.get("model_hash"),
                  "configuration hash": record.get("config_hash"), "aaco": record.get("tool_version")}
    documents = (("The run and its plan", record), ("The model", explanation.model), ("The runtime", runtime),
                 ("The machine and its measured ceilings", explanation.machine),
                 ("The environment", explanation.environment))
    return {"essentials": inventory.flat(essentials),
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
    """Return what the script plots: latencies in one unit, rounded to seven significant digits."""
    runs, values = series(explanation), measured_ms(explanation)
    latencies = np.concatenate([run.latency_ms for run in runs]) if runs else np.ones(1)
    scale, unit = format.scaling(float(np.median(latencies)), "ms")
    edges, counts, _ = bins(values / scale) if len(values) else (np.zeros(0), np.zeros(0, np.int64), 0)
    at = np.linspace(0, 100, min(ECDF_POINTS, len(values)) + 1)[1:]
    ranked = np.percentile(values / scale, at, method="inverted_cdf") if len(values) else np.zeros(0)
    return {
        "unit": unit.strip(), "median": _short([np.median(values) / scale])[0] if len(values) else None,
        "warmup": min((run.warmup for run in runs), default=0),
        "series": [{"process": run.process, "turn": run.turn.astype(int).tolist(),
                    "latency": _short(run.latency_ms / scale)} for run in runs],
        "outliers": [{"process": outlier.process, "turn": outlier.turn,
                      "latency": _short([outlier.latency_ms / scale])[0]} for outlier in outliers(explanation)],
        "histogram": {"edges": _short(edges), "counts": counts.tolist()},
        "ecdf": {"latency": _short(ranked), "pct": _short(at)}}


def _short(values: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


@cache
def _environment() -> Environment:
    return environment(**IN_TEMPLATE)
