"""The report as one JSON document with a schema version: everything, without NaN or infinity."""

from __future__ import annotations

from typing import Any

from aaco.analytics.explanation import Explanation
from aaco.analytics.quality import measurement_quality
from aaco.core.files import finite
from aaco.core.readings import or_why
from aaco.report.sections import breakdown, content, inventory, kernels, nodes
from aaco.report.sections.outliers import outliers

SCHEMA_VERSION = 1
TOP = 50


def render(explanation: Explanation) -> dict[str, Any]:
    """Return the document, ready for json.dumps(allow_nan=False): a number that is not finite becomes null.

    Fields are added, never renamed; `schema_version` rises when a meaning changes.
    """
    model, backend = content.heading(explanation)
    document = {
        "schema_version": SCHEMA_VERSION,
        "session_id": explanation.session_id,
        "folder": explanation.folder,
        "status": explanation.status,
        "model": model,
        "backend": backend,
        "kernels_ran_on": kernels.place(explanation) or None,
        "banners": content.banners(explanation),
        "record": explanation.record,
        "model_facts": explanation.model,
        "runtime": explanation.runtime,
        "machine": explanation.machine,
        "environment": explanation.environment,
        "summary": explanation.summary,
        "process_medians_ms": content.process_medians_ms(explanation),
        "readings": {name: reading for name, reading in explanation.derived_metrics().items()
                     if name != "schema_version"},
        "diagnosis": explanation.diagnosis.document(),
        "measurement_quality": _quality(explanation),
        "coverage": explanation.coverage.document() if explanation.coverage else None,
        "trace_check": explanation.truth or None,
        "kernel_roofline": explanation.examined.get("roofline"),
        "trace": explanation.trace.documents() if explanation.trace else None,
        "examined": explanation.examined,
        "time": [{"whole": parted.whole, "ns": parted.ns,
                  "parts": [{"name": part.name, "ns": part.ns} for part in parted.parts]}
                 for parted in breakdown.every(explanation)],
        "kernel_families_ns": kernels.families(explanation),
        "top_kernel_groups": kernels.groups(explanation)[:TOP],
        "roofline": _roofline(explanation),
        "long_iterations": [{"process": outlier.process, "iteration": outlier.iteration,
                             "latency_ms": outlier.latency_ms, "excess_ms": outlier.excess_ms, "why": outlier.why,
                             "explained": outlier.explained}
                            for outlier in outliers(explanation)],
        "absent_files": dict(explanation.absent),
        "files": [{"name": file.name, "rows": file.rows} for file in inventory.every(explanation)
                  if not file.why_absent],
        "next_steps": [{"because": why, "step": step} for why, step in content.next_steps(explanation)],
        "commands": [{"because": why, "step": command} for why, command in content.commands(explanation)],
        "verdict": explanation.verdict,
    }
    return {name: finite(value) for name, value in document.items()}


def _quality(explanation: Explanation) -> dict[str, Any]:
    """Return the score with each part's worth, 0 to 1, and weight."""
    quality = measurement_quality.of_readings(explanation.readings)
    return {"score": quality.score, "coverage": quality.coverage, "described": quality.described,
            "parts": {name: {"worth": worth, "weight": measurement_quality.PARTS[name].weight,
                             "metric": measurement_quality.PARTS[name].metric}
                      for name, worth in quality.parts.items()}}


def _roofline(explanation: Explanation) -> dict[str, Any]:
    placed, why = or_why(lambda: nodes.placed(explanation))
    return {"executed_nodes": placed, "why_absent": why or None}
