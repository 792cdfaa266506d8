"""What a metric means and where its value comes from: the text of `aaco explain NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aaco.analytics.measure import needs
from aaco.core import tables
from aaco.core.files import finite
from aaco.core.readings import Reading
from aaco.core.records import as_dict
from aaco.core.registry import Metric
from aaco.report import format
from aaco.tracelake import layout

WIDTH = 80
LABEL = 12
# Inputs that are neither a table nor computed from one.
CONTEXT = {"machine": "this machine's measured ceilings (aaco calibrate)", "settings": "the analysis settings",
           "unprofiled": "the latency given with the capture (aaco import --latency)",
           "tokens_per_inference": "the shape of the input that holds token identifiers",
           "visible_devices": "what the recorder of the devices says of them",
           "cuda_numbers": "the devices that the provider was asked for, or that the traced kernels ran on"}

# Inputs that an examination keeps as a document.
DOCUMENTS = {"critical_paths": layout.finding("critical_path"), "cpu_run": layout.ORT_CONFIG,
             "endpoint": layout.finding("endpoint"),
             "kernel_evidence": layout.finding("kernel_evidence"), "windows": layout.finding("windows")}


def render(metric: Metric, reading: Reading | None) -> str:
    """The definition in at most 80 columns, with the value in the session of `reading`, if one is given."""
    facts = list(rows(metric))
    if reading is not None:
        facts.append(("value", format.banded(reading)))
    lines = [metric.name, *_paragraph("", metric.meaning), ""]
    for label, text in facts:
        lines += _paragraph(label, text)
    return "\n".join(lines) + "\n"


def document(metric: Metric, reading: Reading | None) -> dict[str, Any]:
    """The same as a JSON document; `reading` is null without a session."""
    return {"schema_version": 1, "name": metric.name, "meaning": metric.meaning, **dict(rows(metric)),
            "reading": None if reading is None else finite(as_dict(reading))}


def rows(metric: Metric) -> Iterator[tuple[str, str]]:
    """What is written down of a metric, as (label, text); labels without text are left out."""
    yield from rows_without_inputs(metric)
    if metric.inputs:
        yield "inputs", "; ".join(lineage(metric))


def rows_without_inputs(metric: Metric) -> Iterator[tuple[str, str]]:
    """The same but for what it is computed from."""
    facts = {
        "aliases": ", ".join(metric.aliases),
        "unit": f"{metric.unit}, {format.BETTER[metric.better]}",
        "formula": metric.formula,
        "bands": format.bands(metric),
        "source": metric.source,
    }
    return ((label, text) for label, text in facts.items() if text)


def lineage(metric: Metric) -> list[str]:
    """Each input with the files of the bundle it is read from: "window (profiler/... .parquet)"."""
    return [f"{name} ({', '.join(origins(name))})" for name in metric.inputs]


def origins(name: str) -> list[str]:
    """The bundle files, or other sources, behind an input: a table, a view of tables, or another metric."""
    if name in CONTEXT:
        return [CONTEXT[name]]
    if name in DOCUMENTS:
        return [DOCUMENTS[name]]
    if name in tables.ALL:
        return [tables.ALL[name].file]
    return list(dict.fromkeys(origin for needed in needs(name) for origin in origins(needed)))


def files(metric: Metric) -> list[str]:
    """Every file of the bundle that the metric's value depends on."""
    found = (origin for name in metric.inputs for origin in origins(name) if origin not in CONTEXT.values())
    return list(dict.fromkeys(found))


def _paragraph(label: str, text: str) -> list[str]:
    return format.hung(f"{'  ' + label:<{LABEL if label else 2}}", text, WIDTH)
